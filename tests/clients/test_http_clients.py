"""The same server over HTTP: clients are given the same, and its end ends what runs."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from mcp import Client

from tests.clients.http_server import serving_http
from tests.clients.raw import ANSWER_SECONDS, END_SECONDS
from tests.clients.test_clients import configuration, said_to, same_for  # noqa: F401  # a fixture
from tests.engine.sandboxes import SLEEP, none_left, runs, sleeping

if TYPE_CHECKING:
    from pathlib import Path

    from docker import APIClient
    from mcp.client import Mode


pytestmark = pytest.mark.engine


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_official_client_is_given_the_same_as_over_stdio(mode: Mode, configuration: Path) -> None:  # noqa: F811  # the fixture
    with serving_http(configuration) as server, anyio.fail_after(4 * ANSWER_SECONDS):
        async with Client(server.transport(), mode=mode) as client:
            said = await said_to(client)
    await same_for(said, configuration)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_a_signal_ends_a_running_call_and_its_sandbox(
    number: signal.Signals,
    status: int,
    configuration: Path,  # noqa: F811
    engine_client: APIClient,
) -> None:
    folder = configuration.parent
    with serving_http(configuration) as server, ThreadPoolExecutor(1) as beside:
        call = beside.submit(server.call, "execute_shell", command=SLEEP)
        await sleeping(engine_client, folder)
        assert await anyio.to_thread.run_sync(server.end, number) == status
        with suppress(OSError, HTTPException):  # it may be told of the end, or be left alone with it
            call.result(END_SECONDS)
    await none_left(engine_client, folder)
    assert [run.status for run in await runs(folder)] == ["open" if number == signal.SIGKILL else "cancelled"]
