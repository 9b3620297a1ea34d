"""The one place that picks implementations: from a configuration to an executor that runs."""

from __future__ import annotations

import hashlib
import logging
import secrets
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_sandbox.audit.store import AuditStore, Recorder, Unrecorded
from mcp_sandbox.engines.docker.connection import connect
from mcp_sandbox.engines.docker.engine import DockerEngine
from mcp_sandbox.errors import AuditError
from mcp_sandbox.executor import Executor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp_sandbox.audit.record import Origin
    from mcp_sandbox.config.policy import Configuration

_log = logging.getLogger(__name__)


@asynccontextmanager
async def running(
    configuration: Configuration, environ: Mapping[str, str], *, origin: Origin
) -> AsyncIterator[Executor]:
    """Yield an executor; leaving the scope ends every sandbox and seals the record.

    Nothing is asked of the engine before the first run: a server whose engine is down starts and lists its
    tools.
    """
    record = await _record(configuration)
    labels = {"server": secrets.token_hex(8), "host": _host_id(configuration)}
    connection = connect(configuration.engine.host, environ)
    try:
        async with DockerEngine(connection, labels) as engine:
            yield Executor(configuration, engine, record, origin=origin)
    finally:
        try:
            await record.aclose()
        except AuditError as error:
            _log.warning("%s", error)


async def _record(configuration: Configuration) -> Recorder:
    store = AuditStore(Path(configuration.audit.path))
    if not configuration.audit.unsafe_run_unrecorded:
        return store
    try:
        await store.open()
    except AuditError as error:
        _log.warning("unsafe_run_unrecorded is set, so runs go on without a record: %s", error)
        return Unrecorded()
    return store


def _host_id(configuration: Configuration) -> str:
    """Name the servers that can know of each other: those of one machine with one record."""
    return hashlib.sha256(f"{socket.gethostname()}\0{configuration.audit.path}".encode()).hexdigest()[:16]
