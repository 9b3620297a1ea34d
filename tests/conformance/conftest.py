"""Every engine that there is, each in the same clothes."""

from __future__ import annotations

import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import docker
import pytest

from mcp_sandbox.engines.docker.connection import connect
from mcp_sandbox.engines.docker.engine import DockerEngine
from mcp_sandbox.engines.docker.lockdown import LABEL
from mcp_sandbox.engines.pool import PooledEngine
from mcp_sandbox.errors import ImageMissing, RuntimeMissing, SandboxError
from tests.conformance.first_processes import ECHO, FirstProcess, play
from tests.conftest import IMAGE, RUNTIMES
from tests.fakes import FakeEngine
from tests.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp_sandbox.sandbox import Engine, SandboxSpec

GONE_SECONDS = 20.0


@dataclass
class Subject:
    """An engine under test, and what can be seen of it from outside."""

    engine: Engine
    runtime: str
    all_alive: Callable[[], set[str]]
    """Returns the names of all sandboxes that there are, whatever their state."""

    def spec(self, first: FirstProcess, **changes: object) -> SandboxSpec:
        """Return the sandbox that runs this first process."""
        return SPEC.model_copy(
            update={"image": IMAGE, "runtime": self.runtime, "command": first.command, **changes}
        )

    def alive(self) -> set[str]:
        """Return the names of all sandboxes that there are, but for those that wait to be used."""
        kept = self.engine._kept if isinstance(self.engine, PooledEngine) else []
        return self.all_alive() - {one.sandbox.name for one in kept if one.sandbox}

    async def gone(self) -> None:
        """Wait until no sandbox is left that was launched."""
        with anyio.fail_after(GONE_SECONDS):
            while self.alive():  # noqa: ASYNC110  # the engine is asked, it does not tell
                await anyio.sleep(0.02)


def _refuse(spec: SandboxSpec) -> SandboxError | None:
    if spec.image != IMAGE:
        return ImageMissing(f"there is no image {spec.image}.")
    if spec.runtime:
        return RuntimeMissing(f"there is no runtime {spec.runtime}.")
    return None


@asynccontextmanager
async def _fake(pooled: bool) -> AsyncIterator[Subject]:
    fake = FakeEngine(play, refuses=_refuse)
    subject = Subject(fake, "", lambda: set(fake.alive))
    async with _entered(subject, pooled):
        yield subject


@asynccontextmanager
async def _docker(host: str, runtime: str, pooled: bool) -> AsyncIterator[Subject]:
    server = secrets.token_hex(8)
    client = docker.APIClient(host, timeout=30)
    engine = DockerEngine(connect(host, os.environ), {"server": server, "host": "conformance"})
    subject = Subject(engine, runtime, lambda: names(client, server))
    try:
        async with _entered(subject, pooled):
            yield subject
        with anyio.fail_after(GONE_SECONDS):
            while subject.all_alive():  # noqa: ASYNC110  # the engine is asked, it does not tell
                await anyio.sleep(0.02)
    finally:
        client.close()


def names(client: docker.APIClient, server: str) -> set[str]:
    """Return the names of a server's containers."""
    label = {"label": f"{LABEL}.server={server}"}
    return {container["Names"][0].lstrip("/") for container in client.containers(all=True, filters=label)}


@asynccontextmanager
async def _entered(subject: Subject, pooled: bool) -> AsyncIterator[None]:
    if pooled:
        subject.engine = PooledEngine(subject.engine, subject.spec(ECHO), ready=1, idle_seconds=60)
    async with subject.engine:
        yield


REAL = pytest.mark.engine
ENGINES = [
    pytest.param(("fake", ""), id="fake"),
    pytest.param(("pool", ""), id="pool"),
    *(pytest.param(("docker", runtime), id=runtime, marks=REAL) for runtime in RUNTIMES),
    pytest.param(("docker pool", ""), id="docker-pool", marks=REAL),
]


@pytest.fixture(params=ENGINES)
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """An engine, entered."""
    name, runtime = request.param
    pooled = "pool" in name
    if "docker" in name:
        host = request.getfixturevalue("engine_host")
        async with _docker(host, runtime, pooled) as subject:
            yield subject
    else:
        async with _fake(pooled) as subject:
            yield subject
