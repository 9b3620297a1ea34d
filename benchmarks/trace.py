"""`python -m benchmarks.trace`: where each millisecond of a cold and of a ready call goes."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mcp_sandbox.app import running
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings, EngineSettings
from mcp_sandbox.engines.docker import engine
from mcp_sandbox.guest import session
from mcp_sandbox.model import ExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 15


class Stopwatch:
    """Adds up what named steps took."""

    def __init__(self) -> None:
        self.steps: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Time a block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.steps[name].append(time.perf_counter() - began)

    def timed(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        """Return a function that is timed."""

        def wrapper(*arguments: object, **keywords: object) -> object:
            with self.around(name):
                return function(*arguments, **keywords)

        return wrapper

    def timed_async(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        """Return a coroutine function that is timed."""

        async def wrapper(*arguments: object, **keywords: object) -> object:
            with self.around(name):
                return await function(*arguments, **keywords)  # type: ignore[misc]

        return wrapper

    def table(self, title: str) -> str:
        """Return the medians as Markdown."""
        lines = [f"### {title}", "", "| step | median |", "|---|---:|"]
        lines += [
            f"| {name} | {statistics.median(seconds) * 1e3:.1f} ms |" for name, seconds in self.steps.items()
        ]
        return "\n".join(lines) + "\n"


async def trace(folder: Path, *, ready: int) -> Stopwatch:
    """Run a small program again and again and time its steps."""
    watch = Stopwatch()
    launch, talk = engine._Launch, session._Session
    launch._create = watch.timed("container: create", launch._create)  # type: ignore[method-assign,assignment]
    launch._attach = watch.timed("container: attach", launch._attach)  # type: ignore[method-assign,assignment]
    launch.begin = watch.timed("container: create, attach and start", launch.begin)  # type: ignore[method-assign,assignment]
    talk.start = watch.timed_async("program: sent, until it starts", talk.start)  # type: ignore[method-assign,assignment]
    talk.listen = watch.timed_async("program: until its end is told", talk.listen)  # type: ignore[method-assign,assignment]
    configuration = Configuration(
        engine=EngineSettings(host=os.environ["DOCKER_HOST"]),
        audit=AuditSettings(path=str(folder / f"record-{ready}")),
        policy=Policy(image="mcp-sandbox/minimal", ready=ready),
    )
    request = ExecutionRequest(language="python", code="print(1)")
    async with running(configuration, os.environ, origin="mcp") as executor:
        for _ in range(ROUNDS):
            if ready:
                await anyio.sleep(2)
            with watch.around("whole call, without MCP"):
                await executor.execute(request)
    return watch


def main() -> None:
    """Print both tables, each from a process state of its own."""
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-trace-") as folder:
        print(anyio.run(lambda: trace(Path(folder), ready=0)).table("A cold call"))
        print(anyio.run(lambda: trace(Path(folder), ready=1)).table("A ready call"))


if __name__ == "__main__":
    main()
