"""The ways of running a program that are compared."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mcp import Client, StdioServerParameters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PYTHON = getattr(sys, "_base_executable", sys.executable)
"""The interpreter itself, not a virtual environment's link to it: as short a way as there is."""

CONFIGURATION = """\
[engine]
host = "{host}"
[audit]
path = "{folder}/record"
[server]
max_parallel = {parallel}
max_queued = 256
[defaults]
image = "{image}"
runtime = "{runtime}"
ready = {ready}
preload = {preload}
"""


def on_the_host(code: str) -> None:
    """Run a program as plainly as can be."""
    subprocess.run([PYTHON, "-c", code], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def docker_run(host: str, runtime: str, image: str, program: list[str]) -> None:
    """Run a program by the docker command, under the restrictions that are ours."""
    command = f"""docker -H {host} run --rm -i --runtime {runtime} --network none --read-only
        --tmpfs /scratch:rw,noexec,nosuid,nodev,size=256m,mode=1777 --tmpfs /tmp:rw,noexec,nosuid,nodev,size=64m
        --memory 1g --memory-swap 1g --cpus 1 --pids-limit 256 --ulimit nofile=1024:1024 --ulimit core=0:0
        --cap-drop ALL --security-opt no-new-privileges --user 1000:1000 --log-driver none -w /scratch
        -e HOME=/tmp {image}""".split()
    subprocess.run([*command, *program], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@asynccontextmanager
async def server(
    folder: Path,
    *,
    host: str,
    image: str = "mcp-sandbox/minimal",
    runtime: str = "runc",
    ready: int = 0,
    preload: tuple[str, ...] = (),
    parallel: int = 4,
) -> AsyncIterator[Client]:
    """Yield a client of a server of ours, over stdio, as clients start it."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "config.toml"
    quoted = "[" + ", ".join(f'"{name}"' for name in preload) + "]"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            folder=folder,
            image=image,
            runtime=runtime,
            ready=ready,
            preload=quoted,
            parallel=parallel,
        ),
        encoding="utf-8",
    )
    command = Path(sys.executable).with_name("mcp-sandbox")
    parameters = StdioServerParameters(command=str(command), args=["serve", "--config", str(configuration)])
    async with Client(parameters) as client:
        await client.list_tools()
        yield client


async def call(client: Client, code: str, timeout_seconds: float = 60.0) -> dict[str, object]:
    """Run a Python program through a client and return the result; anything but exit code 0 is an error here."""
    result = await client.call_tool("execute_python", {"code": code, "timeout_seconds": timeout_seconds})
    outcome = result.structured_content
    if result.is_error or outcome is None or outcome["exit_code"] != 0:
        raise RuntimeError(f"a benchmark's program failed: {result.content}")
    return outcome
