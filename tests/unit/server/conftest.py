"""A server without an engine: what it says of itself needs none."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from mcp import Client

from mcp_sandbox.app import running
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings, EngineSettings
from mcp_sandbox.server import create_server
from mcp_sandbox.server.flight import Flights

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from mcp.client import Mode


@pytest.fixture
def connected(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Return a maker of clients, each with a server of its own under a policy of these keys."""

    @asynccontextmanager
    async def connect(mode: Mode = "2026-07-28", **policy: object) -> AsyncIterator[Client]:
        configuration = Configuration(
            engine=EngineSettings(host=f"unix://{tmp_path}/none.sock"),
            audit=AuditSettings(path=str(tmp_path / "audit")),
            policy=Policy.model_validate({"ready": 0, **policy}),
        )
        async with (
            running(configuration, os.environ, origin="cli") as executor,
            Flights(executor, reply_within_seconds=30) as flights,
            Client(create_server(flights), mode=mode, raise_exceptions=True) as client,
        ):
            yield client

    return connect
