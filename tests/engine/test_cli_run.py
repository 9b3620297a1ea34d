"""`mcp-sandbox run` as a shell sees it: what it writes, as it comes, and its exit status."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from tests.clients.raw import ANSWER_SECONDS, END_SECONDS, configuration_file, environment
from tests.engine.sandboxes import SLEEP, none_left, runs, sleeping
from tests.person import at_a_terminal

if TYPE_CHECKING:
    from docker import APIClient

pytestmark = pytest.mark.engine

COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))
Ended = subprocess.CompletedProcess[bytes]


@pytest.fixture
def configuration(engine_host: str, tmp_path: Path) -> Path:
    small = {"memory": "128MiB", "scratch_size": "16MiB", "tmp_size": "16MiB", "shm_size": "16MiB"}
    return configuration_file(tmp_path, engine_host, **small)


def run(configuration: Path, *arguments: str | Path, stdin: bytes = b"") -> Ended:
    return subprocess.run(
        [COMMAND, "run", "--config", configuration, *arguments],
        input=stdin,
        capture_output=True,
        env=environment(configuration.parent),
        timeout=ANSWER_SECONDS,
    )


STATUSES = {
    "its own": (["-c", "raise SystemExit(3)"], 3),
    "its own 255": (["--shell", "exit 255"], 255),
    "an exception": (["-c", "1/0"], 1),
    "SIGSEGV": (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"], 128 + signal.SIGSEGV),
    "SIGKILL": (["--shell", "kill -9 $$"], 128 + signal.SIGKILL),
    "the deadline": (["--timeout", "1", "-c", "while True: pass"], 124),
    "memory": (["-c", "x = [bytearray(1 << 20) for _ in range(4096)]"], 137),
    "a refusal": (["--timeout", "0", "-c", "print(1)"], 125),
    "an empty program": (["-c", ""], 125),
    "no program": (["--timeout", "1"], 2),
    "two programs": (["-c", "1", "--shell", "true"], 2),
    "no such file": (["/nowhere/at/all.py"], 2),
}


@pytest.mark.parametrize("end", STATUSES)
def test_the_exit_status_tells_how_it_ended(end: str, configuration: Path) -> None:
    arguments, status = STATUSES[end]
    ended = run(configuration, *arguments)
    assert ended.returncode == status, ended.stderr
    said = [line for line in ended.stderr.splitlines() if line.startswith(b"mcp-sandbox: ")]
    if status in (124, 125, 137) or (status > 128 and not end.startswith("its own")):
        assert said
    else:
        assert not said
    assert b"Traceback" not in ended.stderr or end == "an exception"
    assert ended.stdout == b""


def test_a_failing_engine_is_one_sentence_and_a_next_step(tmp_path: Path) -> None:
    ended = run(configuration_file(tmp_path, f"unix://{tmp_path}/no.sock"), "-c", "print(1)")
    assert ended.returncode == 125
    assert ended.stderr.startswith(b"mcp-sandbox: engine_unreachable: ")
    assert b"Start Docker" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_every_byte_of_both_streams_passes_as_it_is(configuration: Path) -> None:
    ended = run(
        configuration,
        "-c",
        "import os\nfor fd in 1, 2: os.write(fd, bytes(range(256)) * 200 + b'\\xff\\r\\n\\x00')",
    )
    assert ended.returncode == 0
    assert ended.stdout == ended.stderr == bytes(range(256)) * 200 + b"\xff\r\n\x00"


DRAWN = b"\x1b[31mred\x1b[m\r\n\x1b[?25l"
FOR_THE_MACHINE = (
    b"\x1b]52;c;cm0gLXJmIH4=\x07\x1b]0;title\x07\x1b[21t\x1b[6n\x1b[c\x1b[?1000h\x05\x9b5i\x1bP$q;\x1b\\\x00"
)


@pytest.mark.parametrize("stream", [1, 2])
def test_at_a_terminal_nothing_that_a_program_writes_reaches_past_the_screen(
    configuration: Path, stream: int
) -> None:
    code = f"import os\nos.write({stream}, {FOR_THE_MACHINE + DRAWN!r} + b'drawn')"
    command = [COMMAND, "run", "--config", str(configuration), "-c", code]
    with at_a_terminal(command, environment(configuration.parent)) as person:
        assert person.leaves() == 0
    beyond, drawn, after = person.screen.partition(DRAWN.replace(b"\r\n", b"\r\r\n") + b"drawn")
    assert drawn
    assert beyond == "\N{REPLACEMENT CHARACTER}5i".encode()  # what is left of a byte that is no text
    assert b"\x1b[?25h" in after
    assert b"\x1b[m" in after


def test_what_is_left_out_of_a_flood_is_told(configuration: Path) -> None:
    ended = run(configuration, "-c", "for _ in range(3): print('x' * 999_999)")
    assert ended.returncode == 0
    assert 500_000 < len(ended.stdout) < 2_000_000
    left_out = 3_000_000 - len(ended.stdout)
    assert f"{left_out:,} bytes in the middle of stdout are left out".encode() in ended.stderr


def test_json_is_the_whole_result_and_nothing_else(configuration: Path) -> None:
    ended = run(configuration, "--json", "--shell", "echo out; echo err >&2; exit 4")
    assert ended.returncode == 4
    assert ended.stderr == b""
    result = json.loads(ended.stdout)
    assert (result["status"], result["exit_code"]) == ("exited", 4)
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")


def test_a_program_comes_from_a_file_or_from_stdin(configuration: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('pÿthon')", encoding="utf-8")
    (tmp_path / "script.sh").write_text("echo $0 shell")
    (tmp_path / "latin").write_bytes(b"print('\xff')")
    assert run(configuration, tmp_path / "program.py").stdout.decode() == "pÿthon\n"
    assert run(configuration, tmp_path / "script.sh").stdout.endswith(b" shell\n")
    assert run(configuration, "-", stdin="print('stdïn')".encode()).stdout.decode() == "stdïn\n"
    for broken in (run(configuration, tmp_path / "latin"), run(configuration, "-", stdin=b"\xff")):
        assert broken.returncode == 2
        assert b"is not UTF-8" in broken.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
async def test_output_comes_as_it_is_written_and_a_signal_ends_it_all(
    number: signal.Signals, configuration: Path, engine_client: APIClient, tmp_path: Path
) -> None:
    command = [COMMAND, "run", "--config", str(configuration), "--shell", f"echo first; {SLEEP}; echo last"]
    async with await anyio.open_process(command, env=environment(tmp_path), stderr=None) as process:
        assert process.stdout
        with anyio.fail_after(ANSWER_SECONDS):
            assert await process.stdout.receive() == b"first\n"
        await sleeping(engine_client, tmp_path)
        process.send_signal(number)
        with anyio.fail_after(END_SECONDS):
            assert await process.wait() == 128 + number
    await none_left(engine_client, tmp_path)
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"]


async def test_a_reader_that_has_seen_enough_ends_it(
    configuration: Path, engine_client: APIClient, tmp_path: Path
) -> None:
    def pipeline() -> Ended:
        line = f"{COMMAND} run --config {configuration} --shell yes | head -n 1; echo ${{PIPESTATUS[0]}}"
        return subprocess.run(
            ["/bin/bash", "-c", line], capture_output=True, env=environment(tmp_path), timeout=ANSWER_SECONDS
        )

    ended = await anyio.to_thread.run_sync(pipeline)
    assert ended.stdout == f"y\n{128 + signal.SIGPIPE}\n".encode()
    assert ended.stderr == b""
    await none_left(engine_client, tmp_path)


async def test_the_sandbox_goes_by_itself_when_the_command_is_killed(
    configuration: Path, engine_client: APIClient, tmp_path: Path
) -> None:
    command = [COMMAND, "run", "--config", str(configuration), "--shell", SLEEP]
    async with await anyio.open_process(command, env=environment(tmp_path)) as process:
        await sleeping(engine_client, tmp_path)
        process.kill()
        await process.wait()
    await none_left(engine_client, tmp_path)


SIX_MB = 6_000_000
COPIED_AND_MADE = "open('made.bin', 'wb').write(open('data.bin', 'rb').read()); print('an open line', end='')"


@pytest.fixture
def large(engine_host: str, tmp_path: Path) -> tuple[str | Path, ...]:
    """Arguments of a run that takes much in and out."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "data.bin").write_bytes(bytes(SIX_MB))
    configuration = configuration_file(tmp_path, engine_host, workspace_transfer="copy")
    return (
        "--config",
        configuration,
        "--workspace",
        folder,
        "--out",
        tmp_path / "out",
        "-c",
        COPIED_AND_MADE,
    )


def test_on_a_terminal_bars_show_what_is_copied_and_go_and_no_output_goes_with_them(
    large: tuple[str | Path, ...], tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [COMMAND, "run", *large], stdout=theirs, stderr=theirs, env={**environment(tmp_path), "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        screen = b""
        with suppress(OSError):  # how a terminal tells that nobody is left to write to it
            while data := os.read(ours, 65536):
                screen += data
        os.close(ours)
        assert process.wait(timeout=ANSWER_SECONDS) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.decode())
    for words in ("copying the workspace in ━", "taking files out ━", "copying out ━"):
        assert words in shown
    drawn_over = shown.partition("an open line")[2]
    assert drawn_over.startswith("\r\n")  # what is drawn and erased later is below it
    assert shown.rstrip().endswith(f"mcp-sandbox: made made.bin (application/octet-stream, {SIX_MB:,} bytes)")
    assert (tmp_path / "out/made.bin").stat().st_size == SIX_MB


def test_elsewhere_lines_tell_what_is_copied_and_json_stays_alone(
    large: tuple[str | Path, ...], tmp_path: Path
) -> None:
    def run_large(*more: str) -> Ended:
        command = [COMMAND, "run", *large, *more]
        return subprocess.run(command, capture_output=True, env=environment(tmp_path), timeout=ANSWER_SECONDS)

    ended = run_large()
    assert ended.stdout == b"an open line"
    assert ended.stderr.decode().splitlines() == [
        "mcp-sandbox: copying the workspace in, 6.0 MB",
        "mcp-sandbox: taking files out",
        "mcp-sandbox: copying out, 6.0 MB",
        f"mcp-sandbox: made made.bin (application/octet-stream, {SIX_MB:,} bytes)",
    ]
    (tmp_path / "out/made.bin").unlink()
    assert run_large("--json").stderr == b""
