"""Every error that there is, made to happen, as the model is told of it; and the table of them in the docs."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
import tempfile
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import anyio
import pytest
from mcp import Client

import mcp_sandbox
from mcp_sandbox import errors
from mcp_sandbox.app import running
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings, EngineSettings, SecretSettings, ServerSettings
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.executor import Executor
from mcp_sandbox.model import Status
from mcp_sandbox.server import create_server
from mcp_sandbox.server.flight import Flights
from tests.privileges import unprivileged
from tests.unit.engines.docker.http_engine import HttpEngine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

pytestmark = pytest.mark.anyio

REPOSITORY = Path(__file__).parents[3]
CREATE = "POST /containers/create"
CODES = {
    value.code: value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SandboxError)
}


class World:
    """A folder that anybody may write to, an engine in it, and servers that use both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = HttpEngine(folder / "engine.sock")

    @asynccontextmanager
    async def client(
        self,
        *,
        host: str = "",
        server: ServerSettings | None = None,
        secrets: dict[str, SecretSettings] | None = None,
        **policy: object,
    ) -> AsyncIterator[Client]:
        secrets = secrets or {}
        configuration = Configuration(
            engine=EngineSettings(host=host or self.engine.url),
            server=server or ServerSettings(),
            audit=AuditSettings(path=str(self.folder / "audit")),
            policy=Policy.model_validate({"ready": 0, "secrets": tuple(secrets), **policy}),
            secrets=secrets,
        )
        async with (
            running(configuration, os.environ, origin="cli") as executor,
            Flights(executor, reply_within_seconds=30) as flights,
            Client(create_server(flights), raise_exceptions=True) as client,
        ):
            yield client

    async def told(self, code: str = "print(1)", **settings: Any) -> str:
        """Make a call that must fail, and return what the model is told."""
        async with self.client(**settings) as client:
            return await failing(client, code)


async def failing(client: Client, code: str = "print(1)") -> str:
    result = await client.call_tool("execute_python", {"code": code})
    assert result.is_error
    assert result.structured_content is None
    [content] = result.content
    text: str = content.text
    return text


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:  # a short path, as a socket's must be
        Path(folder).chmod(0o777)
        made = World(Path(folder))
        yield made
        made.engine.stop()


async def internal_error(world: World) -> str:
    async def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("not for the model")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executor, "execute", breaks)
        return await world.told()


async def config_invalid(world: World) -> str:
    (world.folder / "config.toml").write_text('[defaults]\nmemory = "lots"\n')
    words = ["run", "--config", "config.toml", "-c", "print(1)"]
    command = [sys.executable, "-m", "mcp_sandbox", *words]
    said = await anyio.run_process(command, cwd=world.folder, check=False)
    assert said.returncode == 125
    return said.stderr.decode().removeprefix("mcp-sandbox: ")


async def refused(world: World) -> str:
    return await world.told(" ")


async def busy(world: World) -> str:
    world.engine.hold[CREATE] = go_on = threading.Event()
    one_at_a_time = ServerSettings(max_parallel=1, max_queued=0)
    async with world.client(server=one_at_a_time) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(client.call_tool, "execute_python", {"code": "print(1)"})
        await anyio.to_thread.run_sync(world.engine.until, CREATE)
        text = await failing(client)
        go_on.set()
        tasks.cancel_scope.cancel()
    return text


async def audit_unavailable(world: World) -> str:
    (world.folder / "audit").write_text("a file stands where the folder would be")
    return await world.told()


async def secret_missing(world: World) -> str:
    return await world.told(secrets={"API_KEY": SecretSettings(env="NOBODY_HAS_SET_THIS")})


async def packages_unavailable(world: World) -> str:
    return await world.told(dependencies={"lock": str(world.folder / "requirements.lock")})


async def engine_failed(world: World) -> str:
    world.engine.answers[CREATE] = (500, "driver failed")
    return await world.told()


async def engine_unreachable(world: World) -> str:
    return await world.told(host=f"unix://{world.folder}/none.sock")


async def engine_denied(world: World) -> str:
    (world.folder / "engine.sock").chmod(0)
    with unprivileged():
        return await world.told()


async def engine_unsafe(world: World) -> str:
    world.engine.warnings = ["Your kernel does not support memory limit capabilities. Limitation discarded."]
    return await world.told()


async def image_missing(world: World) -> str:
    world.engine.answers[CREATE] = (404, "No such image: mcp-sandbox/standard:latest")
    return await world.told()


async def image_unsuitable(world: World) -> str:
    world.engine.answers["POST /containers/start"] = (
        400,
        'exec: "python3": executable file not found in $PATH',
    )
    return await world.told()


async def runtime_missing(world: World) -> str:
    return await world.told(runtime="kata")


PROVOKED: dict[str, Callable[[World], Awaitable[str]]] = {
    make.__name__: make
    for make in (
        internal_error,
        config_invalid,
        refused,
        busy,
        audit_unavailable,
        secret_missing,
        packages_unavailable,
        engine_failed,
        engine_unreachable,
        engine_denied,
        engine_unsafe,
        image_missing,
        image_unsuitable,
        runtime_missing,
    )
}


@pytest.mark.parametrize("code", CODES)
async def test_every_error_says_what_happened_and_what_to_do_next(code: str, world: World) -> None:
    with anyio.fail_after(60):
        text = (await PROVOKED[code](world)).strip()
    assert text.startswith(f"{code}: ")
    assert len(re.findall(r"[.!](?: |$)", text)) >= 2, "what happened, and what to do next"
    assert "not for the model" not in text
    if code != "config_invalid":  # a server does not start with it: the person is told, and no model
        assert text.endswith(CODES[code].for_model)


def test_every_error_of_the_package_is_in_the_table() -> None:
    for module in pkgutil.walk_packages(mcp_sandbox.__path__, "mcp_sandbox."):
        if ".image." not in module.name and ".inside." not in module.name and "__main__" not in module.name:
            importlib.import_module(module.name)
    pending, kinds = [SandboxError], set()
    while pending:
        kinds.add(kind := pending.pop())
        pending += kind.__subclasses__()
    assert {kind.__module__ for kind in kinds} == {"mcp_sandbox.errors"}
    assert kinds == set(CODES.values()), "two errors have one code"
    page = (REPOSITORY / "docs" / "errors.md").read_text("utf-8").split("## Ends that are no errors")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(CODES)


def test_every_end_of_a_run_is_in_the_other_table() -> None:
    page = (REPOSITORY / "docs" / "errors.md").read_text("utf-8").split("## Ends that are no errors")[1]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == ["status", *get_args(Status)]
