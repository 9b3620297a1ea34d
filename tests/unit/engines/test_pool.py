"""Sandboxes that are kept started: used once, replaced, never lost, never in the way of a failure."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from mcp_sandbox.engines.pool import PooledEngine
from mcp_sandbox.errors import EngineUnreachable, SandboxError
from tests.fakes import FakeEngine, Process
from tests.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp_sandbox.sandbox import SandboxSpec

pytestmark = pytest.mark.anyio

OTHER = SPEC.model_copy(update={"image": "another/image"})
WARM = SPEC.model_copy(update={"environment": (("WARM", "1"),)})


async def wait(process: Process) -> None:
    """Play a process that waits to be asked, and ends when it is told to."""
    while await process.read() not in (b"", b"end"):
        pass


@asynccontextmanager
async def pooled(
    engine: FakeEngine, *, ready: int = 1, idle_seconds: float = 600, warm: SandboxSpec | None = None
) -> AsyncIterator[PooledEngine]:
    with anyio.fail_after(20):
        async with PooledEngine(engine, SPEC, warm=warm, ready=ready, idle_seconds=idle_seconds) as pool:
            yield pool
    assert not engine.alive
    assert engine.events[-1] == "engine left"


async def settled(engine: FakeEngine, alive: int) -> set[str]:
    """Wait until so many sandboxes are alive, and stay so many when everybody has had a turn."""
    while len(engine.alive) != alive:
        await anyio.wait_all_tasks_blocked()
    await anyio.wait_all_tasks_blocked()
    assert len(engine.alive) == alive
    return set(engine.alive)


async def test_a_call_gets_a_sandbox_that_waits_already() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine) as pool:
        waiting = await settled(engine, 1)
        async with pool.launch(SPEC) as sandbox:
            assert {sandbox.name} == waiting


async def test_as_many_wait_as_are_wanted_and_a_used_one_is_replaced() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine, ready=3) as pool:
        first = await settled(engine, 3)
        async with pool.launch(SPEC) as sandbox:
            used = sandbox.name
        second = await settled(engine, 3)
        assert used in first
        assert used not in second
        assert len(second - first) == 1


async def test_none_is_used_twice() -> None:
    engine = FakeEngine(wait)
    used: list[str] = []
    async with pooled(engine, ready=2) as pool:

        async def call() -> None:
            async with pool.launch(SPEC) as sandbox:
                used.append(sandbox.name)
                await sandbox.send(b"work")

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(call)
        for _ in range(5):
            await call()
    assert len(used) == len(set(used)) == 25


async def test_what_asks_for_another_sandbox_gets_that_one() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine) as pool:
        waiting = await settled(engine, 1)
        async with pool.launch(OTHER) as sandbox:
            assert sandbox.name not in waiting
            assert engine.specs[-1] == OTHER


async def test_what_waits_may_be_launched_otherwise_than_what_is_launched_for_a_call() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine, warm=WARM) as pool:
        await settled(engine, 1)
        assert engine.specs == [WARM]
        async with pool.launch(SPEC), pool.launch(SPEC):
            assert engine.specs == [WARM, SPEC]


async def test_one_that_died_while_it_waited_is_not_handed_out() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine) as pool:
        (dead,) = await settled(engine, 1)
        engine.kill(dead)
        await anyio.wait_all_tasks_blocked()
        async with pool.launch(SPEC) as sandbox:
            assert sandbox.name != dead
            await sandbox.send(b"work")


async def test_one_that_is_on_its_way_is_waited_for_and_not_started_twice() -> None:
    go_on = anyio.Event()
    engine = FakeEngine(wait, until=go_on)
    async with pooled(engine) as pool, anyio.create_task_group() as tasks:
        await engine.launching.wait()

        async def call() -> None:
            async with pool.launch(SPEC):
                pass

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        assert len(engine.specs) == 1
        go_on.set()


async def test_a_start_that_fails_is_told_to_the_call_that_meets_it() -> None:
    down = EngineUnreachable("nothing answers.")
    engine = FakeEngine(wait, refuses=lambda spec: down)
    async with pooled(engine) as pool:
        for _ in range(3):
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(EngineUnreachable) as caught:
                async with pool.launch(SPEC):
                    pass
            assert caught.value is down


async def test_a_call_that_waits_for_a_start_is_told_of_its_failure_and_not_kept_for_a_second_one() -> None:
    go_on = anyio.Event()
    down = EngineUnreachable("the engine did not start a container within 40 s.")
    engine = FakeEngine(wait, refuses=lambda spec: down, until=go_on)
    told: list[SandboxError] = []
    async with pooled(engine) as pool, anyio.create_task_group() as tasks:
        await engine.launching.wait()

        async def call() -> None:
            try:
                async with pool.launch(SPEC):
                    pass
            except SandboxError as error:
                told.append(error)
                assert len(engine.specs) == 1

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert told == [down]


async def test_an_engine_that_comes_up_serves_the_next_call() -> None:
    errors: list[SandboxError | None] = [EngineUnreachable("nothing answers.")]
    engine = FakeEngine(wait, refuses=lambda spec: errors[-1])
    async with pooled(engine) as pool:
        await anyio.wait_all_tasks_blocked()
        errors.append(None)
        async with pool.launch(SPEC) as sandbox:
            await sandbox.send(b"work")


async def test_one_that_nobody_used_for_long_is_let_go() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine, idle_seconds=0.05) as pool:
        await engine.removal.wait()
        assert not engine.alive
        async with pool.launch(SPEC) as sandbox:
            await sandbox.send(b"work")


async def test_one_in_use_is_not_let_go_however_long_it_takes() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine, idle_seconds=0.05) as pool, pool.launch(SPEC) as sandbox:
        await anyio.sleep(0.2)
        await sandbox.send(b"work")
        assert sandbox.alive


async def test_a_call_that_fails_gives_its_sandbox_up_and_is_told_of_its_own_failure() -> None:
    engine = FakeEngine(wait)
    async with pooled(engine) as pool:
        await settled(engine, 1)
        with pytest.raises(KeyError):
            async with pool.launch(SPEC) as sandbox:
                raise KeyError("ours")
        await settled(engine, 1)
        assert sandbox.name not in engine.alive


@pytest.mark.parametrize("on_its_way", [False, True])
async def test_a_cancelled_call_leaves_nothing(on_its_way: bool) -> None:
    go_on = anyio.Event()
    engine = FakeEngine(wait, until=go_on)
    if not on_its_way:
        go_on.set()
    async with pooled(engine) as pool:
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                async with pool.launch(SPEC):
                    await anyio.sleep_forever()

            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        go_on.set()
        await settled(engine, 1)


async def test_a_cancelled_server_still_waits_for_its_last_sandboxes_to_go() -> None:
    engine = FakeEngine(wait)
    with anyio.move_on_after(0.2) as server:
        async with PooledEngine(engine, SPEC, ready=2, idle_seconds=600):
            while True:
                await anyio.lowlevel.checkpoint()
    assert server.cancelled_caught
    assert not engine.alive
    assert engine.events[-1] == "engine left"
