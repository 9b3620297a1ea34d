"""Fixtures that every test may use: a real engine, and configurations that touch nothing else."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import docker
import hypothesis
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings, EngineSettings, ServerSettings
from mcp_sandbox.engines.docker.lockdown import LABEL
from mcp_sandbox.model import ExecutionRequest, ExecutionResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from mcp_sandbox.executor import Executor

REPOSITORY = Path(__file__).resolve().parent.parent
IMAGE = "mcp-sandbox/minimal"
RUNTIMES = tuple(os.environ.get("MCP_SANDBOX_TEST_RUNTIMES", "runc runsc").split())
"""What the engine under test has, as `scripts/engine env` says; tests run under each."""
GONE_SECONDS = 10.0

# How long an example takes says nothing on a machine that does other things too.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def engine_host() -> str:
    """Address of the engine under test; without one, engine tests fail where an engine was promised."""
    host = os.environ.get("DOCKER_HOST") or f"unix://{REPOSITORY}/.engine/docker.sock"
    try:
        with closing(docker.APIClient(host, timeout=10)) as client:
            client.ping()
    except docker.errors.DockerException as error:
        if os.environ.get("MCP_SANDBOX_TEST_ENGINE") == "required":
            pytest.fail(f"an engine was promised and none answers at {host}: {error}")
        pytest.skip(
            f"no container engine answers at {host}: ./scripts/engine up starts one, ./scripts/test too"
        )
    return host


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    """Every OCI runtime that the promises hold for."""
    return str(request.param)


@pytest.fixture
def configure(engine_host: str, tmp_path: Path) -> Callable[..., Configuration]:
    """Return a maker of configurations: policy keys by name, everything else the test's own."""

    def make(*, server: ServerSettings | None = None, **policy: object) -> Configuration:
        return Configuration(
            engine=EngineSettings(host=engine_host),
            server=server or ServerSettings(),
            audit=AuditSettings(path=str(tmp_path / "audit")),
            policy=Policy.model_validate({"image": IMAGE, **policy}),
        )

    return make


@pytest.fixture
def engine_client(engine_host: str) -> Iterator[docker.APIClient]:
    """The engine, spoken to behind the product's back."""
    client = docker.APIClient(engine_host, timeout=30)
    yield client
    client.close()


def ours(client: docker.APIClient, server: str | None = None) -> list[str]:
    """Ids of all containers of the product (of one server's), whatever their state."""
    label = f"{LABEL}.version" if server is None else f"{LABEL}.server={server}"
    return [container["Id"] for container in client.containers(all=True, filters={"label": label})]


async def gone(client: docker.APIClient, *, server: str | None = None) -> None:
    """Wait until no container of the product is left."""
    with anyio.fail_after(GONE_SECONDS):
        while ours(client, server):  # noqa: ASYNC110
            await anyio.sleep(0.05)  # the engine has no event for what is left of a container


@pytest.fixture
async def executor(configure: Callable[..., Configuration]) -> AsyncIterator[Executor]:
    """An executor under the default policy, on the minimal image."""
    async with running(configure(), os.environ, origin="cli") as running_executor:
        yield running_executor


@pytest.fixture
def python(executor: Executor) -> Callable[..., object]:
    """Run one Python program."""

    async def run(code: str, timeout_seconds: float | None = None) -> ExecutionResult:
        return await executor.execute(
            ExecutionRequest(language="python", code=code, timeout_seconds=timeout_seconds)
        )

    return run


@pytest.fixture
def shell(executor: Executor) -> Callable[..., object]:
    """Run one shell command."""

    async def run(command: str, timeout_seconds: float | None = None) -> ExecutionResult:
        return await executor.execute(
            ExecutionRequest(language="shell", code=command, timeout_seconds=timeout_seconds)
        )

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note on each test whether it takes an engine: a report does not tell a marker from a folder's name."""
    for item in items:
        if item.get_closest_marker("engine"):
            item.user_properties.append(("engine", True))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last how many tests ran a real container: a green run without any proves nothing."""
    ran = [
        r
        for r in terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        if ("engine", True) in r.user_properties
    ]
    terminalreporter.write_line(f"engine tests that ran: {len(ran)}")
