"""Every way in which a client can go: the server ends in time, no sandbox is left, the record tells the end."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.clients import noisy_server
from tests.clients.raw import configuration_file, serving
from tests.engine.sandboxes import SLEEP, none_left, runs, sleeping

if TYPE_CHECKING:
    from pathlib import Path

    from docker import APIClient

    from tests.clients.raw import Wires

pytestmark = pytest.mark.engine


async def test_the_end_of_stdin_ends_a_running_call_and_its_sandbox(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, engine_host)) as server:
        await server.begin("execute_shell", command=SLEEP)
        await sleeping(engine_client, tmp_path)
        server.close_stdin()
        assert await server.ended() == 0
    await none_left(engine_client, tmp_path)
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"]


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name
)
async def test_a_signal_ends_a_running_call_and_its_sandbox(
    number: signal.Signals, engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, engine_host)) as server:
        await server.begin("execute_shell", command=SLEEP)
        await sleeping(engine_client, tmp_path)
        server.process.send_signal(number)
        assert await server.ended() == 128 + number
    await none_left(engine_client, tmp_path)
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"]


@pytest.mark.parametrize("wires", ["pipes", "sockets", "one socket"])
async def test_a_client_that_reads_no_more_ends_a_running_call_and_its_sandbox(
    wires: Wires, engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, engine_host), wires=wires) as server:
        await server.begin("execute_shell", command=SLEEP)
        await sleeping(engine_client, tmp_path)
        await server.close_stdout()
        if wires == "one socket":
            server.close_stdin()  # the other name of the same thing
        assert await server.ended() == 0
    await none_left(engine_client, tmp_path)
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"]


async def test_running_and_waiting_calls_all_end_as_cancelled(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, server={"max_parallel": 2})
    async with serving(configuration) as server:
        for _ in range(5):
            await server.begin("execute_shell", command=SLEEP)
        await sleeping(engine_client, tmp_path, programs=2)
        server.close_stdin()
        await server.ended()
    await none_left(engine_client, tmp_path)
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"] * 5


@pytest.mark.parametrize("wires", ["pipes", "sockets"])
async def test_a_client_that_never_reads_its_answers_cannot_keep_the_server(
    wires: Wires, engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, server={"max_parallel": 8})
    async with serving(configuration, wires=wires) as server:
        server.stop_reading()
        full = [await server.begin("execute_python", code="print('x' * 1_000_000)") for _ in range(12)]
        await server.begin("execute_shell", command=SLEEP)
        await sleeping(engine_client, tmp_path)
        server.process.terminate()
        assert await server.ended() == 128 + signal.SIGTERM
        assert len(full) > len([message for message in server.messages if "result" in message])
        server.not_protocol.clear()  # the last answer was cut by the end
    await none_left(engine_client, tmp_path)


async def test_sandboxes_go_by_themselves_when_the_server_is_killed(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, engine_host, server={"max_parallel": 2})) as server:
        await server.begin("execute_shell", command=SLEEP)
        await server.begin("execute_shell", command=f"trap '' TERM HUP INT PIPE; setsid {SLEEP} & wait")
        await sleeping(engine_client, tmp_path, programs=2)
        server.process.kill()
        assert await server.ended() == -signal.SIGKILL
    await none_left(engine_client, tmp_path)


async def test_what_other_code_prints_never_reaches_the_client(engine_host: str, tmp_path: Path) -> None:
    configuration = configuration_file(tmp_path, engine_host)
    command = [sys.executable, noisy_server.__file__, "serve", "--config", str(configuration)]
    async with serving(configuration, command=command) as server:
        result = await server.python("print('wanted')")
        assert result["stdout"] == "wanted\n"
        server.close_stdin()
        assert await server.ended() == 0
    assert server.not_protocol == []
    assert {"stray print", "stray write", "stray child"} <= set(server.stderr.splitlines())


async def test_the_server_is_quiet_where_nothing_is_wrong(engine_host: str, tmp_path: Path) -> None:
    async with serving(configuration_file(tmp_path, engine_host)) as server:
        await server.python("print(1)")
        await server.shell("exit 3")
    assert server.stderr == ""


async def test_a_server_whose_client_is_gone_before_it_speaks_ends(engine_host: str, tmp_path: Path) -> None:
    async with serving(configuration_file(tmp_path, engine_host)) as server:
        with anyio.fail_after(5):
            server.close_stdin()
            await server.close_stdout()
            assert await server.ended() == 0
