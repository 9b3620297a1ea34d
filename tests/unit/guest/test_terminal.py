"""A terminal carried over the run's own stream: both ways, bounded, kept for the record, and never waited for."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.guest import session
from mcp_sandbox.guest.protocol import WINDOW
from mcp_sandbox.guest.session import Program, Report, run_program
from mcp_sandbox.guest.terminal import Size
from tests.fakes import FakeEngine, Guest, plays
from tests.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_sandbox.guest.session import Stream
    from mcp_sandbox.guest.terminal import AtTerminal, TerminalStream

pytestmark = pytest.mark.anyio

PROGRAM = Program(
    language="shell",
    code=b"exec bash",
    timeout_seconds=20,
    head_bytes=1000,
    tail_bytes=100,
    terminal=Size(24, 80),
)
TERMINAL = struct.pack(">I", 0)


@dataclass
class Kept:
    stdout: bytes = b""

    def write(self, stream: Stream, data: bytes) -> None:
        assert stream == "stdout"
        self.stdout += data

    def write_tail(self, stream: Stream, data: bytes) -> None:
        raise AssertionError


async def run(program: Callable[[Guest], Awaitable[None]], at_terminal: AtTerminal) -> tuple[Report, bytes]:
    kept = Kept()
    with anyio.fail_after(30):
        async with FakeEngine(plays(program)) as engine, engine.launch(SPEC) as sandbox:
            report = await run_program(sandbox, PROGRAM, kept, at_terminal=at_terminal)
    return report, kept.stdout


async def show(guest: Guest, data: bytes) -> None:
    await guest.say(b"w", TERMINAL + data)


async def read_all(terminal: TerminalStream) -> None:
    async for _ in terminal:
        pass


async def test_keys_go_in_and_the_screen_comes_out_and_is_kept() -> None:
    seen = b""

    async def person(terminal: TerminalStream) -> None:
        nonlocal seen
        await terminal.send(b"ls\n")
        terminal.resize(Size(50, 132))
        async for data in terminal:
            seen += data

    async def program(guest: Guest) -> None:
        assert guest.asked.fields["terminal"] == "24 80"
        assert await guest.hear() == (b"W", TERMINAL + b"ls\n")
        assert await guest.hear() == (b"T", struct.pack(">HH", 50, 132))
        await show(guest, b"a.csv\r\n")
        await show(guest, b"b.csv\r\n")
        await guest.exit(stdout=0)

    report, kept = await run(program, person)
    assert seen == kept == b"a.csv\r\nb.csv\r\n"
    assert report.end is not None
    assert (report.end.stdout, report.end.stdout_lines) == (14, 2)  # the agent's own streams had nothing


async def test_a_run_without_one_asks_for_none() -> None:
    async def program(guest: Guest) -> None:
        assert "terminal" not in guest.asked.fields
        await guest.exit()

    with anyio.fail_after(30):
        async with FakeEngine(plays(program)) as engine, engine.launch(SPEC) as sandbox:
            plain = Program(language="shell", code=b":", timeout_seconds=9, head_bytes=9, tail_bytes=9)
            assert (await run_program(sandbox, plain, Kept())).end is not None


async def test_nothing_is_sent_to_it_before_the_program_runs() -> None:
    async def person(terminal: TerminalStream) -> None:
        await terminal.send(b"early")
        await read_all(terminal)

    async def script(guest: Guest) -> None:
        kind, _ = await guest.hear()
        assert kind == b"W"  # `take_request` would have met it before
        await guest.exit()

    report, _ = await run(script, person)
    assert report.end is not None


async def test_a_person_who_does_not_read_is_shown_no_more_than_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LAST_WORDS_SECONDS", 0.05)

    async def stuck(terminal: TerminalStream) -> None:
        await anyio.sleep_forever()

    async def program(guest: Guest) -> None:
        for _ in range(WINDOW // 32768):
            await show(guest, b"x" * 32768)
        with anyio.move_on_after(0.05) as waited:
            await guest.hear()
        assert waited.cancelled_caught  # no credit came
        await guest.exit()

    report, kept = await run(program, stuck)
    assert report.end is not None
    assert len(kept) == WINDOW


async def test_a_program_that_takes_no_keys_is_sent_no_more_than_the_window() -> None:
    sent = 0

    async def pastes(terminal: TerminalStream) -> None:
        nonlocal sent
        while True:
            await terminal.send(b"x" * 10_000)
            sent += 10_000

    async def program(guest: Guest) -> None:
        heard = 0
        while heard < WINDOW:
            _, payload = await guest.hear()
            heard += len(payload) - 4
        await anyio.wait_all_tasks_blocked()
        await guest.exit()

    await run(program, pastes)
    assert sent <= WINDOW


@pytest.mark.parametrize(
    "frames",
    [
        [(b"w", TERMINAL + b"x" * 60_000)] * 5,
        [(b"q", TERMINAL), (b"w", TERMINAL + b"more")],
        [(b"v", TERMINAL + struct.pack(">I", 1))],
        [(b"c", TERMINAL)],
        [(b"c", struct.pack(">I", 1))],
    ],
    ids=["beyond the window", "after the last", "credit for nothing", "opened again", "a way to the outside"],
)
async def test_what_the_agent_would_not_send_ends_the_run(
    frames: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LAST_WORDS_SECONDS", 0.05)

    async def stuck(terminal: TerminalStream) -> None:
        await anyio.sleep_forever()

    async def program(guest: Guest) -> None:
        for kind, payload in frames:
            await guest.say(kind, payload)
        await guest.exit()

    report, _ = await run(program, stuck)
    assert report.end is None
    assert "nothing after that was believed" in report.lost_because


async def test_what_was_shown_last_is_read_though_the_sandbox_is_gone() -> None:
    seen = b""

    async def slow(terminal: TerminalStream) -> None:
        nonlocal seen
        while True:
            try:
                seen += await terminal.receive(2)
            except anyio.EndOfStream:
                return
            await anyio.lowlevel.checkpoint()

    async def program(guest: Guest) -> None:
        await show(guest, b"last words")

    report, kept = await run(program, slow)
    assert report.lost_because == "the sandbox ended without a word"
    assert seen == kept == b"last words"


async def test_whoever_hangs_up_hangs_up_inside() -> None:
    async def leaves(terminal: TerminalStream) -> None:
        pass

    async def program(guest: Guest) -> None:
        assert await guest.hear() == (b"X", TERMINAL)
        await guest.exit(exit_code=None, signal=1)

    report, _ = await run(program, leaves)
    assert report.end is not None
    assert report.end.signal == 1


async def test_a_terminal_that_fails_ends_the_run() -> None:
    async def fails(terminal: TerminalStream) -> None:
        raise OSError("stale file handle")

    async def program(guest: Guest) -> None:
        while (await guest.hear())[0] != b"K":
            pass
        await guest.exit(reason="killed", exit_code=None, signal=9)

    report, _ = await run(program, fails)
    assert report.end is not None
    assert report.end.reason == "killed"
