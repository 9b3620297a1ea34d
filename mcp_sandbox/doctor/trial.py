"""An executor under the real policy on the real engine, whose runs are not the user's.

They stay off the record, and get none of the workspace's secrets.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_sandbox.app import running
from mcp_sandbox.config.settings import AuditSettings, ServerSettings
from mcp_sandbox.doctor.bait import bait

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.executor import Executor

MOST_AT_ONCE = 4


@asynccontextmanager
async def trial(
    configuration: Configuration, environ: Mapping[str, str], *, shows_bait: bool = False
) -> AsyncIterator[Executor]:
    """Yield an executor whose record is a folder that is gone afterwards; `shows_bait` lets its runs attack another."""
    at_once = min(MOST_AT_ONCE, configuration.server.max_parallel)
    with tempfile.TemporaryDirectory(
        prefix="mcp-sandbox-doctor-", dir=_beside(configuration), ignore_cleanup_errors=True
    ) as name:
        folder, policy = Path(name), configuration.policy
        mounts = (*policy.mounts, bait(folder / "bait")) if shows_bait else policy.mounts
        own = configuration.model_copy(
            update={
                "audit": AuditSettings(path=str(folder / "record")),
                "server": ServerSettings(max_parallel=at_once, max_queued=256),
                "policy": policy.model_copy(update={"secrets": (), "secret_use": (), "mounts": mounts}),
                "secrets": {},
            }
        )
        async with running(own, environ, origin="cli") as executor:
            yield executor


def _beside(configuration: Configuration) -> Path | None:
    """Return the folder that holds the record's: an engine in a virtual machine sees the home folder, and no /tmp."""
    folder = Path(configuration.audit.path).parent
    return folder if os.access(folder, os.W_OK) else None
