"""Others that run a model's Python, installed from PyPI into environments of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, MCPError, StdioServerParameters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ENVIRONMENTS = Path(__file__).parent.parent / ".cache" / "benchmarks"
INSTALL_SECONDS = 600
START_SECONDS = 120.0
LLM_SANDBOX = ("llm-sandbox[docker]==0.3.46",)
MCP_RUN_PYTHON = ("mcp-run-python==0.0.22", "deno")

LLM_SANDBOX_LOOP = """\
import sys
import docker
from llm_sandbox import SandboxSession
client = docker.DockerClient(base_url=sys.argv[1])
for code in iter(sys.stdin.readline, ""):
    with SandboxSession(
        client=client, image=sys.argv[2], lang="python", keep_template=True, commit_container=False,
        skip_environment_setup=True, runtime_configs={"network_mode": "none", "user": "root"},
    ) as session:
        exit_code = session.run(code).exit_code
    print(exit_code, flush=True)
"""
"""Runs each line of stdin in a session of its own, as its documentation does; without the pip environment that it
else makes in every container."""


def environment(name: str, *packages: str) -> Path:
    """Return the Python of an environment that has these packages; made once.

    Raises:
        subprocess.SubprocessError: They could not be installed.
    """
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=INSTALL_SECONDS)
        install = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages]
        subprocess.run(install, check=True, timeout=INSTALL_SECONDS, capture_output=True)
        (folder / "done").touch()
    return python


def data_packages() -> tuple[str, ...]:
    """Return numpy, pandas and matplotlib as the standard image has them."""
    lock = Path(__file__).parent.parent / "mcp_sandbox" / "image" / "requirements.lock"
    return tuple(re.findall(r"^(?:numpy|pandas|matplotlib)==[^\\\n]+", lock.read_text("utf-8"), re.MULTILINE))


@asynccontextmanager
async def llm_sandbox(host: str, image: str) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Yield llm-sandbox with its Docker backend, as a function that runs one line of code.

    Raises:
        subprocess.SubprocessError: It could not be installed.
    """
    python = await anyio.to_thread.run_sync(environment, "llm-sandbox", *LLM_SANDBOX)
    command = [str(python), "-c", LLM_SANDBOX_LOOP, host, image]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        assert process.stdin
        assert process.stdout
        answers = BufferedByteReceiveStream(process.stdout)

        async def run(code: str) -> None:
            assert process.stdin
            await process.stdin.send(code.encode() + b"\n")
            with anyio.fail_after(START_SECONDS):
                answer = await answers.receive_until(b"\n", 1 << 20)
            if answer != b"0":
                raise RuntimeError(f"llm-sandbox answered {answer!r}")

        try:
            yield run
        finally:
            process.kill()


@asynccontextmanager
async def mcp_run_python() -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """Yield mcp-run-python, which is Pyodide in Deno and no container, as a function that runs code.

    Raises:
        subprocess.SubprocessError: It could not be installed.
        MCPError: It could not be started: it fetches parts of itself from jsr.io.
    """
    python = await anyio.to_thread.run_sync(environment, "mcp-run-python", *MCP_RUN_PYTHON)
    parameters = StdioServerParameters(
        command=str(python.with_name("mcp-run-python")),
        args=["stdio"],
        env={"PATH": f"{python.parent}:/usr/bin:/bin"},
    )
    async with Client(parameters) as client:

        async def run(code: str) -> None:
            result = await client.call_tool("run_python_code", {"python_code": code})
            if result.is_error:
                raise RuntimeError(f"mcp-run-python answered {result.content}")

        yield run


UNAVAILABLE = (subprocess.SubprocessError, MCPError, OSError, TimeoutError)
"""What is raised where a peer cannot be had."""
