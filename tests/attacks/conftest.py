"""A campaign: the attacks that were asked for, under way while the tests wait for their ends."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import MIB, AuditSettings, EngineSettings, ServerSettings
from mcp_sandbox.doctor.bait import bait
from mcp_sandbox.engines.docker.connection import connect
from tests.attacks.campaign import AT_ONCE, Campaign
from tests.conftest import IMAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIGHT = {
    "memory": 512 * MIB,
    "scratch_size": 64 * MIB,
    "tmp_size": 16 * MIB,
    "shm_size": 16 * MIB,
    "inodes": 4096,
    "nofile": 256,
    "output_limit": 64 * 2**10,
}
"""Limits so low that what runs into them does so soon."""
READY = {"ready": 2, "preload": ("json", "sqlite3")}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def product_of(host: str) -> str:
    connection = connect(host, {})
    with closing(connection), connection.client() as client:
        return connection.facts(client).product


@pytest.fixture(scope="module")
async def campaign(
    request: pytest.FixtureRequest, engine_host: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Campaign]:
    """Every attack of this module's selected tests, under way."""
    wanted = [
        (item.callspec.params["attack"], item.callspec.params["place"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
        and "attack" in item.callspec.params
    ]
    async with AsyncExitStack() as stack:
        executors = {}
        mounts = (bait(tmp_path_factory.mktemp("shown") / "bait"),)
        for place in dict.fromkeys(place for _, place in wanted):
            runtime, _, ready = place.partition(" ")
            configuration = Configuration(
                engine=EngineSettings(host=engine_host),
                server=ServerSettings(max_parallel=AT_ONCE, max_queued=4096),
                audit=AuditSettings(path=str(tmp_path_factory.mktemp("audit"))),
                policy=Policy.model_validate(
                    {"image": IMAGE, "runtime": runtime, "mounts": mounts, **TIGHT, **READY}
                ),
            )
            executors[place] = await stack.enter_async_context(
                running(configuration, os.environ, origin="mcp" if ready else "cli")
            )
        campaign = Campaign(executors, product_of(engine_host), wanted)
        async with anyio.create_task_group() as tasks:
            campaign.start(tasks)
            yield campaign
            tasks.cancel_scope.cancel()
