"""The command line without an engine: help for everything, and nothing imported that is not needed yet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from mcp_sandbox import __version__
from mcp_sandbox.cli import COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))
HEAVY = ("docker", "mcp", "pydantic", "rich", "requests", "anyio", "sqlite3")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command's words."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command, name
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60
    )


@pytest.mark.parametrize("words", list(commands(cli)), ids=lambda words: " ".join(words) or "mcp-sandbox")
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    for option in ("--help", "-h"):
        said = run(*words, option)
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith(f"Usage: {' '.join(('mcp-sandbox', *words))} ")
        assert said.stderr == ""
        assert len(said.stdout.splitlines()) > 3


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    said = run("--help").stdout
    for name, (_, summary) in COMMANDS.items():
        assert f"\n  {name} " in said
        assert " ".join(summary.split()) in " ".join(said.split())


def test_a_word_that_is_no_command_is_a_mistake_in_one_line() -> None:
    said = run("ruin")
    assert said.returncode == 2
    assert "No such command 'ruin'" in said.stderr
    assert said.stdout == ""


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout.split()[-1] == __version__


@pytest.mark.parametrize("statement", ["import mcp_sandbox.cli", "from mcp_sandbox.cli import main"])
def test_the_command_line_imports_nothing_heavy(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_a_server_that_nobody_can_speak_with_says_so(closed: str, tmp_path: Path) -> None:
    said = subprocess.run(
        ["/bin/bash", "-c", f"{COMMAND} serve {closed}"],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    assert said.returncode == 2
    assert "stdin and stdout must be open" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_server_without_stderr_answers_all_the_same(tmp_path: Path) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    said = subprocess.run(
        ["/bin/bash", "-c", f"{COMMAND} serve 2>&-"],
        input=json.dumps(message) + "\n",
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        timeout=60,
    )
    assert said.returncode == 0
    [answer] = said.stdout.splitlines()
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "mcp-sandbox"
