"""`mcp-sandbox runs` as a person sees it, hostile runs included."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.cli import cli
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.model import Artifact, Blocked, Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from click.testing import Result

    from mcp_sandbox.audit.record import Opening

    Run = Callable[..., Awaitable[str]]
    Tamper = Callable[..., None]

pytestmark = pytest.mark.anyio

HOSTILE = "\x1b]52;c;eA==\x07\x1b[2J\x9b31m\u202e\u2066\u200b\U000e0041\r\x08[red]x[/red]"
DANGEROUS = set(HOSTILE) - set("]52;c;eA==[2J31mredx/")


@pytest.fixture
def configuration(tmp_path: Path, folder: Path) -> Path:
    file = tmp_path / "config.toml"
    file.write_text(f'[audit]\npath = "{folder}"\n')
    file.chmod(0o600)
    return file


@pytest.fixture
def runs(configuration: Path) -> Callable[..., Result]:
    def call(*arguments: str, **options: str) -> Result:
        return CliRunner().invoke(
            cli, ["runs", arguments[0], "--config", str(configuration), *arguments[1:]], **options
        )

    return call


@pytest.fixture
def on_a_terminal(configuration: Path) -> Callable[..., str]:
    """Call the command with a real terminal as its stdout, 80 columns wide, and return what arrives there."""

    def call(*arguments: str) -> str:
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mcp_sandbox",
                "runs",
                arguments[0],
                "--config",
                str(configuration),
                *arguments[1:],
            ],
            stdout=follower,
            stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"},
        )
        os.close(follower)
        shown = b""
        # Reading ends with an error once the last process has let go of the terminal.
        try:
            while data := os.read(leader, 65536):
                shown += data
        except OSError:
            pass
        finally:
            os.close(leader)
        _, errors = process.communicate(timeout=30)
        assert errors == b""
        return shown.decode()

    return call


@pytest.fixture
async def names(folder: Path, opening: Opening, run: Run) -> list[str]:
    store = AuditStore(folder)
    names = [
        await run(store),
        await run(store, workspace="other", ended={"exit_code": 3}),
        await store.refused(opening, RequestRefused("The code is longer than 1 MB.")),
    ]
    await store.aclose()
    return names


@pytest.fixture
async def hostile(folder: Path, run: Run) -> str:
    store = AuditStore(folder)
    ended = {
        "stdout": HOSTILE,
        "artifacts": [Artifact(path=HOSTILE, size=1, mime_type=HOSTILE, sha256="00", uri="")],
        "blocked": [Blocked(host=HOSTILE, port=1, reason=HOSTILE)],
    }
    name = await run(
        store,
        code=f"print(1)  # {HOSTILE}",
        workspace=HOSTILE,
        client=Client(name=HOSTILE, version=HOSTILE),
        environment=(HOSTILE,),
        stdout=HOSTILE.encode() + b"\xff\n",
        ended=ended,
    )
    await store.aclose()
    return name


@pytest.mark.parametrize(
    "command", [("list",), ("show", "last"), ("output", "last"), ("stats",), ("verify",)]
)
async def test_nothing_that_a_program_wrote_reaches_the_terminal_unescaped(
    hostile: str, on_a_terminal: Callable[..., str], command: tuple[str, ...]
):
    shown = on_a_terminal(*command).replace("\r\n", "\n")
    assert shown
    assert DANGEROUS & set(shown) == set()


async def test_what_is_shown_names_what_was_hidden(hostile: str, on_a_terminal: Callable[..., str]):
    shown = on_a_terminal("output", "last")
    assert (
        "\\x1b]52;c;eA==\\x07\\x1b[2J\\x9b31m\\u202e\\u2066\\u200b\\U000e0041\\r\\x08[red]x[/red]\\xff"
        in shown
    )
    assert "[red]x[/red]" in on_a_terminal("show", "last")


async def test_in_a_pipe_output_is_what_was_written(hostile: str, runs: Callable[..., Result]):
    assert runs("output", "last").stdout_bytes == HOSTILE.encode() + b"\xff\n"
    assert runs("output", "last", "--stderr").stdout_bytes == b""


async def test_a_list_shows_the_newest_first_and_names_are_never_cut(
    names: list[str], runs: Callable[..., Result], on_a_terminal: Callable[..., str]
):
    lines = on_a_terminal("list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == names[::-1]
    assert "refused" in lines[1]
    assert "exit 3" in lines[2]
    assert [line.split()[0] for line in runs("list").output.splitlines()[1:]] == names[::-1]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--workspace", "other"), [1]),
        (("--status", "refused"), [2]),
        (("--since", "1h"), [2, 1, 0]),
        (("--since", "2999-01-01"), []),
        (("--code", "6 * 7"), [2, 1, 0]),
        (("--artifact", "plot.png"), []),
        (("--limit", "1"), [2]),
    ],
)
async def test_a_list_can_be_narrowed(
    names: list[str], runs: Callable[..., Result], arguments: tuple[str, ...], found: list[int]
):
    listed = json.loads(runs("list", "--json", *arguments).stdout)
    assert [names.index(run["run_id"]) for run in listed] == found


async def test_a_run_is_shown_by_a_prefix(names: list[str], runs: Callable[..., Result]):
    shown = runs("show", names[1]).output
    assert names[1] in shown
    assert "print(6 * 7)" in shown
    assert "desk 1 (mcp)" in shown
    assert json.loads(runs("show", "last", "--json").stdout)["summary"]["run_id"] == names[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--since", "soon"),
        ("list", "--since", "999999w"),
        ("list", "--limit", "0"),
        ("prune",),
        ("prune", "--keep-size", "5 apples"),
    ],
)
async def test_what_cannot_be_meant_is_a_usage_error(
    names: list[str], runs: Callable[..., Result], arguments: tuple[str, ...]
):
    assert runs(*arguments).exit_code == 2


async def test_an_unknown_run_is_one_sentence_with_a_next_step(names: list[str], runs: Callable[..., Result]):
    answer = runs("show", "zzzz")
    assert answer.exit_code == 125
    assert "No run on the record" in answer.stderr
    assert "runs list" in answer.stderr
    assert "Traceback" not in answer.output


async def test_verify_ends_with_1_and_names_the_record_where_something_was_changed(
    names: list[str], runs: Callable[..., Result], tamper: Tamper
):
    fine = runs("verify")
    assert fine.exit_code == 0
    head = fine.stdout.rpartition("head: ")[2].strip()
    assert runs("verify", "--expect-head", head).exit_code == 0
    assert runs("verify", "--expect-head", head[:-1] + "?").exit_code == 1
    tamper("UPDATE records SET body = replace(body, 'desk', 'sofa') WHERE seq = 3")
    altered = runs("verify")
    assert altered.exit_code == 1
    assert "record 3 of" in altered.stdout
    assert names[1] in altered.stdout
    assert json.loads(runs("verify", "--json").stdout)["problems"][0]["fault"] == "altered"


async def test_prune_asks_first(names: list[str], runs: Callable[..., Result]):
    assert "3 runs" in runs("prune", "--older-than", "0s", "--dry-run").stdout
    assert runs("prune", "--older-than", "0s", input="n\n").exit_code == 1
    assert len(json.loads(runs("list", "--json").stdout)) == 3
    assert "3 runs" in runs("prune", "--older-than", "0s", "--yes").stdout
    assert runs("list").exit_code == 0
    assert json.loads(runs("list", "--json").stdout) == []
    assert runs("verify").exit_code == 0


async def test_export_writes_lines_or_one_run_as_an_archive(
    names: list[str], runs: Callable[..., Result], tmp_path: Path
):
    lines = [json.loads(line) for line in runs("export").stdout.splitlines()]
    assert [line["record"]["kind"] for line in lines] == [
        "genesis", "opening", "closing", "opening", "closing", "refused", "seal",
    ]  # fmt: skip
    assert "6 * 7" not in runs("export", "--no-contents").stdout
    assert runs("export", names[0], "-o", str(tmp_path / "run.tar")).exit_code == 0
    for archive in (tmp_path / "run.tar", io.BytesIO(runs("export", names[0]).stdout_bytes)):
        opened = {"fileobj": archive} if isinstance(archive, io.BytesIO) else {"name": archive}
        with tarfile.open(**opened) as tar:
            assert f"{names[0]}/code.py" in tar.getnames()


async def test_stats_count_by_workspace(names: list[str], runs: Callable[..., Result]):
    assert "50%" in runs("stats").output
    assert json.loads(runs("stats", "--json").stdout)[0]["workspace"] == "papers"


@pytest.mark.parametrize("command", ["list", "verify", "stats", "export"])
async def test_without_a_record_it_says_so_and_makes_none(
    runs: Callable[..., Result], folder: Path, command: str
):
    answer = runs(command)
    assert answer.exit_code == 125
    assert "There is no run record" in answer.stderr
    assert list(folder.parent.glob("state*")) == []
