"""Clients that people have, over real stdio: each lists the tools, calls both, and is given the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters

from tests.clients.calls import CALLS
from tests.clients.raw import ANSWER_SECONDS, configuration_file, environment, server_command, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp.client import Mode

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
INSTALLED = HERE.parent.parent / ".cache" / "clients"
MEASURED = ("run_id", "duration_ms", "cpu_ms", "peak_memory_bytes")
TOOLS = ["execute_python", "execute_shell"]
EXPECTED = {
    "python": {"status": "exited", "exit_code": 0, "stdout": "42\n", "stderr": "warned\n"},
    "shell": {"status": "exited", "exit_code": 3, "stdout": "forty-two\n", "stderr": ""},
}

Said = dict[str, Any]


def installed(path: str) -> Path:
    """Return a client's program; without it, its tests fail where engine tests may not be skipped."""
    program = INSTALLED / path
    if not program.exists():
        if os.environ.get("MCP_SANDBOX_TEST_ENGINE") == "required":
            pytest.fail(f"{program} is not there: scripts/clients installs it")
        pytest.skip("other people's clients are not installed: ./scripts/clients does it, ./scripts/test too")
    return program


@pytest.fixture
def configuration(engine_host: str, tmp_path: Path) -> Path:
    return configuration_file(tmp_path, engine_host)


async def run(command: Sequence[object], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a client to its end."""

    def blocking() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            env={**environment(folder), **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * ANSWER_SECONDS,
        )

    return await anyio.to_thread.run_sync(blocking)


async def reference(configuration: Path) -> Said:
    """Return what a client is given that has no SDK."""
    async with serving(configuration) as server:
        tools = (await server.request("tools/list"))["result"]["tools"]
        said: Said = {"tools": [tool["name"] for tool in tools]}
        for name, (tool, arguments) in CALLS.items():
            result = await server.call(tool, **arguments)
            said[name] = {
                "structured": result.get("structuredContent"),
                "text": result["content"][0]["text"],
                "error": result.get("isError", False),
            }
    return said


def comparable(said: Said) -> Said:
    """Return what is the same in every run."""
    same: Said = {"tools": [name for name in said["tools"] if name in TOOLS]}
    for name in CALLS:
        structured = said[name]["structured"] or {}
        same[name] = {
            "structured": {key: value for key, value in structured.items() if key not in MEASURED},
            "text": re.sub(r"[0-9.]+ s \(run \w+\)", "", said[name]["text"]),
            "error": said[name]["error"],
        }
    return same


async def same_for(said: Said, configuration: Path) -> None:
    assert comparable(said) == comparable(await reference(configuration))
    assert comparable(said)["tools"] == TOOLS
    for name, wanted in EXPECTED.items():
        assert said[name]["structured"].items() >= wanted.items()
        assert said[name]["error"] is False
    assert said["refused"]["error"] is True


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_official_client_is_given_the_same_in_both_eras(mode: Mode, configuration: Path) -> None:
    command, *arguments = server_command(configuration)
    server = StdioServerParameters(command=command, args=arguments, env=environment(configuration.parent))
    with anyio.fail_after(4 * ANSWER_SECONDS):
        async with Client(server, mode=mode) as client:
            said = await said_to(client)
    await same_for(said, configuration)


async def said_to(client: Client) -> Said:
    """Return what the official client is told."""
    said: Said = {"tools": [tool.name for tool in (await client.list_tools()).tools]}
    for name, (tool, given) in CALLS.items():
        result = await client.call_tool(tool, given)
        said[name] = {
            "structured": result.structured_content,
            "text": result.content[0].text,
            "error": bool(result.is_error),
        }
    return said


@pytest.mark.parametrize("client", ["mcp1", "fastmcp"])
async def test_a_client_with_an_environment_of_its_own_is_given_the_same(
    client: str, configuration: Path
) -> None:
    python = installed(f"{client}/bin/python")
    ended = await run(
        [python, HERE / f"client_{client}.py", *server_command(configuration)], configuration.parent
    )
    assert ended.returncode == 0, ended.stderr
    await same_for(json.loads(ended.stdout), configuration)


async def inspector(
    configuration: Path, *arguments: str, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the Inspector's command line, which knows the server by its command alone."""
    node = installed("inspector/node").parent
    ended = await run(
        [
            *(node / "node_modules/.bin/mcp-inspector", "--cli", "-e", f"MCP_SANDBOX_CONFIG={configuration}"),
            *(Path(sys.executable).with_name("mcp-sandbox"), *arguments),
        ],
        configuration.parent,
        PATH=f"{node}:/usr/bin:/bin",
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_is_given_the_same_in_both_eras(era: str, configuration: Path) -> None:
    listed = await inspector(configuration, "--method", "tools/list", "--strict", "--protocol-era", era)
    said: Said = {"tools": [tool["name"] for tool in json.loads(listed.stdout)["tools"]]}
    assert "warning" not in listed.stderr.lower()
    for name, (tool, arguments) in CALLS.items():
        answer = await inspector(
            configuration,
            *("--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)),
            *("--format", "json", "--quiet", "--protocol-era", era),
            status=5 if name == "refused" else 0,  # how it tells an error of the tool's own
        )
        result = json.loads(answer.stdout)["result"]
        said[name] = {
            "structured": result.get("structuredContent"),
            "text": result["content"][0]["text"],
            "error": result["isError"],
        }
    await same_for(said, configuration)


async def mcporter(configuration: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run mcporter's command line on a server of its own."""
    node = installed("mcporter/node")
    ended = await run(
        [
            node,
            node.parent / "node_modules/.bin/mcporter",
            *arguments,
            "--stdio",
            shlex.join(server_command(configuration)),
        ],
        configuration.parent,
        PATH=f"{node.parent}:/usr/bin:/bin",
    )
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended


async def test_mcporter_is_given_the_same(configuration: Path) -> None:
    listed = json.loads((await mcporter(configuration, "list", "--json")).stdout)
    assert [tool["name"] for tool in listed["tools"] if tool["name"] in TOOLS] == TOOLS

    async def call(name: str, output: str, status: int = 0) -> str:
        tool, arguments = CALLS[name]
        words = ("call", tool, "--args", json.dumps(arguments), "--output", output)
        return (await mcporter(configuration, *words, status=status)).stdout

    for name, wanted in EXPECTED.items():
        assert json.loads(await call(name, "json")).items() >= wanted.items()
    assert (await call("refused", "text", status=1)).startswith("refused: `command` is empty.")
