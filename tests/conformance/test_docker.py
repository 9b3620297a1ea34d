"""What holds of real engines alone: nothing passes from one sandbox to another, and an unfit image is told."""

from __future__ import annotations

import gc
import io
import secrets
import tarfile
import warnings
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.engines.docker.connection import connect
from mcp_sandbox.engines.docker.engine import DockerEngine
from mcp_sandbox.errors import EngineUnreachable, ImageUnsuitable
from tests.conformance.conftest import names
from tests.conformance.first_processes import WRITE
from tests.conftest import IMAGE
from tests.specs import SPEC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import docker

    from mcp_sandbox.sandbox import Sandbox, SandboxSpec

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SECONDS = 60.0

FIND = (
    WRITE
    + """
import ctypes, socket
def connects(family, address):
    with socket.socket(family) as probe:
        return not probe.connect_ex(address)
libc = ctypes.CDLL(None)
def find():
    found = [path for path in ("/scratch/secret", "/tmp/secret", "/dev/shm/secret") if os.path.exists(path)]
    found += ["abstract socket"] * connects(socket.AF_UNIX, b"\\0secret")
    found += ["loopback port"] * connects(socket.AF_INET, ("127.0.0.1", 5555))
    found += ["shared memory"] * (libc.shmget(0x5EC, 4096, 0o600) != -1)
    found += ["process " + pid for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())]
    write(1, ",".join(found).encode() + b"\\n")
"""
)

PLANT = (
    FIND
    + """
for path in ("/scratch/secret", "/tmp/secret", "/dev/shm/secret"):
    with open(path, "w") as file:
        file.write("secret")
listeners = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
for listener, address in zip(listeners, (b"\\0secret", ("127.0.0.1", 5555))):
    listener.bind(address)
    listener.listen()
libc.shmget(0x5EC, 4096, 0o1600)
find()
os.read(0, 1)
"""
)

LOOK = FIND + "find()\nos.read(0, 1)"


def running(program: str, runtime: str) -> SandboxSpec:
    return SPEC.model_copy(
        update={"image": IMAGE, "runtime": runtime, "command": ("python3", "-I", "-S", "-c", program)}
    )


async def line(sandbox: Sandbox) -> set[str]:
    """Return what a sandbox found."""
    received = b""
    with anyio.fail_after(SECONDS):
        while not received.endswith(b"\n"):
            received += await sandbox.receive()
    return set(filter(None, received.decode().strip().split(",")))


@pytest.fixture
def server() -> str:
    return secrets.token_hex(8)


@pytest.fixture
async def engine(engine_host: str, server: str) -> AsyncIterator[DockerEngine]:
    connection = connect(engine_host, {})
    async with DockerEngine(connection, {"server": server, "host": server}) as engine:
        yield engine


async def test_nothing_that_one_has_can_be_found_by_another(engine: DockerEngine, runtime: str) -> None:
    async with engine.launch(running(PLANT, runtime)) as first:
        planted = await line(first)
        assert {
            "/scratch/secret",
            "/tmp/secret",
            "/dev/shm/secret",
            "abstract socket",
            "loopback port",
        } <= planted
        async with engine.launch(running(LOOK, runtime)) as beside:
            assert await line(beside) == set()
    async with engine.launch(running(LOOK, runtime)) as after:
        assert await line(after) == set()


@pytest.fixture
def image_without_python(engine_client: docker.APIClient) -> Iterator[str]:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("empty"))
    name = f"mcp-sandbox-test/{secrets.token_hex(4)}:latest"
    repository, tag = name.split(":")
    engine_client.import_image_from_data(archive.getvalue(), repository=repository, tag=tag)
    yield name
    engine_client.remove_image(name, force=True)


async def test_an_image_without_python_is_told_as_that(
    engine: DockerEngine,
    engine_client: docker.APIClient,
    server: str,
    runtime: str,
    image_without_python: str,
) -> None:
    spec = running("pass", runtime).model_copy(update={"image": image_without_python})
    with anyio.fail_after(SECONDS):
        with pytest.raises(ImageUnsuitable, match="python3"):
            async with engine.launch(spec):
                pass
        while names(engine_client, server):  # noqa: ASYNC110  # the engine is asked, it does not tell
            await anyio.sleep(0.02)


async def test_what_a_dead_server_left_is_swept_and_nothing_else(
    engine_host: str, engine: DockerEngine, engine_client: docker.APIClient, server: str
) -> None:
    dead = secrets.token_hex(8)
    wait = running(LOOK, "")
    with anyio.fail_after(SECONDS):
        async with (
            DockerEngine(connect(engine_host, {}), {"server": dead, "host": server}) as other,
            engine.launch(wait) as kept,
            other.launch(wait) as left,
        ):
            assert await line(left) == set()
            assert await engine.sweep(lambda name: name == dead) == 1
            with pytest.raises(anyio.EndOfStream):
                await left.receive()
            assert await line(kept) == set()
            assert names(engine_client, server) == {kept.name}


async def test_an_engine_that_is_down_is_told_and_left_in_time(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    address = f"unix://{tmp_path_factory.getbasetemp()}/no.sock"

    async def launch() -> None:
        async with DockerEngine(connect(address, {}), {"server": "s", "host": "h"}) as engine:
            with pytest.raises(EngineUnreachable):
                async with engine.launch(running("pass", "")):
                    pass

    with anyio.fail_after(SECONDS), warnings.catch_warnings(action="ignore", category=ResourceWarning):
        await launch()
        gc.collect()  # the SDK leaves a socket that did not connect to the garbage collector
