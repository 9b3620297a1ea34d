"""A run's talk with a guest, honest, hostile, hanging or dead: what is known of it in the end."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.guest.protocol import ArtifactLimits
from mcp_sandbox.guest.session import Program, Report, Stop, run_program
from tests.fakes import FakeEngine, Guest, plays
from tests.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_sandbox.guest.session import Stream
    from tests.fakes import Process, Script

pytestmark = pytest.mark.anyio

PROGRAM = Program(language="python", code=b"print(1)", timeout_seconds=30, head_bytes=1000, tail_bytes=100)
BRIEF = replace(PROGRAM, timeout_seconds=0.05)
WANTS_FILES = replace(PROGRAM, artifacts=ArtifactLimits(files=3, each_bytes=100, all_bytes=150))
FORGED = b"?" * 16


@dataclass
class Told:
    """All that the session passed on."""

    stdout: bytes = b""
    stderr: bytes = b""
    tails: dict[str, bytes] = field(default_factory=dict)
    files: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    kept_back: list[tuple[bytes, str]] = field(default_factory=list)

    def write(self, stream: Stream, data: bytes) -> None:
        if stream == "stdout":
            self.stdout += data
        else:
            self.stderr += data

    def write_tail(self, stream: Stream, data: bytes) -> None:
        self.tails[stream] = self.tails.get(stream, b"") + data


class ToldFiles:
    def __init__(self, told: Told) -> None:
        self.told = told

    def begin(self, path: bytes, size: int) -> None:
        self.told.files.append((path, size, b""))

    def write(self, data: bytes) -> None:
        path, size, content = self.told.files[-1]
        self.told.files[-1] = (path, size, content + data)

    def refused(self, path: bytes, reason: str) -> None:
        self.told.kept_back.append((path, reason))


async def run(script: Script, program: Program = PROGRAM, stop: Stop | None = None) -> tuple[Report, Told]:
    told = Told()
    with anyio.fail_after(10):
        async with FakeEngine(script) as engine, engine.launch(SPEC) as sandbox:
            report = await run_program(sandbox, program, told, ToldFiles(told), stop)
    return report, told


async def run_after_start(
    program: Callable[[Guest], Awaitable[None]], asked: Program = PROGRAM, stop: Stop | None = None
) -> tuple[Report, Told]:
    return await run(plays(program), asked, stop)


async def test_output_and_the_end_arrive_as_the_agent_told_them() -> None:
    async def program(guest: Guest) -> None:
        await guest.print(b"one\n")
        await guest.print_error(b"two\n")
        await guest.print(b"three\n")
        await guest.say(b"O", b"the end\n")
        await guest.say(b"E", b"the error's end\n")
        await guest.exit(exit_code=3, stdout=1000, stderr=20)

    report, told = await run_after_start(program)
    assert report.end is not None
    assert (report.end.reason, report.end.exit_code, report.end.signal) == ("exited", 3, None)
    assert (report.end.stdout, report.end.stderr) == (1000, 20)
    assert (report.deadline_passed, report.lost_because) == (False, "")
    assert (told.stdout, told.stderr) == (b"one\nthree\n", b"two\n")
    assert told.tails == {"stdout": b"the end\n", "stderr": b"the error's end\n"}


async def test_the_guest_gets_what_was_asked() -> None:
    program = replace(
        WANTS_FILES,
        language="shell",
        code=b"cat \0\n\n",
        stdin=b"\n\nin",
        timeout_seconds=2,
        files=(("a.txt", b"A" * 3_000_000), ("b/empty", b"")),
    )
    seen: list[Guest] = []

    async def look(guest: Guest) -> None:
        seen.append(guest)
        await guest.exit()
        await guest.say(b"z", guest.fields(refused=0))

    await run_after_start(look, program)
    asked = seen[0].asked
    assert (asked.code, asked.stdin) == (b"cat \0\n\n", b"\n\nin")
    assert asked.files == {"a.txt": b"A" * 3_000_000, "b/empty": b""}
    assert asked.fields["language"] == "shell"
    assert asked.fields["head"] == "1000"
    assert asked.fields["tail"] == "100"
    assert asked.fields["seekable"] == "0"
    assert (asked.fields["artifacts"], asked.fields["artifact_bytes"], asked.fields["artifacts_bytes"]) == (
        "3",
        "100",
        "150",
    )
    # The agent is the second line: it acts when this side should have, and did not.
    assert int(asked.fields["deadline_ms"]) > 2000


async def test_every_run_has_a_token_of_its_own() -> None:
    tokens: set[bytes] = set()

    async def look(guest: Guest) -> None:
        tokens.add(guest.token)
        await guest.exit()

    for _ in range(3):
        await run_after_start(look)
    assert len(tokens) == 3
    assert Guest.NO_TOKEN not in tokens


async def test_a_program_past_its_deadline_is_killed_and_heard_to_the_end() -> None:
    async def program(guest: Guest) -> None:
        await guest.print(b"before\n")
        await guest.killed()
        await guest.print(b"last words\n")
        await guest.exit(reason="killed", exit_code=None, signal=9)

    report, told = await run_after_start(program, BRIEF)
    assert report.deadline_passed
    assert report.end is not None
    assert (report.end.reason, report.end.exit_code, report.end.signal) == ("killed", None, 9)
    assert told.stdout == b"before\nlast words\n"


async def test_output_without_end_does_not_outrun_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_sandbox.guest.session.LAST_WORDS_SECONDS", 0.05)

    async def flood(guest: Guest) -> None:
        while True:
            await guest.print(b"y\n" * 100)

    report, _ = await run_after_start(flood, BRIEF)
    assert report.deadline_passed


async def test_an_agent_that_does_not_end_at_the_deadline_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_sandbox.guest.session.LAST_WORDS_SECONDS", 0.05)

    async def program(guest: Guest) -> None:
        await guest.print(b"before\n")
        await guest.hang()

    report, told = await run_after_start(program, BRIEF)
    assert (report.end, report.deadline_passed) == (None, True)
    assert "did not answer" in report.lost_because
    assert told.stdout == b"before\n"


async def test_the_account_of_a_program_that_ends_just_as_its_time_does_is_not_lost() -> None:
    stop = Stop()

    async def program(guest: Guest) -> None:
        guest.process.close_stdin()  # so that the order to end finds nobody
        stop.request()
        await guest.print(b"all of it\n")
        await guest.exit(stdout=10)

    report, told = await run_after_start(program, stop=stop)
    assert report.end is not None
    assert told.stdout == b"all of it\n"


async def test_a_request_to_stop_ends_the_program_in_order() -> None:
    stop = Stop()

    async def program(guest: Guest) -> None:
        await guest.print(b"before\n")
        stop.request()
        await guest.killed()
        await guest.exit(reason="killed", exit_code=None, signal=9)

    report, told = await run_after_start(program, stop=stop)
    assert report.end is not None
    assert report.end.reason == "killed"
    assert told.stdout == b"before\n"


async def test_a_request_to_stop_that_comes_early_is_kept() -> None:
    stop = Stop()
    stop.request()

    async def program(guest: Guest) -> None:
        await guest.killed()
        await guest.exit(reason="killed", exit_code=None, signal=9)

    report, _ = await run_after_start(program, stop=stop)
    assert report.end is not None
    assert report.end.reason == "killed"


async def test_a_sandbox_that_dies_without_a_word_is_lost_and_its_output_kept() -> None:
    async def program(guest: Guest) -> None:
        await guest.print(b"so far\n")

    report, told = await run_after_start(program)
    assert (report.end, report.deadline_passed) == (None, False)
    assert report.lost_because == "the sandbox ended without a word"
    assert told.stdout == b"so far\n"


async def test_a_sandbox_that_dies_in_the_middle_of_a_frame_is_lost() -> None:
    async def program(guest: Guest) -> None:
        await guest.print(b"so far\n")
        await guest.process.write(guest.frame(guest.token, b"o", b"and no further")[:-5])

    report, told = await run_after_start(program)
    assert report.lost_because == "the sandbox ended without a word"
    assert told.stdout == b"so far\n"


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_sandbox_that_dies_before_the_program_starts_is_lost(steps: int) -> None:
    async def script(process: Process) -> None:
        guest = Guest(process)
        for step in (guest.greet, guest.take_request)[:steps]:
            await step()

    report, _ = await run(script)
    assert report.lost_because == "the sandbox ended without a word"


@pytest.mark.parametrize("says_hello", [False, True])
async def test_a_sandbox_that_never_starts_the_program_is_given_up(
    monkeypatch: pytest.MonkeyPatch, says_hello: bool
) -> None:
    monkeypatch.setattr("mcp_sandbox.guest.session.START_SECONDS", 0.05)

    async def script(process: Process) -> None:
        guest = Guest(process)
        if says_hello:
            await guest.greet()
        await guest.hang()

    report, _ = await run(script)
    assert "did not start the program" in report.lost_because
    assert not report.deadline_passed


async def test_an_agent_of_another_protocol_is_not_talked_to() -> None:
    async def script(process: Process) -> None:
        await Guest(process).greet(protocol=2)
        await anyio.sleep_forever()

    report, _ = await run(script)
    assert "another protocol" in report.lost_because


@pytest.mark.parametrize(
    ("raw", "because"),
    [
        (Guest.frame(FORGED, b"o", b"forged"), "without the run's token"),
        (Guest.frame(Guest.NO_TOKEN, b"f", b"file 0\nerrno 1\n"), "without the run's token"),
        (Guest.frame(FORGED, b"x", Guest.fields(**Guest.END)), "without the run's token"),
        (b"Traceback (most recent call last):\n", "without the run's token"),
    ],
)
async def test_what_another_than_the_agent_writes_ends_the_run_and_keeps_what_came_before(
    raw: bytes, because: str
) -> None:
    async def program(guest: Guest) -> None:
        # In one piece, as it may well arrive.
        await guest.process.write(guest.frame(guest.token, b"o", b"true\n") + raw)
        await guest.print(b"after\n")
        await guest.exit()

    report, told = await run_after_start(program)
    assert report.end is None
    assert because in report.lost_because
    assert told.stdout == b"true\n"


@pytest.mark.parametrize(
    ("kind", "payload", "because"),
    [
        (b"s", b"", "out of turn"),
        (b"h", b"protocol 1\n", "out of turn"),
        (b"f", b"file 0\nerrno 1\n", "out of turn"),
        (b"a", b"4 path", "out of turn"),
        (b"z", b"refused 0\n", "out of turn"),
        (b"!", b"", "unknown kind"),
        (b"o", b"o" * (65 * 1024), "larger than any"),
        (b"x", b"reason gone\n", "no reason"),
        (b"x", b"reason exited\nexit_code -1\n", "not a number"),
        (b"x", b"reason exited\nexit_code 99999999999999999999\n", "not a number"),
        (b"x", b"reason exited\nmood good\n", "unknown or repeated"),
        (b"x", b"reason exited\n", "lacks"),
    ],
)
async def test_a_frame_that_our_agent_would_not_send_ends_the_run(
    kind: bytes, payload: bytes, because: str
) -> None:
    async def program(guest: Guest) -> None:
        await guest.print(b"so far\n")
        await guest.say(kind, payload)
        await guest.exit()

    report, told = await run_after_start(program)
    assert report.end is None
    assert because in report.lost_because
    assert told.stdout == b"so far\n"


@pytest.mark.parametrize(
    ("number", "named"), [(0, "the program"), (1, "a.txt"), (2, "b.txt"), (3, "b.txt"), (1 << 60, "b.txt")]
)
async def test_a_file_that_cannot_be_written_inside_refuses_the_call(number: int, named: str) -> None:
    async def script(process: Process) -> None:
        guest = Guest(process)
        await guest.greet()
        await guest.take_request()
        await guest.say(b"f", guest.fields(file=number, errno=errno.ENOSPC))

    with pytest.raises(RequestRefused, match="no space left on device") as caught:
        await run(script, replace(PROGRAM, files=(("a.txt", b""), ("b.txt", b""))))
    assert named in caught.value.message


async def test_a_refusal_that_comes_while_files_are_still_sent_is_heard() -> None:
    async def script(process: Process) -> None:
        guest = Guest(process)
        await guest.greet()
        await guest.hear()
        await guest.say(b"f", guest.fields(file=1, errno=errno.ENOSPC))

    with pytest.raises(RequestRefused, match="no space left on device"):
        await run(script, replace(PROGRAM, files=(("big", b"x" * 50_000_000),)))


async def test_a_cancelled_run_is_cancelled_at_once() -> None:
    started = anyio.Event()

    async def program(guest: Guest) -> None:
        started.set()
        await guest.hang()

    async with FakeEngine(plays(program)) as engine:
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:

                async def running() -> None:
                    async with engine.launch(SPEC) as sandbox:
                        await run_program(sandbox, PROGRAM, Told())

                tasks.start_soon(running)
                await started.wait()
                tasks.cancel_scope.cancel()
        assert not engine.alive


class TestFiles:
    async def test_come_out_whole(self) -> None:
        async def program(guest: Guest) -> None:
            await guest.exit()
            await guest.come_out(b"plot.png", b"P" * 100)
            await guest.say(b"r", b"link escape")
            await guest.come_out(b"sub/\xff", b"")
            await guest.say(b"r", b"too_large big.bin")
            await guest.say(b"z", guest.fields(refused=7))

        report, told = await run_after_start(program, WANTS_FILES)
        assert told.files == [(b"plot.png", 100, b"P" * 100), (b"sub/\xff", 0, b"")]
        assert told.kept_back == [(b"escape", "link"), (b"big.bin", "too_large")]
        assert report.artifacts_refused == 7

    async def test_are_not_waited_for_where_none_are_wanted(self) -> None:
        async def program(guest: Guest) -> None:
            await guest.exit()
            await guest.hang()

        report, _ = await run_after_start(program, PROGRAM)
        assert report.end is not None
        assert report.artifacts_refused is None

    @pytest.mark.parametrize(
        "frames",
        [
            [(b"a", b"101 too-large")],
            [(b"a", b"100 one"), (b"d", b"x" * 100), (b"a", b"60 more-than-all")],
            [(b"a", b"0 1"), (b"a", b"0 2"), (b"a", b"0 3"), (b"a", b"0 one-too-many")],
            [(b"a", b"5 short"), (b"d", b"four"), (b"a", b"0 next")],
            [(b"a", b"5 long"), (b"d", b"sixsix")],
            [(b"a", b"5 endless"), (b"d", b"")],
            [(b"a", b"-1 negative")],
            [(b"a", b"1e1 float")],
            [(b"a", b"\xb2 superscript")],
            [(b"a", b"5")],
            [(b"a", b"5 ")],
            [(b"a", b"5 " + b"p" * 1025)],
            [(b"r", b"because unknown")],
            [(b"z", b"refused")],
            [(b"z", b"")],
            [(b"o", b"late output")],
            [(b"x", b"reason exited\n")],
            [],
        ],
    )
    async def test_that_break_the_rules_cost_no_result(self, frames: list[tuple[bytes, bytes]]) -> None:
        async def program(guest: Guest) -> None:
            await guest.print(b"output\n")
            await guest.exit(stdout=7)
            await guest.come_out(b"good", b"good")
            for kind, payload in frames:
                await guest.say(kind, payload)

        report, told = await run_after_start(
            program, replace(WANTS_FILES, artifacts=ArtifactLimits(4, 100, 150))
        )
        assert report.end is not None
        assert report.artifacts_refused is None
        assert told.stdout == b"output\n"
        assert told.files[0] == (b"good", 4, b"good")
        assert sum(len(content) for _, _, content in told.files) <= 150

    async def test_that_never_come_are_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mcp_sandbox.guest.session.ARTIFACTS_SECONDS", 0.05)

        async def program(guest: Guest) -> None:
            await guest.exit()
            await guest.say(b"a", b"100 plot.png")
            await guest.hang()

        report, _ = await run_after_start(program, WANTS_FILES)
        assert report.end is not None
        assert report.artifacts_refused is None
