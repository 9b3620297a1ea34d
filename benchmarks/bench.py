"""One run of the benchmarks: what it runs on, how long it may take, and which promises did not hold."""

from __future__ import annotations

import os
import platform
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import docker

from benchmarks import ways

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp import Client

EMPTY = "print(1)"
MINIMAL, STANDARD = "mcp-sandbox/minimal", "mcp-sandbox/standard"
OURS = {"label": "io.mcp-sandbox.version"}
READY_SECONDS = 20.0
"""Longest wait until a server has a sandbox ready again, between two calls that are measured."""


class Bench:
    """What the parts have in common."""

    def __init__(self, host: str, folder: Path, *, quick: bool) -> None:
        self.host = host
        self.folder = folder
        self.quick = quick
        self.engine = docker.APIClient(host, timeout=30)
        self.rounds = 5 if quick else 21
        self.slack = 1.5 if quick else 1.0
        """What ratios may be off by: of five samples a median tells gross regressions alone."""
        self.failed: list[str] = []

    def until(self, seconds: float) -> float:
        """Return a moment of the monotonic clock; the quick form has a tenth of the time."""
        return time.monotonic() + (seconds / 10 if self.quick else seconds)

    async def ready(self, count: int = 1) -> None:
        """Wait until so many sandboxes wait and nothing else goes on, so that a ready call meets a ready sandbox."""
        await anyio.sleep(0.3)  # until a used one, which would count, is gone
        with anyio.move_on_after(READY_SECONDS):
            while len(self.engine.containers(filters=OURS)) != count:  # noqa: ASYNC110  # the engine is all that knows
                await anyio.sleep(0.02)
        await anyio.sleep(0.1)

    def docker_run(
        self, runtime: str, image: str, code: str, given: bytes = b""
    ) -> Callable[[], Awaitable[None]]:
        """Return the way that runs a program by the docker command."""
        return threaded(ways.docker_run, self.host, runtime, image, ["python3", "-c", code], given)

    def expect(self, holds: bool, promise: str) -> None:
        """Remember a promise that did not hold."""
        if not holds:
            self.failed.append(promise)

    def machine(self) -> str:
        """Say what is measured on."""
        info = self.engine.info()
        return (
            f"{os.cpu_count()} cores, Linux {platform.release()}, Docker {info['ServerVersion']} "
            f"({info['Driver']}, cgroup v{info.get('CgroupVersion', '1')}), Python {platform.python_version()}"
        )


def threaded(function: Callable[..., None], *arguments: object) -> Callable[[], Awaitable[None]]:
    """Return a way that blocks a thread instead of the event loop."""

    async def way() -> None:
        await anyio.to_thread.run_sync(partial(function, *arguments))

    return way


def calling(client: Client, code: str, **arguments: object) -> Callable[[], Awaitable[None]]:
    """Return the way that runs a program by a client of ours."""

    async def way() -> None:
        await ways.call(client, code, **arguments)

    return way


def servers() -> list[int]:
    """Return the process ids of the servers that this process has started."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            parent = command.with_name("stat").read_text("ascii").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"mcp-sandbox\0serve" in command.read_bytes():
                found.append(int(command.parent.name))
        except OSError:
            continue  # it ended
    return found


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/status").read_text("ascii").split("VmRSS:")[1].split()[0]) << 10
