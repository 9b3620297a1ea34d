"""The first call from a client's entry: what does not work is told, with what the server said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.server.first_call import first_call

if TYPE_CHECKING:
    from pathlib import Path


def python(program: str, **env: str) -> Launch:
    return Launch(sys.executable, ("-c", program), env)


async def test_a_command_that_is_not_there_is_told() -> None:
    with anyio.fail_after(30):
        assert "No such file or directory" in await first_call(Launch("/nonexistent/mcp-sandbox"))


async def test_a_server_that_ends_is_told_with_its_last_words() -> None:
    with anyio.fail_after(60):
        problem = await first_call(python("import sys; sys.exit('no such \\x1b[2J workspace')"))
    assert problem.startswith("it did not start: ")
    assert "no such \\x1b[2J workspace" in problem


async def test_a_server_that_says_nothing_is_given_up() -> None:
    with anyio.fail_after(60):
        problem = await first_call(python("import sys; sys.stdin.read()"), seconds=0.5)
    assert problem.startswith("there was no answer within")


@pytest.mark.parametrize("name", ["PATH", "PWD", "DOCKER_HOST", "VIRTUAL_ENV", "MINE"])
async def test_the_server_has_what_a_desktop_gives_it_and_no_more(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///ours")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    program = f"import os, sys; sys.exit(os.getcwd() + ' ' + str(os.environ.get({name!r})) + ' ' + str(os.isatty(0)))"
    with anyio.fail_after(60):
        problem = await first_call(python(program, MINE="given"))
    expected = {"PATH": "/usr/bin:/bin", "MINE": "given"}
    assert problem.endswith(f"/ {expected.get(name)} False")


async def test_a_server_whose_engine_is_down_is_told_with_what_to_do(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": "unix:///nonexistent/docker.sock", "HOME": str(tmp_path)}
    with anyio.fail_after(90):
        problem = await first_call(Launch(sys.executable, ("-P", "-m", "mcp_sandbox", "serve"), nowhere))
    assert problem.startswith("the call failed: engine_unreachable: ")
    assert "Start Docker" in problem
