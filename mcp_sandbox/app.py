"""The one place that picks implementations: from a configuration to an executor that runs."""

from __future__ import annotations

import hashlib
import logging
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from mcp_sandbox.audit.store import AuditStore, Recorder, Unrecorded
from mcp_sandbox.dependencies.layers import Layers
from mcp_sandbox.engines.docker.connection import connect
from mcp_sandbox.engines.docker.engine import DockerEngine
from mcp_sandbox.engines.docker.images import image_id
from mcp_sandbox.engines.docker.layers import DockerLayers
from mcp_sandbox.engines.pool import PooledEngine
from mcp_sandbox.errors import AuditError, SandboxError
from mcp_sandbox.executor import Executor
from mcp_sandbox.plan import ready_spec, spec
from mcp_sandbox.presence import Presence
from mcp_sandbox.secret_sources import SecretSources
from mcp_sandbox.view import Folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp_sandbox.audit.record import Origin
    from mcp_sandbox.config.policy import Configuration, Policy
    from mcp_sandbox.sandbox import Engine
    from mcp_sandbox.view import View

_log = logging.getLogger(__name__)


@asynccontextmanager
async def running(
    configuration: Configuration, environ: Mapping[str, str], *, origin: Origin
) -> AsyncIterator[Executor]:
    """Yield an executor; leaving the scope ends every sandbox and seals the record.

    A server whose engine is down starts all the same and lists its tools; its calls say what to do.
    """
    record = await _record(configuration)
    presence = Presence(Path(configuration.audit.path, "servers"))
    labels = {"server": presence.server, "host": _host_id(configuration)}
    connection = connect(configuration.engine.host, environ)
    containers = DockerEngine(connection, labels)
    policy = configuration.policy
    folders = Folders(
        policy,
        hiding=Path(configuration.audit.path, "hidden"),
        engine_is_local=lambda: connection.address.local,
    )
    packages = Path(configuration.audit.path, "packages")
    layers = Layers(policy, containers, DockerLayers(connection), packages, environ)
    # A command that runs one program has no use for a second sandbox, nor time to clean up after others.
    serves = origin == "mcp"
    engine: Engine = containers
    if serves and policy.ready:
        engine = pool = PooledEngine(
            containers, None, ready=policy.ready, idle_seconds=policy.ready_idle_seconds
        )
        folders.on_change = lambda view: _keep_ready(pool, view, layers, policy)
    try:
        async with engine:
            secrets = SecretSources({name: configuration.secrets[name] for name in policy.secrets}, environ)
            executor = Executor(
                configuration, engine, record, origin=origin, folders=folders, layers=layers, secrets=secrets
            )
            if serves:
                containers.in_background(_sweep, containers, presence)
                containers.in_background(_first_look, executor)
            yield executor
    finally:
        presence.leave()
        try:
            await record.aclose()
        except AuditError as error:
            _log.warning("%s", error)


async def image_now(configuration: Configuration, environ: Mapping[str, str], name: str) -> str:
    """Return the id of the image that a name stands for on the engine; empty where it stands for none.

    Raises:
        EngineError: The engine failed.
    """

    def look() -> str:
        connection = connect(configuration.engine.host, environ)
        try:
            with connection.client() as client:
                return image_id(client, name)
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(look, abandon_on_cancel=True)


def _keep_ready(pool: PooledEngine, view: View, layers: Layers, policy: Policy) -> None:
    """Keep sandboxes of this view ready; none where the packages of runs are still to be installed."""
    wanted, warm = layers.latest(spec(policy)), layers.latest(ready_spec(policy))
    if wanted and warm:
        pool.turn_to(view.of(wanted), warm=view.of(warm))


async def _first_look(executor: Executor) -> None:
    """Find out what runs will see; the first call meets what is wrong."""
    try:
        await executor.look_ahead()
    except SandboxError as error:
        _log.info("no sandbox is made ready yet: %s", error)


async def _sweep(containers: DockerEngine, presence: Presence) -> None:
    """Remove what dead servers left; an engine that is down has nothing to remove from yet."""
    try:
        removed = await containers.sweep(presence.is_dead)
    except SandboxError as error:
        _log.info("nothing was swept: %s", error)
        return
    if removed:
        _log.warning("removed %d containers of servers that had died", removed)
    presence.forget_the_dead()


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
