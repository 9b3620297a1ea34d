"""How a call's cost grows with what there is."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from benchmarks import ways
from benchmarks.bench import EMPTY, Bench

if TYPE_CHECKING:
    from pathlib import Path

    from mcp import Client

FILES = (10, 1000, 30_000)
OUTPUTS = (1, 1 << 10, 64 << 10)
"""KiB."""


async def with_the_workspace(bench: Bench) -> str:
    """A ready call in folders of more and more files."""
    lines = ["### Files in the workspace", "", "| files | ready call | ratio |", "|---:|---:|---:|"]
    first = 0.0
    for count in FILES:
        path = bench.folder / f"workspace-{count}"
        fill(path, count)
        server = ways.server(bench.folder / f"files-{count}", host=bench.host, ready=1, path=str(path))
        async with server as client:
            took = await median(bench, client, EMPTY)
        first = first or took
        lines.append(f"| {count:,} | {took * 1e3:.1f} ms | {took / first:.2f} × |")
    return "\n".join(lines) + "\n"


async def with_the_output(bench: Bench) -> str:
    """A ready call that prints more and more."""
    lines = ["### Size of the output", "", "| output | ready call | ratio |", "|---:|---:|---:|"]
    first = 0.0
    async with ways.server(bench.folder / "prints", host=bench.host, ready=1) as client:
        for size in OUTPUTS:
            code = f"import os\nline = b'x' * 1023 + b'\\n'\nfor _ in range({size}): os.write(1, line)"
            took = await median(bench, client, code)
            first = first or took
            lines.append(f"| {size:,} KiB | {took * 1e3:.1f} ms | {took / first:.2f} × |")
    return "\n".join(lines) + "\n"


async def median(bench: Bench, client: Client, code: str) -> float:
    """Return the median of some ready calls, in seconds."""
    took = []
    for _ in range(bench.rounds // 2):
        await bench.ready()
        began = time.perf_counter()
        await ways.call(client, code)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def fill(folder: Path, count: int) -> None:
    """Make a folder with so many small files, a hundred in each folder below."""
    for number in range(count):
        below = folder / f"{number // 100:04}"
        if number % 100 == 0:
            below.mkdir(parents=True)
        (below / f"{number}.txt").write_text(f"line {number}\n", encoding="ascii")
