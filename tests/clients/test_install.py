"""Somebody new: three commands, and a client that reads the entry gets its first answer."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.clients.raw import ANSWER_SECONDS, PATIENCE

pytestmark = pytest.mark.engine
COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))


@pytest.mark.timeout(300)  # four servers and a doctor, one after the other
async def test_three_commands_lead_to_the_first_answer_in_a_client(engine_host: str, tmp_path: Path) -> None:
    home, reports = tmp_path / "home", tmp_path / "home/reports"
    reports.mkdir(parents=True)
    (reports / "sales.csv").write_text("north,40\nsouth,2\n")
    for folder in (".codex", ".config/opencode"):
        (home / folder).mkdir(parents=True)
    # A shell's environment; what of it a client does not have is in the entry.
    shell = {"HOME": str(home), "PATH": "/usr/bin:/bin", "DOCKER_HOST": engine_host}

    def command(*words: str) -> str:
        done = subprocess.run(
            [COMMAND, *words], env=shell, cwd=reports, capture_output=True, text=True, timeout=100 * PATIENCE
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command("init", "--yes")
    configuration = home / ".config/mcp-sandbox/config.toml"
    configuration.write_text(configuration.read_text() + 'image = "mcp-sandbox/minimal"\n')
    said = command("install", "--all", "--check")

    assert said.count("was started as the client does it, and answered a call") == 2
    assert "all well" in said
    assert await first_answer(plain((home / ".codex/config.toml").read_text(), "mcp_servers"), home) == "42\n"
    opencode = plain((home / ".config/opencode/opencode.json").read_text(), "mcp")
    program, *arguments = opencode["command"]
    entry = {"command": program, "args": arguments, "env": opencode["environment"]}
    assert await first_answer(entry, home) == "42\n"
    command("uninstall", "--all")
    assert not [
        path
        for path in home.rglob("*")
        if path.name in ("config.toml", "opencode.json") and path != configuration
    ]


def plain(text: str, table: str) -> dict[str, Any]:
    """Read an entry as the client does, with nothing of the product's."""
    entry: dict[str, Any] = (json.loads(text) if text.startswith("{") else tomllib.loads(text))[table][
        "sandbox"
    ]
    return entry


async def first_answer(entry: dict[str, Any], home: Path) -> str:
    server = StdioServerParameters(
        command=entry["command"],
        args=entry["args"],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **entry["env"]},
        cwd="/",
    )
    code = "print(sum(int(line.split(',')[1]) for line in open('sales.csv')))"
    with anyio.fail_after(4 * ANSWER_SECONDS):
        async with Client(server) as client:
            result = await client.call_tool("execute_python", {"code": code})
    assert result.structured_content is not None
    return str(result.structured_content["stdout"])
