"""The host side of one run's talk with the agent: send the program, take its output, know its end.

Above: `executor`. Below: `guest.protocol`, and a `Sandbox`, whatever isolates it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import anyio
from anyio import to_thread

from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.guest.copies import Copy, batches
from mcp_sandbox.guest.progress import Progress
from mcp_sandbox.guest.protocol import (
    NO_ARTIFACTS,
    TOKEN_BYTES,
    ArtifactLimits,
    End,
    Frame,
    FrameReader,
    Kind,
    ProtocolViolation,
    Refusal,
    decode_artifact,
    decode_done,
    decode_end,
    decode_failed,
    decode_hello,
    decode_refusal,
    encode_data,
    encode_file,
    encode_kill,
    encode_request,
)
from mcp_sandbox.guest.terminal import AtTerminal, Seat, Size
from mcp_sandbox.guest.tunnel import Tunnels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

    from mcp_sandbox.model import Language
    from mcp_sandbox.sandbox import Sandbox

START_SECONDS = 60.0
"""Longest wait for the agent's first words: image layers may have to be read from a slow disk."""
COPY_BYTES_PER_SECOND = 1 << 20
"""Slowest way to an engine elsewhere that is waited for, where the workspace is copied."""
LAST_WORDS_SECONDS = 3.0
"""Longest wait, after the deadline, for the agent to end the program and send the rest."""
ARTIFACTS_SECONDS = 60.0
"""Longest time for all files to come out, once the program has ended."""
SEND_BYTES = 1 << 20
AGENT_GRACE_SECONDS = 2.0
"""The agent enforces the deadline too, this much later: a second line, should this side stall."""

_CODING_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")

_TUNNELLED = (Kind.OPENED, Kind.SENT, Kind.SENT_ALL, Kind.CREDIT, Kind.GONE)

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, for how long, and how much of its output to keep."""

    language: Language
    code: bytes
    timeout_seconds: float
    head_bytes: int
    """Bytes of each output stream that are passed on as they come."""
    tail_bytes: int
    """Bytes of the end of each output stream that are kept beyond that."""
    stdin: bytes = b""
    files: tuple[tuple[str, bytes], ...] = ()
    """Paths under the scratch folder, and contents, of files that the program finds there."""
    copies: tuple[Copy, ...] = ()
    """Files of the workspace, where that is copied."""
    artifacts: ArtifactLimits = NO_ARTIFACTS
    """Which files may come out; none by default."""
    environment: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """Variables of this run alone: where secrets are, if it has any."""
    terminal: Size | None = None
    """Of the terminal that it has instead of three streams; None where it has those."""


class Stop:
    """Ends one run early, in order: its processes die, its last output comes, its record is closed."""

    def __init__(self) -> None:
        self.requested = False
        self._scope: anyio.CancelScope | None = None

    @property
    def has_begun(self) -> bool:
        """Tell whether the program has started, so that there is something to stop in order."""
        return self._scope is not None

    def request(self) -> None:
        """End the run now, or as soon as it has started."""
        self.requested = True
        if self._scope:
            self._scope.cancel()

    def applies_to(self, scope: anyio.CancelScope) -> None:
        """Have a request cancel this scope."""
        self._scope = scope
        if self.requested:
            scope.cancel()


class OutputSink(Protocol):
    """Takes output as it comes."""

    def write(self, stream: Stream, data: bytes) -> None:
        """Take the next bytes of a stream."""
        ...

    def write_tail(self, stream: Stream, data: bytes) -> None:
        """Take bytes of the end of a stream, which may follow a gap."""
        ...


class ArtifactSink(Protocol):
    """Takes the files that come out, one after the other."""

    def begin(self, path: bytes, size: int) -> None:
        """Take a file's path, as the program chose it, and its size in bytes; exactly so many will follow."""
        ...

    def write(self, data: bytes) -> None:
        """Take the next bytes of that file."""
        ...

    def refused(self, path: bytes, reason: Refusal) -> None:
        """Learn that a file was kept back."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended, as far as this side knows it."""

    end: End | None
    """The agent's own account; None where there is none to trust."""
    deadline_passed: bool
    """True where its time was over, or it was stopped before."""
    lost_because: str = ""
    """Why there is no account, in our own words; empty where there is one."""
    artifacts_refused: int | None = None
    """Files that were kept back inside; None where the files did not all arrive."""


async def run_program(
    sandbox: Sandbox,
    program: Program,
    sink: OutputSink,
    artifacts: ArtifactSink | None = None,
    stop: Stop | None = None,
    answer: Callable[[ByteStream], Awaitable[None]] | None = None,
    progress: Progress | None = None,
    at_terminal: AtTerminal | None = None,
) -> Report:
    """Run one program in a never-used sandbox and return how it ended; `sink` gets its output as it comes.

    `answer` takes its connections to the outside, and `at_terminal` sits at its terminal, where it has these.

    Raises:
        RequestRefused: A file that goes in could not be written there; nothing ran.
    """
    session = _Session(sandbox, sink, progress or Progress())
    stop = stop or Stop()
    if answer is None and at_terminal is None:
        report = await _run(session, program, stop)
    else:
        report = await _run_with_tunnels(session, program, stop, answer, at_terminal)
    if report.end is None or artifacts is None or not program.artifacts.files:
        return report
    with anyio.move_on_after(ARTIFACTS_SECONDS), suppress(ProtocolViolation, anyio.EndOfStream):
        return replace(report, artifacts_refused=await session.collect(artifacts, program.artifacts))
    return report


async def _run_with_tunnels(
    session: _Session,
    program: Program,
    stop: Stop,
    answer: Callable[[ByteStream], Awaitable[None]] | None,
    at_terminal: AtTerminal | None,
) -> Report:
    """Run the program while its connections to the outside, and its terminal, are attended to."""
    refusal: RequestRefused | None = None
    report = Report(None, False, "it was not started")
    async with anyio.create_task_group() as tasks:
        tunnels = Tunnels(answer, tasks, session.send_later, stop.request)
        session.carry(tunnels)
        tasks.start_soon(session.send_on)
        seat = at_terminal and Seat(at_terminal, session.started, session.send_later, session.keep)
        if seat:
            tunnels.add(seat.terminal, seat.attend)
        try:
            report = await _run(session, program, stop)
        except RequestRefused as error:
            refusal = error  # raised below, where no task group wraps it
        if seat:
            await seat.leave(LAST_WORDS_SECONDS)
            if report.end:
                end = replace(report.end, stdout=seat.terminal.bytes, stdout_lines=seat.terminal.lines)
                report = replace(report, end=end)
        tasks.cancel_scope.cancel()
    if refusal:
        raise refusal
    return report


async def _run(session: _Session, program: Program, stop: Stop) -> Report:
    deadline_passed = False
    try:
        seconds = START_SECONDS + sum(copy.size for copy in program.copies) / COPY_BYTES_PER_SECOND
        with anyio.move_on_after(seconds) as starting:
            await session.start(program)
        if starting.cancelled_caught:
            return Report(None, False, f"the sandbox did not start the program within {seconds:.0f} s")
        with anyio.move_on_after(program.timeout_seconds) as deadline:
            session.progress.enter("running")
            stop.applies_to(deadline)
            return Report(await session.listen(), False)
        deadline_passed = True
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            # Broken where it ended by itself just now: its account is on the way.
            with suppress(anyio.BrokenResourceError):
                await session.kill()
            return Report(await session.listen(), True)
        return Report(None, True, "the agent did not answer after the deadline")
    except ProtocolViolation as violation:
        return Report(None, deadline_passed, f"{violation}; nothing after that was believed")
    except anyio.EndOfStream:
        return Report(None, deadline_passed, "the sandbox ended without a word")


class _Session:
    def __init__(self, sandbox: Sandbox, sink: OutputSink, progress: Progress) -> None:
        self.progress = progress
        self._sandbox = sandbox
        self._sink = sink
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._reader = FrameReader(self._token)
        self._tunnels: Tunnels | None = None
        self._unsent: deque[bytes] = deque()
        self._more = anyio.Event()
        self.started = anyio.Event()
        """Set once the program runs."""

    def carry(self, tunnels: Tunnels) -> None:
        """Let frames about connections go there."""
        self._tunnels = tunnels

    def keep(self, data: bytes) -> None:
        """Keep what the program's terminal showed."""
        self._sink.write("stdout", data)

    def send_later(self, frame: bytes) -> None:
        """Have a frame sent whole, after those before it; what waits is bounded by what may be under way."""
        self._unsent.append(frame)
        self._more.set()

    async def send_on(self) -> None:
        """Send frame after frame: one task alone, so that none is cut off or torn."""
        with suppress(anyio.BrokenResourceError):
            while True:
                while self._unsent:
                    await self._sandbox.send(self._unsent.popleft())
                self._more = anyio.Event()
                await self._more.wait()

    async def start(self, program: Program) -> None:
        """Send the program and wait until it runs."""
        with suppress(anyio.BrokenResourceError):  # it gave up before it had all: its reason is on the way
            await self._send(program)
        hello = await self._next()
        decode_hello(hello.payload)
        answer = await self._next()
        if answer.kind is Kind.FAILED:
            number, error = decode_failed(answer.payload)
            files = ["the program", *(f"the file {path}" for path, _ in program.files)]
            files += ["the workspace"] if program.copies else []
            raise RequestRefused(
                f"{files[min(number, len(files) - 1)]} could not be written in the sandbox: "
                f"{os.strerror(error).lower()}.",
                next_step="Choose a path that is free, and no more data than the scratch folder holds.",
            )
        self.started.set()

    async def _send(self, program: Program) -> None:
        if program.copies:
            await self._send_copies(program.copies)
        for path, content in program.files:
            await self._sandbox.send(encode_file(path))
            for start in range(0, len(content), SEND_BYTES):
                await self._sandbox.send(encode_data(content[start : start + SEND_BYTES]))
        deadline_ms = int((program.timeout_seconds + AGENT_GRACE_SECONDS) * 1000)
        await self._sandbox.send(
            encode_request(
                language=program.language,
                code=program.code,
                stdin=program.stdin,
                token=self._token,
                head=program.head_bytes,
                tail=program.tail_bytes,
                deadline_ms=deadline_ms,
                seekable=needs_seekable_source(program),
                artifacts=program.artifacts,
                environment=program.environment,
                terminal=program.terminal,
            )
        )

    async def _send_copies(self, copies: tuple[Copy, ...]) -> None:
        total = sum(copy.size for copy in copies)
        self.progress.enter("copying", total)
        reading = batches(copies)
        while batch := await to_thread.run_sync(next, reading, None, abandon_on_cancel=True):
            await self._sandbox.send(batch)
            self.progress.advance(min(len(batch), total - self.progress.done))  # names come in between
        self.progress.enter("starting")

    async def kill(self) -> None:
        """Have the agent end the program now."""
        if self._tunnels:
            self.send_later(encode_kill())
        else:
            await self._sandbox.send(encode_kill())

    async def listen(self) -> End:
        """Pass output on until the agent gives its account of the end."""
        while True:
            frame = await self._next()
            match frame.kind:
                case Kind.STDOUT:
                    self._sink.write("stdout", frame.payload)
                case Kind.STDERR:
                    self._sink.write("stderr", frame.payload)
                case Kind.STDOUT_TAIL:
                    self._sink.write_tail("stdout", frame.payload)
                case Kind.STDERR_TAIL:
                    self._sink.write_tail("stderr", frame.payload)
                case Kind.END:
                    return decode_end(frame.payload)
                case _ if self._tunnels and frame.kind in _TUNNELLED:
                    self._tunnels.take(frame)
                case _:
                    raise ProtocolViolation("a frame came out of turn")

    async def collect(self, sink: ArtifactSink, limits: ArtifactLimits) -> int:
        """Take the files that come out and return how many were kept back inside."""
        count, left = 0, limits.all_bytes
        self.progress.enter("collecting")
        while True:
            frame = await self._next()
            match frame.kind:
                case Kind.ARTIFACT:
                    incoming = decode_artifact(frame.payload)
                    count, left = count + 1, left - incoming.size
                    if count > limits.files or incoming.size > limits.each_bytes or left < 0:
                        raise ProtocolViolation("more files came than were asked for")
                    sink.begin(*incoming)
                    await self._take(sink, incoming.size)
                case Kind.ARTIFACT_REFUSED:
                    reason, path = decode_refusal(frame.payload)
                    sink.refused(path, reason)
                case Kind.DONE:
                    return decode_done(frame.payload)
                case _:
                    raise ProtocolViolation("a frame came out of turn")

    async def _take(self, sink: ArtifactSink, size: int) -> None:
        while size:
            frame = await self._next()
            size -= len(frame.payload)
            if frame.kind is not Kind.ARTIFACT_DATA or not frame.payload or size < 0:
                raise ProtocolViolation("a file came that is not as long as it said")
            sink.write(frame.payload)
            self.progress.advance(len(frame.payload))

    async def _next(self) -> Frame:
        while (frame := self._reader.next_frame()) is None:
            self._reader.feed(await self._sandbox.receive())
        return frame


def needs_seekable_source(program: Program) -> bool:
    """Tell whether Python will seek in its source: it does where that names an encoding not spelt utf-8."""
    if program.language != "python":
        return False
    lines = program.code.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n", 2)
    for cookie in filter(None, map(_CODING_COOKIE.match, lines[:2])):
        name = cookie[1].lower().replace(b"_", b"-")  # utf8 is not among what Python takes for utf-8 here
        return name != b"utf-8" and not name.startswith(b"utf-8-")
    return False
