"""What a server takes while nobody calls it: time to start, memory, CPU."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from mcp import Client, StdioServerParameters

from benchmarks import ways
from benchmarks.bench import EMPTY, OURS, Bench, resident, servers
from benchmarks.measure import alternate, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

IDLE_SECONDS = 5.0
MIB = 2**20


async def start_up(bench: Bench) -> str:
    """From the start of the process until `initialize` is answered, ours and the least that a server is."""
    bare = Path(__file__).with_name("bare_server.py")
    async with ways.server(bench.folder / "start", host=bench.host):
        pass  # it writes the configuration
    run: dict[str, Callable[[], Awaitable[None]]] = {
        "a bare server of the mcp SDK": partial(
            started, StdioServerParameters(command=sys.executable, args=[str(bare)])
        ),
        "ours": partial(started, ways.our_server(bench.folder / "start" / "config.toml")),
    }
    series = await alternate(run, rounds=bench.rounds // 2, deadline=bench.until(60))
    base, ours = series.values()
    bench.expect(ours.median - base.median <= 0.15, "start-up ≤ bare server + 150 ms")
    return table("Start-up", series, base.name)


async def started(parameters: StdioServerParameters) -> None:
    """Start a server and talk to it once; ending it is part of it, for both."""
    async with Client(parameters):
        pass


async def at_rest(bench: Bench) -> str:
    """Memory of the server and of a waiting sandbox, and CPU that the server takes while nothing happens."""
    async with ways.server(bench.folder / "rest", host=bench.host, ready=1) as client:
        for _ in range(3):
            await ways.call(client, EMPTY)
        await bench.ready()
        [pid] = servers()
        before = cpu_seconds(pid)
        await anyio.sleep(IDLE_SECONDS)
        idle = (cpu_seconds(pid) - before) / IDLE_SECONDS
        server = resident(pid)
        [container] = bench.engine.containers(filters=OURS)
        waiting = anonymous(bench.engine.stats(container["Id"], stream=False))
    bench.expect(server <= 110 * MIB, "server ≤ 110 MiB")
    bench.expect(waiting <= 12 * MIB, "waiting sandbox ≤ 12 MiB")
    bench.expect(idle < 0.005, "an idle server takes no CPU")  # the kernel counts in hundredths of a second
    return (
        "### At rest\n\n| | |\n|---|---:|\n"
        f"| memory of the server | {server / MIB:.1f} MiB |\n"
        f"| memory of a waiting sandbox, of its own | {waiting / MIB:.1f} MiB |\n"
        f"| CPU of the server | {idle:.1%} |\n"
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous(stats: dict[str, Any]) -> int:
    """Return the bytes that a container's processes hold, by what the engine tells of its control group."""
    memory = stats["memory_stats"]["stats"]
    held: int = memory["total_rss"] if "total_rss" in memory else memory["anon"]
    return held
