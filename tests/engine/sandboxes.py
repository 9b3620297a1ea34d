"""What the engine and the record know of the runs of one server under test, behind the server's back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import docker.errors
import requests.exceptions

from mcp_sandbox.app import _host_id
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.config.policy import Configuration
from mcp_sandbox.config.settings import AuditSettings
from mcp_sandbox.engines.docker.lockdown import LABEL
from tests.clients.raw import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from docker import APIClient

    from mcp_sandbox.audit.query import RunSummary

SLEEP = "sleep 61"
"""A program that only a test's own means will end, and that can be told from all others."""
SECONDS = 15.0 * PATIENCE


def sandboxes(client: APIClient, folder: Path) -> list[dict[str, Any]]:
    """Return the containers of the servers whose record is in this folder, whatever their state."""
    host = _host_id(Configuration(audit=AuditSettings(path=str(folder / "audit"))))
    containers: list[dict[str, Any]] = client.containers(all=True, filters={"label": f"{LABEL}.host={host}"})
    return containers


async def none_left(client: APIClient, folder: Path) -> None:
    """Wait until the engine has no such container."""
    with anyio.fail_after(SECONDS):
        while sandboxes(client, folder):  # noqa: ASYNC110  # the engine is asked, it does not tell
            await anyio.sleep(0.05)


async def some_left(client: APIClient, folder: Path) -> None:
    """Wait until the engine has such a container."""
    with anyio.fail_after(SECONDS):
        while not sandboxes(client, folder):  # noqa: ASYNC110  # the engine is asked, it does not tell
            await anyio.sleep(0.05)


async def sleeping(client: APIClient, folder: Path, programs: int = 1) -> list[str]:
    """Wait until that many sandboxes run `SLEEP`, and return their ids."""
    with anyio.fail_after(SECONDS):
        while True:
            found = [c["Id"] for c in sandboxes(client, folder) if sleeps(client, c["Id"])]
            if len(found) >= programs:
                return found
            await anyio.sleep(0.05)


def sleeps(client: APIClient, container: str) -> bool:
    """Tell whether a container runs `SLEEP`."""
    columns = (
        "pid,args" if "BuildahVersion" in client.info() else "-eo pid,args"
    )  # in Podman's words, or ps's
    try:
        processes = client.top(container, columns)["Processes"] or ()
    except (docker.errors.APIError, requests.exceptions.JSONDecodeError):  # Podman then answers with nothing
        return False  # not started yet, or gone
    return any(command == SLEEP for *_, command in processes)


async def runs(folder: Path) -> Sequence[RunSummary]:
    """Return the record, newest first."""
    return await AuditStore(folder / "audit").list(limit=100)
