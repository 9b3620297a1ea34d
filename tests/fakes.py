"""An engine, a guest and a record in this process, for the faults that real ones do not make on demand.

They fulfil the contracts (`sandbox.Engine`, `sandbox.Sandbox`, `audit.store.Recorder`), and the engine is
held to the same promises as the real ones by `tests/conformance`. The guest speaks the real protocol byte by
byte, from its own account of it: it imports nothing of the host side's.
"""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Self

import anyio

from mcp_sandbox.audit.store import NOBODY, Entry
from mcp_sandbox.sandbox import Ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from mcp_sandbox.audit.query import RunSummary
    from mcp_sandbox.audit.record import Caller, Content, Opening
    from mcp_sandbox.errors import SandboxError
    from mcp_sandbox.model import ExecutionResult
    from mcp_sandbox.sandbox import SandboxSpec

    Script = Callable[["Process"], Awaitable[None]]
    """Plays the first process of a sandbox: returning is its exit."""

_UNREAD_CHUNKS = 16
_DIAGNOSTICS_BYTES = 4096


class Process:
    """The first process of a sandbox, seen from inside."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.ending = Ending(out_of_memory=False, exit_code=0)
        """What the engine will tell of its end."""
        self.complaints = b""
        self.to_stdin, self._stdin = anyio.create_memory_object_stream[bytes](_UNREAD_CHUNKS)
        self._stdout, self.from_stdout = anyio.create_memory_object_stream[bytes](_UNREAD_CHUNKS)

    async def read(self) -> bytes:
        """Return what came on stdin; empty when the host side has let go."""
        try:
            return await self._stdin.receive()
        except anyio.EndOfStream:
            return b""

    async def write(self, data: bytes) -> None:
        """Write to stdout."""
        await self._stdout.send(data)

    def complain(self, data: bytes) -> None:
        """Write to stderr."""
        self.complaints = (self.complaints + data)[:_DIAGNOSTICS_BYTES]

    def close_stdin(self) -> None:
        """Take no more input."""
        self._stdin.close()

    def end(self) -> None:
        """Close what it held open, as the kernel does."""
        self._stdin.close()
        self._stdout.close()


class FakeSandbox:
    """A process, seen from the host side."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.alive = True
        self.facts = {"engine": "fake", "runtime": "fake", "image": "sha256:fake"}
        self._process = process

    async def send(self, data: bytes) -> None:
        """Write to its stdin."""
        try:
            await self._process.to_stdin.send(bytes(data))
        except anyio.ClosedResourceError:
            raise anyio.BrokenResourceError from None

    async def receive(self) -> bytes:
        """Return what it wrote to stdout."""
        try:
            return await self._process.from_stdout.receive()
        except anyio.ClosedResourceError:
            raise anyio.EndOfStream from None

    @property
    def diagnostics(self) -> bytes:
        """Head of what it wrote to stderr."""
        return self._process.complaints

    async def ending(self) -> Ending:
        """Tell of its end."""
        return self._process.ending


class FakeEngine:
    """Plays a script as the first process of each sandbox."""

    def __init__(
        self,
        script: Script,
        *,
        refuses: Callable[[SandboxSpec], SandboxError | None] = lambda spec: None,
        until: anyio.Event | None = None,
        events: list[str] | None = None,
    ) -> None:
        self._script = script
        self._refuses = refuses
        self._until = until
        self.events = events if events is not None else []
        """What happened, in order; shared with other fakes where their order matters."""
        self.alive: set[str] = set()
        self.most_alive = 0
        self.specs: list[SandboxSpec] = []
        """What was launched, or tried to be."""
        self.launching = anyio.Event()
        """Set when a launch has begun; it goes on when `until` is set."""
        self.removal = anyio.Event()
        """Set when a sandbox has gone."""
        self._numbers = count(1)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._processes = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._processes.__aenter__()
        self.events.append("engine entered")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._processes.cancel_scope.shield = True
        await self._processes.__aexit__(None, None, None)
        self.events.append("engine left")
        return None

    @asynccontextmanager
    async def launch(self, spec: SandboxSpec) -> AsyncIterator[FakeSandbox]:
        """Yield a sandbox in which the script plays."""
        self.specs.append(spec)
        self.launching.set()
        if self._until:
            await self._until.wait()
        if error := self._refuses(spec):
            raise error
        process = Process(spec)
        sandbox = FakeSandbox(f"fake-{next(self._numbers)}", process)
        scope = self._scopes[sandbox.name] = anyio.CancelScope()
        self.alive.add(sandbox.name)
        self.most_alive = max(self.most_alive, len(self.alive))
        self._processes.start_soon(self._play, process, sandbox, scope)
        self.events.append("launched")
        try:
            yield sandbox
        finally:
            scope.cancel()
            process.end()
            process.to_stdin.close()
            process.from_stdout.close()
            sandbox.alive = False
            self.alive.remove(sandbox.name)
            self.events.append("removed")
            self.removal.set()

    def kill(self, name: str) -> None:
        """End a sandbox's first process, as a host does that is short of memory."""
        self._scopes[name].cancel()

    async def _play(self, process: Process, sandbox: FakeSandbox, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._script(process)
        except anyio.BrokenResourceError:
            pass  # it wrote to nobody: the kernel's SIGPIPE
        finally:
            process.end()
            sandbox.alive = False


@dataclass(frozen=True)
class Asked:
    """What the host side asked of a guest."""

    fields: Mapping[str, str]
    code: bytes
    stdin: bytes
    files: Mapping[str, bytes]

    @property
    def token(self) -> bytes:
        """What marks a frame as the agent's."""
        return bytes.fromhex(self.fields["token"])


class Guest:
    """The agent's half of the protocol: true by default, and able to lie."""

    NO_TOKEN = bytes(16)
    END: Mapping[str, object] = {
        "reason": "exited",
        "exit_code": 0,
        "stdout": 0,
        "stderr": 0,
        "duration_ns": 15_000_000,
        "cpu_us": 12_000,
        "peak_bytes": 9 << 20,
        "oom_kills": 0,
    }

    def __init__(self, process: Process) -> None:
        self.process = process
        self.token = self.NO_TOKEN
        self.asked = Asked({}, b"", b"", {})
        self._inbox = b""

    @staticmethod
    def frame(token: bytes, kind: bytes, payload: bytes) -> bytes:
        """Return the bytes of a frame."""
        return token + kind + struct.pack(">I", len(payload)) + payload

    @staticmethod
    def fields(**fields: object) -> bytes:
        """Return a payload of fields; those that are None are left out."""
        return "".join(f"{name} {value}\n" for name, value in fields.items() if value is not None).encode()

    async def say(self, kind: bytes, payload: bytes = b"") -> None:
        """Send one frame."""
        await self.process.write(self.frame(self.token, kind, payload))

    async def hear(self) -> tuple[bytes, bytes]:
        """Return kind and payload of the next frame; the host side's going away ends the process."""
        while len(self._inbox) < 5 or len(self._inbox) < 5 + struct.unpack(">I", self._inbox[1:5])[0]:
            data = await self.process.read()
            if not data:
                raise anyio.BrokenResourceError
            self._inbox += data
        kind, end = self._inbox[:1], 5 + struct.unpack(">I", self._inbox[1:5])[0]
        payload, self._inbox = self._inbox[5:end], self._inbox[end:]
        return kind, payload

    async def greet(self, *, protocol: object = 1) -> None:
        """Say hello, as a waiting agent does before anything is asked of it."""
        await self.say(b"h", self.fields(protocol=protocol, python="3.11.2"))

    async def take_request(self) -> None:
        """Take the files and the program."""
        files: dict[str, bytes] = {}
        path = ""
        while True:
            kind, payload = await self.hear()
            if kind == b"F":
                path = payload.decode()
                files[path] = b""
            elif kind == b"D":
                files[path] += payload
            else:
                break
        assert kind == b"R"
        header, _, body = payload.partition(b"\n\n")
        fields = dict(line.split(" ", 1) for line in header.decode("ascii").split("\n"))
        length = int(fields["code"])
        self.asked = Asked(fields, body[:length], body[length:], files)

    async def start(self) -> None:
        """Say that the program starts; what follows carries the token."""
        await self.say(b"s")
        self.token = self.asked.token

    async def print(self, data: bytes) -> None:
        """Pass on what the program wrote to stdout."""
        await self.say(b"o", data)

    async def print_error(self, data: bytes) -> None:
        """Pass on what the program wrote to stderr."""
        await self.say(b"e", data)

    async def exit(self, **changes: object) -> None:
        """Give the account of the program's end, changed as told; None leaves a field out."""
        await self.say(b"x", self.fields(**{**self.END, **changes}))

    async def come_out(self, path: bytes, content: bytes) -> None:
        """Send a file."""
        await self.say(b"a", b"%d " % len(content) + path)
        for start in range(0, len(content), 64 << 10):
            await self.say(b"d", content[start : start + (64 << 10)])

    async def killed(self) -> None:
        """Go on when the order comes to end the program."""
        kind, _ = await self.hear()
        assert kind == b"K"

    async def hang(self) -> None:
        """Do nothing more, whatever comes."""
        await anyio.sleep_forever()


def plays(program: Callable[[Guest], Awaitable[None]]) -> Script:
    """Return the script of an agent that greets, takes the program and starts it; then `program` goes on."""

    async def script(process: Process) -> None:
        guest = Guest(process)
        await guest.greet()
        await guest.take_request()
        await guest.start()
        await program(guest)

    return script


class FakeRecord:
    """Keeps what it is told, in this process, or cannot."""

    def __init__(
        self,
        *,
        broken: SandboxError | None = None,
        folder: Path | None = None,
        events: list[str] | None = None,
    ) -> None:
        self._broken = broken
        self._folder = folder
        self.events = events if events is not None else []
        self.openings: list[Opening] = []
        self.entries: list[Entry] = []
        self.calls_refused: list[tuple[Opening | Mapping[str, object], SandboxError]] = []
        self.files: dict[str, bytes] = {}
        """Files that came out, by their role."""

    @asynccontextmanager
    async def entry(self, opening: Opening) -> AsyncIterator[Entry]:
        """Yield an entry."""
        if self._broken:
            raise self._broken
        entry = Entry(f"run-{len(self.entries) + 1}")
        self.openings.append(opening)
        self.entries.append(entry)
        self.events.append("recorded")
        try:
            yield entry
        except BaseException as error:
            self.events.append(f"closed after {type(error).__name__}")
            raise
        self.events.append("closed")

    @property
    def results(self) -> list[ExecutionResult | None]:
        """What each run came to."""
        return [entry.result for entry in self.entries]

    async def refused(
        self, request: Opening | Mapping[str, object], error: SandboxError, caller: Caller = NOBODY
    ) -> str:
        """Keep a call that ran nothing."""
        self.calls_refused.append((request, error))
        return f"refused-{len(self.calls_refused)}"

    def staging(self, run_id: str) -> Path | None:
        """Return the test's own folder, if it gave one."""
        return self._folder and self._folder / run_id

    async def adopt(self, artifacts: Sequence[Content]) -> None:
        """Keep the content of each file."""
        self.events.append("files kept")
        for content in artifacts:
            assert content.file is not None
            self.files[content.role] = content.file.read_bytes()

    async def recent(self, limit: int) -> Sequence[RunSummary]:
        """Return nothing: nobody asks a fake what was."""
        return ()

    async def content(
        self, run_id: str, role: str, offset: int = 0, limit: int | None = None
    ) -> bytes | None:
        """Return a file that came out, or a part of it."""
        found = self.files.get(role)
        return found and found[offset : None if limit is None else offset + limit]

    async def size(self, run_id: str, role: str) -> int | None:
        """Return the bytes of a file that came out."""
        return len(self.files[role]) if role in self.files else None

    async def result(self, prefix: str) -> ExecutionResult | None:
        """Return what that run came to."""
        return next((entry.result for entry in self.entries if entry.run_id == prefix), None)

    async def open(self) -> None:
        """Fail now, if at all."""
        if self._broken:
            raise self._broken

    async def aclose(self) -> None:
        """End."""
        self.events.append("sealed")
