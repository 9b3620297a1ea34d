"""A client takes a call back, at every moment of it: no sandbox is left, no answer comes, the server serves on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.clients.raw import (
    ANSWER_SECONDS,
    RawClient,
    configuration_file,
    environment,
    server_command,
    serving,
)
from tests.engine.sandboxes import SLEEP, none_left, runs, sleeping, some_left
from tests.engine_proxy import EngineProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from docker import APIClient
    from mcp.client import Mode

pytestmark = pytest.mark.engine

MAX_PARALLEL = 4  # of a server whose configuration says nothing
MOMENTS = {
    "create": "POST .*/containers/create",
    "attach": "POST .*/containers/[^/]+/attach",
    "start": "POST .*/containers/[^/]+/start",
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cancellation")


@pytest.fixture(scope="module")
async def proxy(engine_host: str, folder: Path) -> AsyncIterator[EngineProxy]:
    async with EngineProxy(engine_host, folder / "engine.sock").listening() as listening:
        yield listening


@pytest.fixture(scope="module")
async def server(proxy: EngineProxy, folder: Path) -> AsyncIterator[RawClient]:
    """One server for most of this: it serves on, or the next test knows."""
    async with serving(configuration_file(folder, proxy.host, ready=0)) as client:
        yield client


@pytest.mark.parametrize("side", ["request", "answer"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_call_taken_back_before_its_program_runs_leaves_nothing(
    moment: str,
    side: Literal["request", "answer"],
    server: RawClient,
    proxy: EngineProxy,
    engine_client: APIClient,
    folder: Path,
) -> None:
    hold = proxy.hold(MOMENTS[moment], moment=side)
    taken_back = await server.begin("execute_shell", command="echo taken back")
    await hold.until_reached()
    await server.cancel(taken_back)
    # While the engine still thinks about the first.
    assert (await server.shell("echo next"))["stdout"] == "next\n"
    hold.release()
    await none_left(engine_client, folder)
    assert (await server.shell("echo and on"))["stdout"] == "and on\n"
    assert server.answers_to(taken_back) == []
    assert [run.status for run in await runs(folder)][:3] == ["exited", "exited", "cancelled"]


async def test_a_call_taken_back_while_its_program_runs_leaves_nothing(
    server: RawClient, engine_client: APIClient, folder: Path
) -> None:
    taken_back = await server.begin("execute_shell", command=f"trap '' TERM; {SLEEP} & wait")
    await sleeping(engine_client, folder)
    await server.cancel(taken_back)
    await none_left(engine_client, folder)
    assert (await server.shell("echo next"))["stdout"] == "next\n"
    assert server.answers_to(taken_back) == []
    assert [run.status for run in await runs(folder)][:2] == ["exited", "cancelled"]


@pytest.mark.parametrize("side", ["request", "answer"])
async def test_a_call_taken_back_while_its_sandbox_is_removed_is_answered_once_at_most(
    side: Literal["request", "answer"],
    server: RawClient,
    proxy: EngineProxy,
    engine_client: APIClient,
    folder: Path,
) -> None:
    hold = proxy.hold("POST .*/wait", moment=side)
    taken_back = await server.begin("execute_shell", command="echo done")
    await hold.until_reached()
    await server.cancel(taken_back)
    assert (await server.shell("echo next"))["stdout"] == "next\n"
    hold.release()
    await none_left(engine_client, folder)
    assert len(server.answers_to(taken_back)) <= 1


async def test_calls_taken_back_while_they_wait_for_their_turn_never_run(
    server: RawClient, engine_client: APIClient, folder: Path
) -> None:
    running = [await server.begin("execute_shell", command=SLEEP) for _ in range(MAX_PARALLEL)]
    await sleeping(engine_client, folder, programs=MAX_PARALLEL)
    waiting = await server.begin("execute_shell", command="echo never")
    for taken_back in (waiting, *running):
        await server.cancel(taken_back)
    assert (await server.shell("echo next"))["stdout"] == "next\n"
    assert [answer for call in (waiting, *running) for answer in server.answers_to(call)] == []
    await none_left(engine_client, folder)
    assert [run.status for run in await runs(folder)][: MAX_PARALLEL + 2] == ["exited"] + ["cancelled"] * (
        MAX_PARALLEL + 1
    )


async def test_a_ready_sandbox_that_was_on_its_way_to_a_call_taken_back_is_used_by_no_other(
    proxy: EngineProxy, engine_client: APIClient, tmp_path: Path
) -> None:
    hold = proxy.hold(MOMENTS["create"], moment="answer")
    async with serving(configuration_file(tmp_path, proxy.host, ready=1)) as server:
        await hold.until_reached()
        taken_back = await server.begin("execute_shell", command="echo taken back")
        await server.cancel(taken_back)
        hold.release()
        names = {(await server.shell("cat /proc/sys/kernel/random/uuid; ls -a"))["stdout"] for _ in range(3)}
        assert len(names) == 3
        assert server.answers_to(taken_back) == []
    await none_left(engine_client, tmp_path)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_that_the_official_client_gives_up_leaves_nothing(
    mode: Mode, engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    command, *arguments = server_command(configuration_file(tmp_path, engine_host, ready=0))
    parameters = StdioServerParameters(command=command, args=arguments, env=environment(tmp_path))
    with anyio.fail_after(2 * ANSWER_SECONDS):
        async with Client(parameters, mode=mode) as client:
            async with anyio.create_task_group() as calls:
                calls.start_soon(client.call_tool, "execute_shell", {"command": SLEEP})
                await sleeping(engine_client, tmp_path)
                calls.cancel_scope.cancel()
            await none_left(engine_client, tmp_path)
            result = await client.call_tool("execute_shell", {"command": "echo next"})
            assert result.structured_content is not None
            assert result.structured_content["stdout"] == "next\n"


async def test_a_client_that_goes_while_the_engine_does_not_answer_is_not_kept(
    proxy: EngineProxy, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, proxy.host, ready=0)) as server:
        create, remove = proxy.hold(MOMENTS["create"], moment="answer"), proxy.hold("DELETE .*/containers/")
        await server.begin("execute_shell", command=SLEEP)
        await create.until_reached()
        server.close_stdin()
        assert await server.ended() == 0
        await remove.until_reached()
        create.release()
        remove.release()
    await none_left(engine_client, tmp_path)
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"]


async def test_a_sandbox_made_after_its_server_died_is_removed_by_the_next(
    proxy: EngineProxy, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, proxy.host, ready=0)
    async with serving(configuration) as server:
        hold = proxy.hold(MOMENTS["create"])
        await server.begin("execute_shell", command=SLEEP)
        await hold.until_reached()
        server.process.kill()
        await server.ended()
    hold.release()
    # Created, never started, and nobody is left who knows of it: no lease ends that.
    await some_left(engine_client, tmp_path)
    async with serving(configuration):
        await none_left(engine_client, tmp_path)
