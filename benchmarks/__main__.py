"""`python -m benchmarks [--quick]`: everything side by side in one run, as a Markdown page of ratios."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import docker

from benchmarks import ways
from benchmarks.measure import alternate, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp import Client

EMPTY = "print(1)"
DATA = "import pandas, matplotlib.pyplot\nprint(len(pandas.DataFrame({'a': range(10)})))"
PRELOAD = ("numpy", "pandas", "matplotlib.pyplot")
READY_SECONDS = 20.0
"""Longest wait until a server has a sandbox ready again, between two calls that are measured."""


class Bench:
    """One run of the benchmarks against one engine."""

    def __init__(self, host: str, folder: Path, *, quick: bool) -> None:
        self.host = host
        self.folder = folder
        self.quick = quick
        self.engine = docker.APIClient(host, timeout=30)
        self.rounds = 5 if quick else 21
        self.failed: list[str] = []

    def until(self, seconds: float) -> float:
        """Return a moment of the monotonic clock; the quick form has a tenth of the time."""
        return time.monotonic() + (seconds / 10 if self.quick else seconds)

    async def ready(self, count: int = 1) -> None:
        """Wait until so many sandboxes wait and nothing else goes on, so that a ready call meets a ready sandbox."""
        with anyio.move_on_after(READY_SECONDS):
            while len(self.engine.containers(filters={"label": "io.mcp-sandbox.version"})) != count:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        await anyio.sleep(0.1)

    async def latency(self, runtime: str) -> str:
        """One small program: bare, by docker, by us cold and ready."""
        async with (
            ways.server(self.folder / f"cold-{runtime}", host=self.host, runtime=runtime) as cold,
            ways.server(self.folder / f"ready-{runtime}", host=self.host, runtime=runtime, ready=1) as ready,
        ):
            series = await alternate(
                {
                    "host: `python3 -c`": threaded(ways.on_the_host, EMPTY),
                    "`docker run --rm`, same flags": threaded(
                        ways.docker_run, self.host, runtime, "mcp-sandbox/minimal", ["python3", "-c", EMPTY]
                    ),
                    "ours, cold": partial(called, cold, EMPTY),
                    "ours, ready": partial(called, ready, EMPTY),
                },
                rounds=self.rounds,
                rest=self.ready,
                deadline=self.until(120),
            )
        self.expect(
            runtime == "runsc" or series["ours, ready"].ratio(series["host: `python3 -c`"]) <= 1.0,
            "ready ≤ host",
        )
        cold_ratio = series["ours, cold"].ratio(series["`docker run --rm`, same flags"])
        self.expect(cold_ratio <= 1.0, f"cold ≤ docker run ({runtime})")
        return table(f"One small program on {runtime}", series, "host: `python3 -c`")

    async def preloaded(self) -> str:
        """A program that imports pandas and matplotlib: bare, and by us with both preloaded."""
        standard = partial(ways.server, host=self.host, image="mcp-sandbox/standard")
        async with (
            standard(self.folder / "cold-data") as cold,
            standard(self.folder / "ready-data", ready=1, preload=PRELOAD) as ready,
        ):
            run = {
                "`docker run --rm`, same flags": threaded(
                    ways.docker_run, self.host, "runc", "mcp-sandbox/standard", ["python3", "-c", DATA]
                ),
                "ours, cold": partial(called, cold, DATA),
                "ours, ready and preloaded": partial(called, ready, DATA),
            }
            if has_data_packages():
                run = {"host: `python3 -c`": threaded(ways.on_the_host, DATA), **run}
            series = await alternate(run, rounds=self.rounds // 2, rest=self.ready, deadline=self.until(150))
        base = next(iter(run))
        limit = 0.25 if base.startswith("host") else 0.2
        self.expect(
            series["ours, ready and preloaded"].ratio(series[base]) <= limit, "preloaded ≤ 0.25 × host"
        )
        return table("A program that imports pandas and matplotlib", series, base)

    async def throughput(self) -> str:
        """Many calls at once, sustained, against as many `docker run` at once."""
        lines = [
            "### Calls at once (runc)",
            "",
            "| in flight | ours, per second | `docker run`, per second | ratio | p50 | p95 | errors |",
            "|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for width in (4,) if self.quick else (1, 2, 4, 8, 16, 32):
            count = max(8, 2 * width)
            async with ways.server(
                self.folder / f"many-{width}", host=self.host, ready=1, parallel=width
            ) as client:
                ours, latencies, errors = await many(width, count, partial(called, client, EMPTY))
            theirs, _, _ = await many(
                width,
                count,
                threaded(ways.docker_run, self.host, "runc", "mcp-sandbox/minimal", ["python3", "-c", EMPTY]),
            )
            latencies.sort()
            p50, p95 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.95)]
            lines.append(
                f"| {width} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} × | {p50 * 1e3:.0f} ms "
                f"| {p95 * 1e3:.0f} ms | {errors} |"
            )
            self.expect(not errors and ours >= 0.9 * theirs, f"throughput at {width}")
        return "\n".join(lines) + "\n"

    async def output(self) -> str:
        """A gibibyte of output: counted in full by us, thrown away by `cat`."""
        size = (64 << 20) if self.quick else (1 << 30)
        code = f"import os\nblock = bytes(1 << 16)\nfor _ in range({size >> 16}): os.write(1, block)"
        async with ways.server(self.folder / "output", host=self.host, ready=1) as client:
            before = resident(client)
            series = await alternate(
                {
                    "`docker run … > /dev/null`": threaded(
                        ways.docker_run, self.host, "runc", "mcp-sandbox/minimal", ["python3", "-c", code]
                    ),
                    "ours": partial(called, client, code),
                },
                rounds=3,
                deadline=self.until(60),
            )
            grown = resident(client) - before
        self.expect(
            series["ours"].ratio(series["`docker run … > /dev/null`"]) <= 1.5, "output ≤ 1.5 × docker run"
        )
        self.expect(grown < 30 << 20, "server grows by less than 30 MiB")
        text = table(f"{size >> 20} MiB of output", series, "`docker run … > /dev/null`")
        return text + f"\nThe server's memory grew by {grown / 2**20:.1f} MiB.\n"

    def expect(self, holds: bool, promise: str) -> None:
        """Remember a promise that did not hold."""
        if not holds:
            self.failed.append(promise)


def threaded(function: Callable[..., None], *arguments: object) -> Callable[[], Awaitable[None]]:
    """Return a way that blocks a thread instead of the event loop."""

    async def way() -> None:
        await anyio.to_thread.run_sync(partial(function, *arguments))

    return way


async def called(client: Client, code: str) -> None:
    """Run a program by a client of ours."""
    await ways.call(client, code)


async def many(width: int, count: int, way: Callable[[], Awaitable[None]]) -> tuple[float, list[float], int]:
    """Do something `count` times, `width` at once; return how many a second, how long each, how many failed."""
    latencies: list[float] = []
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
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return count / (time.perf_counter() - began), latencies, errors


def resident(client: Client) -> int:
    """Return the resident memory of our server processes, in bytes."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = status.with_name("cmdline").read_bytes()
            if b"mcp-sandbox\0serve" in command:
                total += int(status.read_text().split("VmRSS:")[1].split()[0]) << 10
        except (OSError, IndexError):
            continue
    return total


def has_data_packages() -> bool:
    """Tell whether the host's own Python can run the data program, to compare with."""
    probe = subprocess.run([ways.PYTHON, "-c", DATA], capture_output=True, check=False)
    return probe.returncode == 0


def machine(engine: docker.APIClient) -> str:
    """Say what was measured on."""
    info = engine.info()
    return (
        f"{os.cpu_count()} cores, Linux {platform.release()}, Docker {info['ServerVersion']} "
        f"({info['Driver']}, cgroup v{info.get('CgroupVersion', '1')}), Python {platform.python_version()}"
    )


async def main() -> int:
    """Run what was asked for; fail where a promise does not hold."""
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("--quick", action="store_true", help="a minute, for gross regressions")
    parser.add_argument("--out", type=Path, help="write the page to this file as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-bench-") as folder:
        bench = Bench(os.environ["DOCKER_HOST"], Path(folder), quick=arguments.quick)
        parts = [f"Measured on {machine(bench.engine)}. Ratios are within one run.\n"]
        parts.append(await bench.latency("runc"))
        if not arguments.quick:
            parts.append(await bench.latency("runsc"))
            parts.append(await bench.preloaded())
        parts.append(await bench.throughput())
        parts.append(await bench.output())
    page = "\n".join(parts)
    print(page)
    if arguments.out:
        arguments.out.write_text(page, encoding="utf-8")
    for promise in bench.failed:
        print(f"does not hold: {promise}", file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
