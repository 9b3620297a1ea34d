"""The run record as the executor sees it: a scope around each run.

Entering the scope puts the opening record on disk; leaving it, in whatever way, writes the closing record. If
the opening cannot be written the scope is not entered: nothing runs that is not on the record.
"""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio
from anyio import to_thread

from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.journal import Journal
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.record import Caller, Content, Opening, as_bytes, canonical
from mcp_sandbox.audit.run_id import RunIds, name_of
from mcp_sandbox.errors import AuditError, Busy, RequestRefused, SandboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from mcp_sandbox.audit.query import Reader, RunRecord, RunSummary, Stream
    from mcp_sandbox.model import ExecutionResult

T = TypeVar("T")

OPENING_SECONDS = 5.0
"""How long a run waits for its opening record, in seconds; then it does not run."""

CLOSING_SECONDS = 5.0
"""How long the closing record of a finished run may take, in seconds: its result waits for it."""

CANCELLED_SECONDS = 1.0
"""How long it may take where an exception ended the run, in seconds: a server that is to stop waits."""

NOBODY = Caller()

ARGUMENTS_BYTES = 256 * 1024
"""How much of a malformed call's arguments is kept, in bytes."""


class Entry:
    """One run on the record, while its scope is open."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.facts: dict[str, object] = {}
        self.result: ExecutionResult | None = None
        self.contents: list[Content] = []

    def note(self, **facts: object) -> None:
        """Add what is learnt after the opening (image id, engine version, ...) to the closing record.

        Facts are JSON; a later fact of the same name replaces the earlier one.
        """
        self.facts.update(facts)

    def finish(
        self, result: ExecutionResult, *, stdout: bytes, stderr: bytes, contents: Sequence[Content] = ()
    ) -> None:
        """Set the result, the streams as far as they were kept, and files; written when the scope is left."""
        self.result = result
        self.contents = [Content.of("stdout", stdout), Content.of("stderr", stderr), *contents]
        # What the client was shown, where it is not the kept bytes themselves (cut, or made visible).
        for role, kept, shown in (("stdout", stdout, result.stdout), ("stderr", stderr, result.stderr)):
            if as_bytes(shown) != kept:
                self.contents.append(Content.of(f"{role}_shown", as_bytes(shown)))


class Recorder(Protocol):
    """What the executor asks of a record; `AuditStore` keeps one, `Unrecorded` does not."""

    def entry(self, opening: Opening) -> AbstractAsyncContextManager[Entry]:
        """Yield an entry whose opening is on disk; leaving the scope writes the closing record.

        Raises:
            AuditError: It cannot be written. On entering: do not run. On leaving: the run is over, and
                will be recorded as lost by the server's end or the next start.
        """
        ...

    async def refused(
        self, request: Opening | Mapping[str, object], error: SandboxError, caller: Caller = NOBODY
    ) -> str:
        """Record a call that ran nothing, by what it asked or by its raw arguments; return its run_id.

        With raw arguments, `caller` tells who asked.

        Raises:
            AuditError: It cannot be written.
        """
        ...

    def staging(self, run_id: str) -> Path | None:
        """Return a folder, not made yet, for files of this run until `adopt`; None where none are kept."""
        ...

    async def adopt(self, artifacts: Sequence[Content]) -> None:
        """Take staged files in, on disk when this returns; `Entry.finish` then names them.

        Raises:
            AuditError: They cannot be written.
        """
        ...

    async def recent(self, limit: int) -> Sequence[RunSummary]:
        """Return the last runs, newest first.

        Raises:
            AuditError: They cannot be read.
        """
        ...

    async def content(
        self, run_id: str, role: str, offset: int = 0, limit: int | None = None
    ) -> bytes | None:
        """Return what is kept of a run, or a part of it: `stdout`, `stderr`, `artifact:PATH`; None where there is none.

        Raises:
            RequestRefused: There is no such run.
            AuditError: It cannot be read.
        """
        ...

    async def size(self, run_id: str, role: str) -> int | None:
        """Return the bytes of what is kept of a run; None where there is no such.

        Raises:
            RequestRefused: There is no such run.
            AuditError: It cannot be read.
        """
        ...

    async def result(self, prefix: str) -> ExecutionResult | None:
        """Return a run's result as the client got it; None where there is none.

        Raises:
            RequestRefused: There is no such run.
            AuditError: It cannot be read.
        """
        ...

    async def open(self) -> None:
        """Open the store now, so that a fault is known at start; otherwise the first call does.

        Raises:
            AuditError: It cannot be opened. The next call tries again.
        """
        ...

    async def aclose(self) -> None:
        """Seal the chain, within 1 s.

        Raises:
            AuditError: It cannot be written.
        """
        ...


class AuditStore:
    """The run record in one folder, which several servers may share."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = Folder(folder)
        self._journal = Journal(self._folder, clock)
        # One writer per server, with a thread that nothing else can starve.
        self._writer = anyio.CapacityLimiter(1)
        self._readers = anyio.CapacityLimiter(2)
        self._adopters = anyio.CapacityLimiter(2)

    def staging(self, run_id: str) -> Path | None:
        """Return a folder for files of this run; see `Recorder.staging`."""
        return self._folder.staged(run_id)

    async def adopt(self, artifacts: Sequence[Content]) -> None:
        """Take staged files in; see `Recorder.adopt`."""

        def blocking() -> None:
            with self._folder.explained():
                self._folder.adopt(artifacts)

        await to_thread.run_sync(blocking, abandon_on_cancel=True, limiter=self._adopters)

    async def open(self) -> None:
        """Open the store now; see `Recorder.open`."""
        await self._write(OPENING_SECONDS, self._journal.begin)

    async def aclose(self) -> None:
        """Seal the chain; see `Recorder.aclose`."""
        await self._write(CANCELLED_SECONDS, self._journal.end)

    @asynccontextmanager
    async def entry(self, opening: Opening) -> AsyncIterator[Entry]:
        """Yield an entry whose opening is on disk; see `Recorder.entry`."""
        number = await self._write(OPENING_SECONDS, partial(self._journal.open_run, opening))
        started = time.monotonic()
        entry = Entry(name_of(number))
        try:
            yield entry
        except BaseException as exc:
            try:
                await self._close(number, entry, started, exc)
            except AuditError as unwritten:
                # What ended the run matters more, a cancellation above all: it must go on as what it is.
                exc.add_note(f"Its end is not on the record: {unwritten}")
            raise
        await self._close(number, entry, started, None)

    async def refused(
        self, request: Opening | Mapping[str, object], error: SandboxError, caller: Caller = NOBODY
    ) -> str:
        """Record a call that ran nothing; see `Recorder.refused`."""
        data: dict[str, object] = {"error": {"code": error.code, "message": error.message}}
        opening, contents = None, []
        if isinstance(request, Opening):
            opening = request
        else:
            arguments = _raw_json(request)
            contents = [Content.of("arguments", arguments[:ARGUMENTS_BYTES])]
            data["arguments_bytes"] = len(arguments)
            data |= caller.model_dump(mode="json")
        return name_of(
            await self._write(OPENING_SECONDS, partial(self._journal.refuse, opening, data, contents))
        )

    async def list(
        self,
        *,
        workspace: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        code_contains: str | None = None,
        artifact: str | None = None,
        limit: int = 20,
    ) -> Sequence[RunSummary]:
        """Return runs, newest first; see `query.Reader.list`."""
        return await self._read(
            lambda reader: reader.list(
                workspace=workspace,
                status=status,
                since=since,
                code_contains=code_contains,
                artifact=artifact,
                limit=limit,
            )
        )

    async def recent(self, limit: int) -> Sequence[RunSummary]:
        """Return the last runs; see `Recorder.recent`."""
        return await self._read(lambda reader: reader.list(limit=limit))

    async def get(self, prefix: str) -> RunRecord:
        """Return all that is recorded of a run; see `query.Reader.get`."""
        return await self._read(lambda reader: reader.get(prefix))

    async def result(self, prefix: str) -> ExecutionResult | None:
        """Return a run's result as the client got it; see `query.Reader.result`."""
        return await self._read(lambda reader: reader.result(prefix))

    async def output(self, prefix: str, stream: Stream = "stdout") -> bytes:
        """Return what a run wrote, as far as it was kept; see `query.Reader.output`."""
        return await self._read(lambda reader: reader.output(prefix, stream))

    async def content(
        self, run_id: str, role: str, offset: int = 0, limit: int | None = None
    ) -> bytes | None:
        """Return what is kept of a run; see `Recorder.content`."""
        return await self._read(lambda reader: reader.content(reader.resolve(run_id), role, offset, limit))

    async def size(self, run_id: str, role: str) -> int | None:
        """Return the bytes of what is kept of a run; see `Recorder.size`."""
        return await self._read(lambda reader: reader.size(reader.resolve(run_id), role))

    async def _read(self, read: Callable[[Reader], T]) -> T:
        """Run `read` in a worker thread, with a reader that sees one moment of the store."""

        def blocking() -> T:
            with reading(self._folder) as reader:
                return read(reader)

        return await to_thread.run_sync(blocking, abandon_on_cancel=True, limiter=self._readers)

    async def _close(self, number: int, entry: Entry, started: float, raised: BaseException | None) -> None:
        status, error = _outcome(entry, raised)
        data = {
            "status": status,
            "error": error,
            "result": entry.result.model_dump(mode="json", exclude={"stdout", "stderr"})
            if entry.result
            else None,
            "facts": entry.facts,
            # Monotonic: the clock may be set while a program runs.
            "elapsed_ms": round((time.monotonic() - started) * 1000),
        }
        await self._write(
            CANCELLED_SECONDS if raised else CLOSING_SECONDS,
            partial(self._journal.close_run, number, data, entry.contents),
        )

    async def _write(self, seconds: float, write: Callable[[float], T]) -> T:
        """Run `write` in a worker thread, shielded from cancellation and bounded by `seconds`.

        `write` waits a little less for other servers, so that "busy" is told as that and not as silence.
        """
        with anyio.move_on_after(seconds, shield=True):
            return await to_thread.run_sync(
                write, seconds * 0.8, abandon_on_cancel=True, limiter=self._writer
            )
        raise self._folder.silent(seconds)


class Unrecorded:
    """Keeps nothing: what `unsafe_run_unrecorded` puts in the record's place."""

    def __init__(self) -> None:
        self._ids = RunIds()

    def staging(self, run_id: str) -> Path | None:
        """Return None: no file is kept."""
        return None

    async def adopt(self, artifacts: Sequence[Content]) -> None:
        """Do nothing."""

    async def recent(self, limit: int) -> Sequence[RunSummary]:
        """Return nothing: nothing was kept."""
        return ()

    async def content(
        self, run_id: str, role: str, offset: int = 0, limit: int | None = None
    ) -> bytes | None:
        """Return None: nothing was kept."""
        return None

    async def size(self, run_id: str, role: str) -> int | None:
        """Return None: nothing was kept."""
        return None

    async def result(self, prefix: str) -> ExecutionResult | None:
        """Return None: nothing was kept."""
        return None

    async def open(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""

    @asynccontextmanager
    async def entry(self, opening: Opening) -> AsyncIterator[Entry]:
        """Yield an entry that is forgotten."""
        yield Entry(name_of(self._ids.next()))

    async def refused(
        self, request: Opening | Mapping[str, object], error: SandboxError, caller: Caller = NOBODY
    ) -> str:
        """Return a run_id that leads nowhere."""
        return name_of(self._ids.next())


def _outcome(entry: Entry, raised: BaseException | None) -> tuple[str, dict[str, str] | None]:
    """Return the status to record and the error beside it; an error never hides a result."""
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        raised = raised.exceptions[0]
    error: dict[str, str] | None = None
    status = "error"
    if raised is None:
        if entry.result is None:
            error = {"code": SandboxError.code, "message": "The run ended without a result."}
    elif isinstance(raised, SandboxError):
        status = "refused" if isinstance(raised, RequestRefused | Busy) else "error"
        error = {"code": raised.code, "message": raised.message}
    elif isinstance(raised, Exception):
        # Its text may hold anything, a secret too; its type is ours to tell.
        error = {"code": SandboxError.code, "message": f"{type(raised).__name__} was raised."}
    else:
        status, error = "cancelled", {"code": "cancelled", "message": "The run was cancelled."}
    return (entry.result.status if entry.result else status), error


def _raw_json(request: Mapping[str, object]) -> bytes:
    try:
        return canonical(request).encode("ascii")
    except RecursionError:
        return b'"nested too deeply to be kept"'
