"""Runs that outlast the call that began them: waited for by any number of calls, ended with the server.

A client gives up on a call after a minute; a program may need an hour. So a run belongs to the server, and a call
waits for it only so long as clients wait.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import anyio

from mcp_sandbox.account import read_on
from mcp_sandbox.capture import Capture, share
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.guest.progress import IN_WORDS
from mcp_sandbox.model import ExecutionResult
from mcp_sandbox.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mcp_sandbox.audit.store import Recorder
    from mcp_sandbox.executor import Executor
    from mcp_sandbox.guest.session import Stream
    from mcp_sandbox.model import ExecutionRequest

KEPT = 64
"""Ended runs whose output can still be fetched in parts; older ones are in the record."""
STOP_SECONDS = 1.0
"""Longest time for all runs to end in order, with their output on the record, when the server ends."""

_log = logging.getLogger(__name__)


class Offsets(NamedTuple):
    """Bytes of each output stream that the asker has already."""

    stdout: int = 0
    stderr: int = 0


class Flight:
    """One run, and its end once there is one."""

    def __init__(self, limit_seconds: float) -> None:
        self.run = Run()
        self.limit_seconds = limit_seconds
        """Wall-clock time that its program may take."""
        self.began = anyio.current_time()
        self.ended = anyio.Event()
        self.news = anyio.Event()
        """Set when its phase changes or it ends; another one then takes its place."""
        self._phase = self.run.progress.phase
        self.run.progress.on_change = self._on_change
        self.scope = anyio.CancelScope()
        self.result: ExecutionResult | None = None
        self.error: SandboxError | None = None

    def stop(self) -> None:
        """End the run: in order, with its output so far, if its program has started; else at once."""
        self.run.stop.request()
        if not self.run.stop.has_begun:
            self.scope.cancel()

    def end(self) -> None:
        """Let everybody know who waits."""
        # A ring of references would keep it, and all its output, until Python looks for rings: hardly ever.
        self.run.progress.on_change = lambda: None
        self.ended.set()
        self._tell()

    def _on_change(self) -> None:
        if self._phase != self.run.progress.phase:
            self._phase = self.run.progress.phase
            self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = anyio.Event()

    def elapsed(self) -> tuple[float, float | None]:
        """Return the seconds since it was asked for, and of how many at most; None until its program runs."""
        since = self.run.progress.running_since
        most = None if since is None else since - self.began + self.limit_seconds
        return anyio.current_time() - self.began, most

    def in_words(self) -> str:
        """Say where the run is, for somebody who waits: its phase, how far it is, the last line that it wrote."""
        from rich.filesize import decimal  # here, for a server's start is not to wait for it

        progress, streams = self.run.progress, self.run.streams
        said = IN_WORDS[progress.phase]
        if progress.phase == "running" and progress.running_since is not None and streams:
            seconds = anyio.current_time() - progress.running_since
            line = streams.stdout.last_line() or streams.stderr.last_line()
            return f"{said} for {seconds:.0f} s of {self.limit_seconds:g} at most" + (line and f": {line}")
        if progress.line:
            return f"{said}: {progress.line}"
        if progress.done:
            said += f", {decimal(progress.done)}" + (
                f" of {decimal(progress.total)}" if progress.total else ""
            )
        return said

    def so_far(self, reply_limit: int, offsets: Offsets | None = None) -> ExecutionResult:
        """Return the result, or what there is of it, with the output from these offsets on.

        Raises:
            SandboxError: Nothing ran, or the engine failed.
        """
        if self.error:
            raise self.error
        if self.result and (self.run.streams is None or not offsets or offsets == (0, 0)):
            return self.result
        offsets = offsets or Offsets()
        if self.result:
            return self.result.model_copy(
                update=self._new_output(reply_limit, offsets, self._read_on_in_file)
            )
        parts = self._new_output(reply_limit, offsets, self._read_on)
        if self.ended.is_set():
            return ExecutionResult(
                run_id=self.run.run_id, status="cancelled", exit_code=None, duration_ms=None, **parts
            )
        since = self.run.progress.running_since
        return ExecutionResult(
            run_id=self.run.run_id,
            status="running",
            exit_code=None,
            duration_ms=None if since is None else int((anyio.current_time() - since) * 1000),
            hint=f'{self._what_goes_on()}: get_run(run_id="{self.run.run_id}", wait_seconds=40, '
            f"stdout_from={parts['stdout_bytes']}, stderr_from={parts['stderr_bytes']}) waits on and returns what "
            "is new; cancel_run stops it.",
            **parts,
        )

    def _what_goes_on(self) -> str:
        if self.run.progress.phase == "installing":
            return "Packages are being installed, which is done once; then the program runs"
        return "Still running"

    def _new_output(
        self, reply_limit: int, offsets: Offsets, read_on: Callable[[Stream, int], str]
    ) -> dict[str, Any]:
        streams = self.run.streams
        out, err = (streams.stdout, streams.stderr) if streams else (Capture(0, 0), Capture(0, 0))
        if not self.ended.is_set():  # what is unfinished is shown, and counted as had, with what finishes it
            out, err = out.without_end(out.unfinished()), err.without_end(err.unfinished())
        return new_output(out, err, reply_limit, offsets, read_on)

    def _read_on(self, stream: Stream, offset: int) -> str:
        return f'get_run(run_id="{self.run.run_id}", {stream}_from={offset}) has the rest'

    def _read_on_in_file(self, stream: Stream, offset: int) -> str:
        streams = self.run.streams
        place = getattr(streams, stream).place(offset) if streams else offset
        return read_on(self.run.run_id, stream, place)


def new_output(
    out: Capture, err: Capture, reply_limit: int, offsets: Offsets, read_on: Callable[[Stream, int], str]
) -> dict[str, Any]:
    """Return the fields of a result that are about its output, of which the asker has these bytes already."""
    new_out, new_err = out.since(offsets.stdout), err.since(offsets.stderr)
    budgets = share(reply_limit, new_out.wanted(), new_err.wanted())
    shown_out = new_out.show(budgets[0], lambda more: read_on("stdout", offsets.stdout + more))
    shown_err = new_err.show(budgets[1], lambda more: read_on("stderr", offsets.stderr + more))
    return {
        "stdout": shown_out.text,
        "stderr": shown_err.text,
        "stdout_bytes": out.total,
        "stderr_bytes": err.total,
        "truncated": bool(shown_out.dropped or shown_err.dropped),
    }


async def from_record(
    record: Recorder, run_id: str, reply_limit: int, offsets: Offsets
) -> ExecutionResult | None:
    """Return the result of a run that ended long ago, with its output from these offsets on; None where it has none.

    Raises:
        RequestRefused: There is no such run.
        AuditError: It cannot be read.
    """
    result = await record.result(run_id)
    if result is None or offsets == (0, 0):
        return result
    out, err = [_whole(await record.content(run_id, stream) or b"") for stream in ("stdout", "stderr")]
    parts = new_output(out, err, reply_limit, offsets, partial(read_on, result.run_id))
    return result.model_copy(
        update={**parts, "stdout_bytes": result.stdout_bytes, "stderr_bytes": result.stderr_bytes}
    )


def _whole(content: bytes) -> Capture:
    capture = Capture(len(content), 0)
    capture.write(content)
    return capture


class Flights:
    """All runs of one server, between entering and leaving it."""

    def __init__(self, executor: Executor, *, reply_within_seconds: float) -> None:
        self.executor = executor
        self.reply_within_seconds = reply_within_seconds
        self._tasks = anyio.create_task_group()
        self._going: set[Flight] = set()
        self._ended: OrderedDict[str, Flight] = OrderedDict()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._tasks.cancel_scope.shield = True
        self._tasks.cancel_scope.deadline = anyio.current_time() + STOP_SECONDS
        await self._tasks.__aexit__(None, None, None)

    def stop(self) -> None:
        """End every run that goes on, in order."""
        for flight in self._going:
            flight.stop()

    def begin(self, request: ExecutionRequest) -> Flight:
        """Begin a run and return at once."""
        flight = Flight(request.timeout_seconds or self.executor.policy.timeout_seconds)
        self._going.add(flight)
        self._tasks.start_soon(self._fly, flight, request)
        return flight

    def find(self, run_id: str) -> Flight | None:
        """Return a run that goes on, or one that ended lately."""
        for flight in self._going:
            if flight.run.run_id == run_id:
                return flight
        return self._ended.get(run_id)

    async def _fly(self, flight: Flight, request: ExecutionRequest) -> None:
        try:
            with flight.scope:
                flight.result = await self.executor.execute(request, flight.run)
        except SandboxError as error:
            flight.error = error
        except Exception:
            _log.exception("run %s failed", flight.run.run_id)
            flight.error = SandboxError(
                "the server met an error of its own; nothing is known of the program."
            )
        finally:
            self._going.discard(flight)
            if flight.run.run_id:
                self._ended[flight.run.run_id] = flight
            while len(self._ended) > KEPT:
                self._ended.popitem(last=False)
            flight.end()
