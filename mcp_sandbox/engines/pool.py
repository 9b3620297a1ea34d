"""An engine around an engine that keeps never-used sandboxes started, so that a call need not wait for one.

Each is used once and replaced; a used one is never handed out again. What differs in any way from the kept
spec is launched by the engine below, as if this one were not there.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio

from mcp_sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from mcp_sandbox.sandbox import Engine, Sandbox, SandboxSpec

REST_SECONDS = 0.25
"""A replacement waits until nothing runs, or this long after the last launch: starting one costs as much CPU
as a small program, and under a flood of calls it would only take from them what it gives."""
RETRY_SECONDS = 30.0
"""After a start that failed, and that no call waited for, the next call meets the failure and says what to do."""

_log = logging.getLogger(__name__)


class PooledEngine:
    """Keeps a number of started sandboxes of one spec."""

    def __init__(
        self,
        engine: Engine,
        spec: SandboxSpec | None,
        *,
        warm: SandboxSpec | None = None,
        ready: int,
        idle_seconds: float,
    ) -> None:
        self._engine = engine
        self._spec = spec
        """What is kept; None until `turn_to` says."""
        self._warm = warm or spec
        """What is launched to wait for `spec` to be asked for; differs in what it does while it waits alone."""
        self._ready = ready
        self._idle_seconds = idle_seconds
        self._kept: list[_Kept] = []
        self._in_use = 0
        self._changed = anyio.Event()
        self._tasks = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._refill)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:  # a cancelled server raises here, and its containers are still to be seen off
            await self._engine.__aexit__(exc_type, exc, traceback)
        return None

    def turn_to(self, spec: SandboxSpec, *, warm: SandboxSpec | None = None) -> None:
        """Keep this from now on, and let go what waits for another to be asked for."""
        if spec == self._spec:
            return
        self._spec, self._warm = spec, warm or spec
        for kept in self._kept:
            kept.done.set()
        self._kept.clear()
        self._wake()

    @asynccontextmanager
    async def launch(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """Yield a sandbox that waits already, else one that the engine below starts now."""
        self._in_use += 1
        kept = self._take(spec)
        try:
            if kept:
                yield await kept.started()
            else:
                async with self._engine.launch(spec) as cold:
                    yield cold
        finally:
            self._in_use -= 1
            if kept:
                kept.done.set()
            self._wake()

    def _take(self, spec: SandboxSpec) -> _Kept | None:
        """Return the longest-kept sandbox that is alive, or one that is on its way; it is no longer kept."""
        if spec != self._spec:
            return None
        while self._kept:
            kept = self._kept.pop(0)
            if kept.error:
                continue  # it failed before this call was made: the engine may be back
            if kept.sandbox is None or kept.sandbox.alive:
                return kept
            kept.done.set()
        return None

    async def _refill(self) -> None:
        """Keep the number up, without taking CPU from programs that run."""
        while True:
            self._changed = anyio.Event()
            if self._in_use:
                with anyio.move_on_after(REST_SECONDS):
                    await self._changed.wait()
                    continue
            while self._warm and len(self._kept) < self._ready:
                kept = _Kept()
                self._kept.append(kept)
                self._tasks.start_soon(self._keep, kept, self._warm)
            await self._changed.wait()

    async def _keep(self, kept: _Kept, spec: SandboxSpec) -> None:
        """Own one sandbox from its start to its end, whoever uses it in between."""
        try:
            async with self._engine.launch(spec) as sandbox:
                kept.sandbox = sandbox
                kept.settled.set()
                with anyio.move_on_after(self._idle_seconds):
                    await kept.done.wait()
                    return
                if kept in self._kept:
                    # Nobody came; the next call is served cold and this one made anew.
                    self._kept.remove(kept)
                    return
                await kept.done.wait()
        except SandboxError as error:
            _log.info("no sandbox could be made ready: %s", error)
            kept.error = error
            kept.settled.set()
            await anyio.sleep(RETRY_SECONDS)
            if kept in self._kept:
                self._kept.remove(kept)

    def _wake(self) -> None:
        self._changed.set()


class _Kept:
    """A sandbox that is kept, or on its way."""

    def __init__(self) -> None:
        self.sandbox: Sandbox | None = None
        self.error: SandboxError | None = None
        self.settled = anyio.Event()
        self.done = anyio.Event()

    async def started(self) -> Sandbox:
        """Wait until it is there.

        Raises:
            SandboxError: It could not be started; a second start would make the caller wait twice as long.
        """
        await self.settled.wait()
        if self.sandbox is None:
            raise self.error or SandboxError("a sandbox that was being made ready was given up.")
        return self.sandbox
