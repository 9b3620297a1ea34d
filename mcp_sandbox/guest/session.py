"""The host side of one run's talk with the agent: send the program, take its output, know its end.

Above: `executor`. Below: `guest.protocol`, and a `Sandbox`, whatever isolates it.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import anyio

from mcp_sandbox.guest.protocol import (
    TOKEN_BYTES,
    End,
    Frame,
    FrameReader,
    Kind,
    ProtocolViolation,
    decode_end,
    decode_hello,
    encode_kill,
    encode_request,
)

if TYPE_CHECKING:
    from mcp_sandbox.model import Language
    from mcp_sandbox.sandbox import Sandbox

START_SECONDS = 60.0
"""Longest wait for the agent's first words: image layers may have to be read from a slow disk."""
LAST_WORDS_SECONDS = 3.0
"""Longest wait, after the deadline, for the agent to end the program and send the rest."""
AGENT_GRACE_SECONDS = 2.0
"""The agent enforces the deadline too, this much later: a second line, should this side stall."""

_CODING_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")
_UTF_8 = {b"utf-8", b"utf8", b"utf-8-sig", b"utf_8"}

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


class OutputSink(Protocol):
    """Takes output as it comes."""

    def write(self, stream: Stream, data: bytes) -> None:
        """Take the next bytes of a stream."""
        ...

    def write_tail(self, stream: Stream, data: bytes) -> None:
        """Take bytes of the end of a stream, which may follow a gap."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """How a run ended, as far as this side knows it."""

    end: End | None
    """The agent's own account; None where there is none to trust."""
    deadline_passed: bool
    lost_because: str = ""
    """Why there is no account, in our own words; empty where there is one."""


async def run_program(sandbox: Sandbox, program: Program, sink: OutputSink) -> Report:
    """Run one program in a never-used sandbox and return how it ended; `sink` gets its output as it comes."""
    session = _Session(sandbox, sink)
    deadline_passed = False
    try:
        with anyio.move_on_after(START_SECONDS) as starting:
            await session.start(program)
        if starting.cancelled_caught:
            return Report(None, False, f"the sandbox did not start the program within {START_SECONDS:.0f} s")
        with anyio.move_on_after(program.timeout_seconds):
            return Report(await session.listen(), False)
        deadline_passed = True
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await sandbox.send(encode_kill())
            return Report(await session.listen(), True)
        return Report(None, True, "the agent did not answer after the deadline")
    except ProtocolViolation as violation:
        return Report(None, deadline_passed, f"{violation}; nothing after that was believed")
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return Report(None, deadline_passed, "the sandbox ended without a word")


class _Session:
    def __init__(self, sandbox: Sandbox, sink: OutputSink) -> None:
        self._sandbox = sandbox
        self._sink = sink
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._reader = FrameReader(self._token)
        self._frames: list[Frame] = []

    async def start(self, program: Program) -> None:
        """Send the program and wait until it runs."""
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
            )
        )
        hello = await self._next()
        decode_hello(hello.payload)
        if (await self._next()).kind is not Kind.STARTED:
            raise ProtocolViolation("the program was not started")

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
                case _:
                    raise ProtocolViolation("a frame came out of turn")

    async def _next(self) -> Frame:
        while not self._frames:
            self._frames = self._reader.feed(await self._sandbox.receive())
            self._frames.reverse()
        return self._frames.pop()


def needs_seekable_source(program: Program) -> bool:
    """Tell whether Python will seek in its source: it does where the source declares another encoding."""
    if program.language != "python":
        return False
    for line in program.code[:4096].replace(b"\r", b"\n").split(b"\n")[:3]:
        if cookie := _CODING_COOKIE.match(line):
            return cookie[1].lower() not in _UTF_8
    return False
