"""What one call takes."""

from __future__ import annotations

import subprocess
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread

from benchmarks import peers, ways
from benchmarks.bench import EMPTY, MINIMAL, STANDARD, Bench, calling, threaded
from benchmarks.measure import Series, alternate, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

DATA = "import pandas, matplotlib.pyplot\nprint(len(pandas.DataFrame({'a': range(10)})))"
PRELOAD = ["numpy", "pandas", "matplotlib.pyplot"]
HOST, DOCKER = "host: `python3 -c`", "`docker run --rm`, same flags"


async def small_program(bench: Bench, runtime: str) -> str:
    """One small program: bare, by docker, by others, by us cold and ready."""
    async with AsyncExitStack() as stack:
        server = partial(ways.server, host=bench.host, runtime=runtime)
        cold = await stack.enter_async_context(server(bench.folder / f"cold-{runtime}"))
        ready = await stack.enter_async_context(server(bench.folder / f"ready-{runtime}", ready=1))
        run = {
            HOST: threaded(ways.on_the_host, EMPTY),
            DOCKER: bench.docker_run(runtime, MINIMAL, EMPTY),
            "ours, cold": calling(cold, EMPTY),
            "ours, ready": calling(ready, EMPTY),
        }
        series = await alternate(run, rounds=bench.rounds, rest=bench.ready, deadline=bench.until(120))
    bench.expect(
        runtime == "runsc" or series["ours, ready"].ratio(series[HOST]) <= bench.slack, "ready ≤ host"
    )
    bench.expect(series["ours, cold"].ratio(series[DOCKER]) <= bench.slack, f"cold ≤ docker run ({runtime})")
    return table(f"One small program on {runtime}", series, HOST)


async def others(bench: Bench) -> str:
    """The same by others: a few rounds, for they take seconds."""
    unavailable: list[Series] = []
    async with AsyncExitStack() as stack:
        cold = await stack.enter_async_context(ways.server(bench.folder / "cold-peers", host=bench.host))
        run: dict[str, Callable[[], Awaitable[None]]] = {"ours, cold": calling(cold, EMPTY)}
        known: dict[str, AbstractAsyncContextManager[Callable[[str], Awaitable[None]]]] = {
            "llm-sandbox, Docker": peers.llm_sandbox(bench.host, STANDARD),
            "mcp-run-python (Pyodide, no container)": peers.mcp_run_python(),
        }
        for name, peer in known.items():
            try:
                run[name] = partial(await stack.enter_async_context(peer), EMPTY)
            except* peers.UNAVAILABLE:
                unavailable.append(Series(name, note="could not be started here"))
        series = await alternate(run, rounds=3, deadline=bench.until(60))
    if (name := "llm-sandbox, Docker") in series:
        bench.expect(series[name].ratio(series["ours, cold"]) >= 5.0, "cold ≥ 5 × faster than llm-sandbox")
    return table("Others", {**series, **{one.name: one for one in unavailable}}, "ours, cold")


async def data_program(bench: Bench) -> str:
    """A program that imports pandas and matplotlib: bare, and by us with both preloaded."""
    run: dict[str, Callable[[], Awaitable[None]]] = {}
    try:
        python = await anyio.to_thread.run_sync(peers.environment, "data", *peers.data_packages())
        run[HOST] = threaded(ways.on_the_host, DATA, python)
    except subprocess.SubprocessError:
        pass  # then only the docker command is there to compare with
    standard = partial(ways.server, host=bench.host, image=STANDARD)
    async with (
        standard(bench.folder / "cold-data") as cold,
        standard(bench.folder / "ready-data", ready=1, preload=PRELOAD) as ready,
    ):
        run |= {
            DOCKER: bench.docker_run("runc", STANDARD, DATA),
            "ours, cold": calling(cold, DATA),
            "ours, ready and preloaded": calling(ready, DATA),
        }
        series = await alternate(run, rounds=bench.rounds // 2, rest=bench.ready, deadline=bench.until(150))
    base = next(iter(run))
    bench.expect(series["ours, ready and preloaded"].ratio(series[base]) <= 0.25, "preloaded ≤ 0.25 × host")
    return table("A program that imports pandas and matplotlib", series, base)
