"""Many calls at once, and much data."""

from __future__ import annotations

import base64
import subprocess
import time
from typing import TYPE_CHECKING

import anyio

from benchmarks import ways
from benchmarks.bench import EMPTY, MINIMAL, Bench, calling, resident, servers
from benchmarks.measure import alternate, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DOCKER = "`docker run`"
GIVEN = bytes(range(256)) * (10 << 12)
"""10 MiB."""


async def sustained(bench: Bench) -> str:
    """Many calls at once, sustained, against as many `docker run` at once."""
    lines = [
        "### Calls at once (runc)",
        "",
        "| in flight | ours, per second | `docker run`, per second | ratio | p50 | p95 | p99 | errors |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for width in (4,) if bench.quick else (1, 2, 4, 8, 16, 32):
        count = max(12, 3 * width)
        server = ways.server(bench.folder / f"many-{width}", host=bench.host, ready=1, parallel=width)
        theirs, _, _ = await many(width, count, bench.docker_run("runc", MINIMAL, EMPTY))
        async with server as client:
            ours, took, errors = await many(width, count, calling(client, EMPTY))
        p50, p95, p99 = (f"{took[int(len(took) * part)] * 1e3:.0f} ms" for part in (0.5, 0.95, 0.99))
        lines.append(
            f"| {width} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} × | {p50} | {p95} | {p99} | {errors} |"
        )
        bench.expect(not errors and bench.slack * ours >= theirs, f"throughput at {width}")
    return "\n".join(lines) + "\n"


async def burst(bench: Bench) -> str:
    """As many calls as are kept ready, all at once, after a rest."""
    lines = [
        "### Bursts that ready sandboxes take",
        "",
        "| calls | median | last | ratio to one |",
        "|---:|---:|---:|---:|",
    ]
    async with ways.server(bench.folder / "burst", host=bench.host, ready=8, parallel=8) as client:
        alone = 0.0
        for width in (1, 2, 4, 8):
            await bench.ready(8)
            _, took, errors = await many(width, width, calling(client, EMPTY))
            middle = took[len(took) // 2]
            alone = alone or middle
            lines.append(
                f"| {width} | {middle * 1e3:.0f} ms | {took[-1] * 1e3:.0f} ms | {middle / alone:.1f} × |"
            )
            bench.expect(not errors, f"a burst of {width}")
    return "\n".join(lines) + "\n"


async def much_output(bench: Bench) -> str:
    """A gibibyte of output: counted in full by us, thrown away by docker's caller."""
    size = (64 << 20) if bench.quick else (1 << 30)
    code = f"import os\nblock = bytes(1 << 16)\nfor _ in range({size >> 16}): os.write(1, block)"
    async with ways.server(bench.folder / "output", host=bench.host, ready=1) as client:
        [pid] = servers()
        before = resident(pid)
        run = {
            "`docker run … > /dev/null`": bench.docker_run("runc", MINIMAL, code),
            "ours": calling(client, code),
        }
        series = await alternate(run, rounds=3, deadline=bench.until(60))
        grown = resident(pid) - before
    base = next(iter(run))
    bench.expect(series["ours"].ratio(series[base]) <= 1.5, "output ≤ 1.5 × docker run")
    bench.expect(grown < 30 << 20, "server grows by less than 30 MiB")
    text = table(f"{size >> 20} MiB of output", series, base)
    return text + f"\nThe server's memory grew by {grown / 2**20:.1f} MiB.\n"


async def in_and_out(bench: Bench) -> str:
    """10 MiB in and out: as a file and an artifact by us, through stdin and stdout by docker."""
    given = {"given": f"data:;base64,{base64.b64encode(GIVEN).decode('ascii')}"}
    copies = "import shutil; shutil.copy('given', 'made')"
    echoes = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    async with ways.server(bench.folder / "files", host=bench.host, ready=1, input_limit="32MiB") as client:
        run = {
            "`docker run -i`, a pipe": bench.docker_run("runc", MINIMAL, echoes, GIVEN),
            "ours, files": calling(client, copies, files=given),
        }
        series = await alternate(run, rounds=bench.rounds // 2, rest=bench.ready, deadline=bench.until(60))
    return table("10 MiB in and out", series, next(iter(run)))


async def many(width: int, count: int, way: Callable[[], Awaitable[None]]) -> tuple[float, list[float], int]:
    """Do something `count` times, `width` at once; return how many a second, how long each in order, and failures."""
    took: list[float] = []
    errors = 0
    limiter = anyio.CapacityLimiter(width)

    async def one() -> None:
        nonlocal errors
        async with limiter:
            began = time.perf_counter()
            try:
                await way()
            except (RuntimeError, subprocess.CalledProcessError):
                errors += 1
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return count / (time.perf_counter() - began), sorted(took), errors
