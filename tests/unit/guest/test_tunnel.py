"""Connections carried over the run's own stream: whole, bounded both ways, and gone with the run."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.guest.protocol import MAX_CONNECTIONS, WINDOW
from mcp_sandbox.guest.session import Program, Report, run_program
from tests.fakes import FakeEngine, Guest, plays
from tests.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

    from mcp_sandbox.guest.session import Stream

pytestmark = pytest.mark.anyio

PROGRAM = Program(
    language="python", code=b"import requests", timeout_seconds=20, head_bytes=1000, tail_bytes=100
)


class Ignored:
    def write(self, stream: Stream, data: bytes) -> None:
        pass

    def write_tail(self, stream: Stream, data: bytes) -> None:
        pass


class Inside:
    """The agent's half of the connections of one run."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.received: dict[int, bytes] = defaultdict(bytes)
        self.credit: dict[int, int] = defaultdict(lambda: WINDOW)
        self.ended: set[int] = set()
        self.closed: set[int] = set()

    async def open(self, number: int) -> None:
        await self.guest.say(b"c", struct.pack(">I", number))

    async def send(self, number: int, data: bytes) -> None:
        await self.guest.say(b"w", struct.pack(">I", number) + data)
        self.credit[number] -= len(data)

    async def send_all(self, number: int) -> None:
        await self.guest.say(b"q", struct.pack(">I", number))

    async def grant(self, number: int, count: int) -> None:
        await self.guest.say(b"v", struct.pack(">II", number, count))

    async def hang_up(self, number: int) -> None:
        await self.guest.say(b"k", struct.pack(">I", number))

    async def hear(self) -> int:
        """Take the next frame and return which connection it is about."""
        kind, payload = await self.guest.hear()
        number, rest = struct.unpack(">I", payload[:4])[0], payload[4:]
        if kind == b"W":
            self.received[number] += rest
        elif kind == b"V":
            self.credit[number] += struct.unpack(">I", rest)[0]
        elif kind == b"Q":
            self.ended.add(number)
        elif kind == b"X":
            self.closed.add(number)
        else:
            raise AssertionError(kind)
        return int(number)

    async def hear_to_the_close(self, *numbers: int) -> None:
        while not self.closed >= set(numbers):
            await self.hear()


async def run(
    program: Callable[[Inside], Awaitable[None]], answer: Callable[[ByteStream], Awaitable[None]]
) -> Report:
    async def script(guest: Guest) -> None:
        await program(Inside(guest))
        await guest.exit()

    with anyio.fail_after(30):
        async with FakeEngine(plays(script)) as engine, engine.launch(SPEC) as sandbox:
            return await run_program(sandbox, PROGRAM, Ignored(), answer=answer)


async def echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)
    await stream.send_eof()


async def test_what_goes_out_comes_back_and_ends() -> None:
    seen: list[Inside] = []

    async def program(inside: Inside) -> None:
        seen.append(inside)
        await inside.open(1)
        await inside.send(1, b"hello ")
        await inside.send(1, b"there")
        await inside.send_all(1)
        await inside.hear_to_the_close(1)

    report = await run(program, echo)
    assert report.end is not None
    assert seen[0].received[1] == b"hello there"
    assert seen[0].ended == {1}


async def test_connections_do_not_mix() -> None:
    seen: list[Inside] = []

    async def program(inside: Inside) -> None:
        seen.append(inside)
        for number in range(1, 21):
            await inside.open(number)
        for _ in range(3):
            for number in range(1, 21):
                await inside.send(number, f"{number};".encode())
        for number in range(1, 21):
            await inside.send_all(number)
        await inside.hear_to_the_close(*range(1, 21))

    await run(program, echo)
    assert seen[0].received == {number: f"{number};".encode() * 3 for number in range(1, 21)}


async def test_megabytes_pass_within_the_window() -> None:
    content = bytes(range(256)) * (1 << 12)

    async def program(inside: Inside) -> None:
        await inside.open(1)
        left = content
        while len(inside.received[1]) < len(content):
            while left and inside.credit[1]:
                count = min(inside.credit[1], 60_000, len(left))
                await inside.send(1, left[:count])
                left = left[count:]
            before = len(inside.received[1])
            await inside.hear()
            if taken := len(inside.received[1]) - before:
                await inside.grant(1, taken)
        await inside.send_all(1)
        await inside.hear_to_the_close(1)
        assert inside.received[1] == content

    assert (await run(program, echo)).end is not None


async def test_a_program_that_takes_nothing_is_sent_no_more_than_the_window() -> None:
    sent = 0

    async def pour(stream: ByteStream) -> None:
        nonlocal sent
        while True:
            await stream.send(b"x" * 10_000)
            sent += 10_000

    async def program(inside: Inside) -> None:
        await inside.open(1)
        while len(inside.received[1]) < WINDOW:
            await inside.hear()
        await anyio.wait_all_tasks_blocked()

    report = await run(program, pour)
    assert report.end is not None
    assert sent <= WINDOW


@pytest.mark.parametrize("gives_up_first", [False, True])
async def test_what_the_other_side_closes_is_closed_inside(gives_up_first: bool) -> None:
    async def answer(stream: ByteStream) -> None:
        if not gives_up_first:
            await stream.receive()
        await stream.send(b"no")

    async def program(inside: Inside) -> None:
        await inside.open(1)
        await inside.send(1, b"hello")
        await inside.hear_to_the_close(1)
        assert inside.received[1] == b"no"

    assert (await run(program, answer)).end is not None


async def test_a_connection_that_the_program_drops_is_no_longer_served() -> None:
    gone = anyio.Event()

    async def answer(stream: ByteStream) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()

    async def program(inside: Inside) -> None:
        await inside.open(1)
        await inside.hang_up(1)
        await gone.wait()

    assert (await run(program, answer)).end is not None


async def test_a_program_may_open_and_drop_without_end() -> None:
    served = 0

    async def slow(stream: ByteStream) -> None:
        nonlocal served
        served += 1
        await anyio.sleep_forever()

    async def program(inside: Inside) -> None:
        for number in range(1, 10 * MAX_CONNECTIONS):
            await inside.open(number)
            await inside.hang_up(number)

    report = await run(program, slow)
    assert report.end is not None


async def test_connections_end_with_the_run() -> None:
    ended = 0

    async def answer(stream: ByteStream) -> None:
        nonlocal ended
        try:
            await anyio.sleep_forever()
        finally:
            ended += 1

    async def program(inside: Inside) -> None:
        for number in range(1, 6):
            await inside.open(number)
        await anyio.wait_all_tasks_blocked()

    assert (await run(program, answer)).end is not None
    assert ended == 5


async def test_an_answer_that_fails_ends_the_run() -> None:
    async def answer(stream: ByteStream) -> None:
        raise OSError("the record cannot be written")

    async def script(guest: Guest) -> None:
        await Inside(guest).open(1)
        while True:
            kind, _ = await guest.hear()
            if kind == b"K":
                break
        await guest.exit(reason="killed", exit_code=None, signal=9)

    with anyio.fail_after(30):
        async with FakeEngine(plays(script)) as engine, engine.launch(SPEC) as sandbox:
            report = await run_program(sandbox, PROGRAM, Ignored(), answer=answer)
    assert report.end is not None
    assert report.end.reason == "killed"


def number(value: int) -> bytes:
    return struct.pack(">I", value)


@pytest.mark.parametrize(
    "frames",
    [
        [(b"c", number(1)), (b"c", number(1))],
        [(b"c", number(value)) for value in range(1, 2 * MAX_CONNECTIONS + 10)],
        [(b"c", number(1)), *[(b"w", number(1) + b"x" * 60_000)] * 5],
        [(b"c", number(1)), (b"q", number(1)), (b"w", number(1) + b"more")],
        [(b"c", number(1)), (b"v", number(1) + number(1))],
        [(b"c", number(1)), (b"v", number(1) + number(0xFFFFFFFF))],
        [(b"c", number(1)), (b"v", number(1))],
        [(b"c", b"")],
        [(b"c", b"\0")],
        [(b"w", b"")],
    ],
    ids=[
        *("opened twice", "too many", "beyond the window", "after the last", "credit for nothing"),
        *("credit without end", "credit of no size", "no number", "half a number", "nothing"),
    ],
)
async def test_what_the_agent_would_not_send_ends_the_run(frames: list[tuple[bytes, bytes]]) -> None:
    async def never(stream: ByteStream) -> None:
        await anyio.sleep_forever()

    async def program(inside: Inside) -> None:
        for kind, payload in frames:
            await inside.guest.say(kind, payload)

    report = await run(program, never)
    assert report.end is None
    assert "nothing after that was believed" in report.lost_because


async def test_a_run_without_egress_carries_nothing() -> None:
    async def script(guest: Guest) -> None:
        await guest.say(b"c", number(1))
        await guest.exit()

    with anyio.fail_after(30):
        async with FakeEngine(plays(script)) as engine, engine.launch(SPEC) as sandbox:
            report = await run_program(sandbox, PROGRAM, Ignored())
    assert report.end is None
    assert "out of turn" in report.lost_because
