"""An executor under the real policy on the real engine, whose runs are not the user's.

They stay off the record, and get none of the workspace's secrets.
"""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp_sandbox.app import running
from mcp_sandbox.config.settings import AuditSettings, ServerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.executor import Executor

MOST_AT_ONCE = 4


@asynccontextmanager
async def trial(configuration: Configuration, environ: Mapping[str, str]) -> AsyncIterator[Executor]:
    """Yield an executor whose record is a folder that is gone afterwards."""
    at_once = min(MOST_AT_ONCE, configuration.server.max_parallel)
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-doctor-", ignore_cleanup_errors=True) as folder:
        own = configuration.model_copy(
            update={
                "audit": AuditSettings(path=folder),
                "server": ServerSettings(max_parallel=at_once, max_queued=256),
                "policy": configuration.policy.model_copy(update={"secrets": (), "secret_use": ()}),
                "secrets": {},
            }
        )
        async with running(own, environ, origin="cli") as executor:
            yield executor
