"""The ways of running a program that are compared."""

from __future__ import annotations

import json
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


def on_the_host(code: str, python: str | Path = PYTHON) -> None:
    """Run a program as plainly as can be."""
    subprocess.run([python, "-c", code], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def docker_run(host: str, runtime: str, image: str, program: list[str], given: bytes = b"") -> None:
    """Run a program by the docker command, under the restrictions that are ours; `given` is its stdin."""
    command = f"""docker -H {host} run --rm -i --runtime {runtime} --network none --read-only
        --tmpfs /scratch:rw,noexec,nosuid,nodev,size=256m,mode=1777 --tmpfs /tmp:rw,noexec,nosuid,nodev,size=64m
        --memory 1g --memory-swap 1g --cpus 1 --pids-limit 256 --ulimit nofile=1024:1024 --ulimit core=0:0
        --cap-drop ALL --security-opt no-new-privileges --user 1000:1000 --log-driver none -w /scratch
        -e HOME=/tmp {image}""".split()
    subprocess.run([*command, *program], check=True, input=given, stdout=subprocess.DEVNULL)


@asynccontextmanager
async def server(
    folder: Path, *, host: str, parallel: int = 4, **policy: str | int | list[str]
) -> AsyncIterator[Client]:
    """Yield a client of a server of ours, over stdio, as clients start it; `policy` is keys of its workspace."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "config.toml"
    policy = {"image": "mcp-sandbox/minimal", "ready": 0, **policy}
    lines = (
        f'engine.host = "{host}"',
        f'audit.path = "{folder}/record"',
        f"server.max_parallel = {parallel}",
        "server.max_queued = 256",
        "[workspaces.bench]",
        # For text, numbers and lists of text, JSON is TOML.
        *(f"{key} = {json.dumps(value)}" for key, value in policy.items()),
    )
    configuration.write_text("\n".join(lines), encoding="utf-8")
    async with Client(our_server(configuration)) as client:
        await client.list_tools()
        yield client


def our_server(configuration: Path) -> StdioServerParameters:
    """Return the command that starts a server of ours."""
    command = Path(sys.executable).with_name("mcp-sandbox")
    arguments = ["serve", "--config", str(configuration), "--workspace", "bench"]
    return StdioServerParameters(command=str(command), args=arguments)


async def call(client: Client, code: str, **arguments: object) -> dict[str, object]:
    """Run a Python program through a client and return the result; anything but exit code 0 is an error here."""
    result = await client.call_tool("execute_python", {"code": code, "timeout_seconds": 60, **arguments})
    outcome = result.structured_content
    if result.is_error or outcome is None or outcome["exit_code"] != 0:
        raise RuntimeError(f"a benchmark's program failed: {result.content}")
    return outcome
