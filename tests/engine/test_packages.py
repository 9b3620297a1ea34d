"""Packages from a lock: installed once, in a sandbox that reaches the index alone, then there without any network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trustme
from mcp import Client

from mcp_sandbox.app import running
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.config.settings import ServerSettings
from mcp_sandbox.engines.docker.layers import REPOSITORY
from mcp_sandbox.errors import PackagesUnavailable
from mcp_sandbox.model import ExecutionRequest, ExecutionResult
from mcp_sandbox.replay import image_changes, policy_now, recorded, replay
from mcp_sandbox.server import create_server
from mcp_sandbox.server.flight import Flights
from tests.conftest import GONE_SECONDS, IMAGE, ours
from tests.package_index import Index, digest, lock_of, make_wheel, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import docker

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.executor import Executor

MINUTES = 180
pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.timeout(2 * MINUTES)]
LOOKS = """
import importlib.metadata, os, subprocess, sys
import kinds, kinds.data, family.one, family.two
print(open(os.path.join(os.path.dirname(kinds.__file__), "table.csv")).read())
print(subprocess.run(["greet"], capture_output=True, text=True).stdout.strip())
print(subprocess.run([os.path.join(os.path.dirname(kinds.__file__), "tool.sh")], capture_output=True, text=True).stdout)
print(os.path.exists(kinds.__cached__), importlib.metadata.version("kinds"))
print(open(os.path.join(sys.prefix, "share", "kinds", "notes.txt")).read())
"""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with serving(tmp_path / "wheels") as serves:
        yield serves


@pytest.fixture(autouse=True)
def _no_other_layers(engine_client: docker.APIClient) -> Iterator[None]:
    remove_layers(engine_client)
    yield
    remove_layers(engine_client)


def remove_layers(client: docker.APIClient) -> None:
    for image in client.images(REPOSITORY, quiet=True):
        client.remove_image(image, force=True)


class Workspace:
    """A workspace with a lock, whose packages come from an index of the test's own."""

    def __init__(self, index: Index, folder: Path, configure: Callable[..., Configuration]) -> None:
        self.index = index
        self.lock = folder / "requirements.lock"
        self._configure = configure

    def configuration(self, **dependencies: object) -> Configuration:
        settings = {"lock": str(self.lock), "index": self.index.url, **dependencies}
        return self._configure(
            workspace="w",
            dependencies=settings,
            egress={"ca_bundle": str(self.index.ca_bundle)},
            server=ServerSettings(),
            ready=0,
        )

    @asynccontextmanager
    async def open(self, **dependencies: object) -> AsyncIterator[Executor]:
        with anyio.fail_after(MINUTES):
            async with running(self.configuration(**dependencies), os.environ, origin="cli") as executor:
                yield executor

    async def run(self, code: str, **dependencies: object) -> ExecutionResult:
        async with self.open(**dependencies) as executor:
            return await execute(executor, code)


async def execute(executor: Executor, code: str) -> ExecutionResult:
    return await executor.execute(ExecutionRequest(language="python", code=code))


@pytest.fixture
def workspace(index: Index, tmp_path: Path, configure: Callable[..., Configuration]) -> Workspace:
    return Workspace(index, tmp_path, configure)


async def facts(configuration: Configuration, run_id: str) -> dict[str, Any]:
    store = AuditStore(Path(configuration.audit.path))
    closing = (await store.get(run_id)).closing
    assert closing
    return dict(closing["data"]["facts"])


async def test_every_kind_of_package_is_installed_once_and_then_there_without_a_network(
    workspace: Workspace, engine_client: docker.APIClient
) -> None:
    wheels = workspace.index.folder
    kinds = make_wheel(
        wheels,
        "kinds",
        files={
            "kinds/__init__.py": "def greet(): print('greetings')\n",
            "kinds/data.py": "",
            "kinds/table.csv": "a,b",
            "kinds/tool.sh": "#!/bin/sh\necho a program of the package\n",
            "kinds-1.0.data/data/share/kinds/notes.txt": "shared data",
        },
        scripts={"greet": "kinds:greet"},
        executable=["kinds/tool.sh"],
        requires=["family-one"],
    )
    one = make_wheel(wheels, "family_one", files={"family/one.py": ""})
    two = make_wheel(wheels, "family_two", files={"family/two.py": ""})
    workspace.lock.write_text(lock_of(kinds, one, two))

    first = await workspace.run(LOOKS)
    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout.split("\n")[:5] == ["a,b", "greetings", "a program of the package", "", "True 1.0"]
    assert first.stdout.endswith("shared data\n")
    asked = len(workspace.index.requests)
    assert asked == 6

    second = await workspace.run(LOOKS)
    assert second.stdout == first.stdout
    assert len(workspace.index.requests) == asked

    configuration = workspace.configuration()
    [layer] = engine_client.images(REPOSITORY)
    made, used = [await facts(configuration, run.run_id) for run in (first, second)]
    assert made["image"] == used["image"] == layer["Id"]
    assert made["packages"]["base"] == engine_client.inspect_image(IMAGE)["Id"]
    hosts = {(each["host"], each["verdict"]) for each in made["egress"]}
    assert hosts == {("127.0.0.1", "allowed")}
    assert "egress" not in used
    store = AuditStore(Path(configuration.audit.path))
    lock = await store.content(first.run_id, "lock")
    assert lock is not None
    assert digest(kinds).encode() in lock

    outside = "import urllib.request as u; u.urlopen('https://127.0.0.1:%s/', timeout=5)"
    offline = await workspace.run(outside % workspace.index.url.split(":")[2].split("/")[0])
    assert "Connection refused" in offline.stderr


async def refused(workspace: Workspace, **dependencies: object) -> str:
    with pytest.raises(PackagesUnavailable) as raised:
        await workspace.run("print(1)", **dependencies)
    return str(raised.value)


async def test_what_cannot_be_installed_leaves_nothing_and_says_why_in_pips_words_and_what_to_do(
    workspace: Workspace, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    wheels = workspace.index.folder
    before = {image["Id"] for image in engine_client.images(all=True)}
    others = set(
        ours(engine_client)
    )  # of servers that were killed in tests before: the next start sweeps them
    tampered = make_wheel(wheels, "tampered")
    workspace.lock.write_text(lock_of(tampered))
    make_wheel(wheels, "tampered", files={"tampered.py": "another\n"})
    said = await refused(workspace)
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said
    assert digest(tampered) in said
    assert "Find out why" in said

    elsewhere = make_wheel(wheels, "elsewhere", tag="cp311-cp311-win_amd64")
    workspace.lock.write_text(lock_of(elsewhere))
    said = await refused(workspace)
    assert "No matching distribution found for elsewhere==1.0" in said
    assert 'under [workspaces.w.dependencies]: source_builds = "allow"' in said

    large = make_wheel(wheels, "large", files={"large.bin": "0" * (20 << 20)})
    workspace.lock.write_text(lock_of(large))
    said = await refused(workspace, size_limit=16 << 20)
    assert "No space left on device" in said
    assert 'under [workspaces.w.dependencies]: size_limit = "32MiB"' in said

    workspace.lock.write_text(lock_of(tampered))
    workspace.index.files_at = "https://files.elsewhere.example"
    said = await refused(workspace)
    assert "Tunnel connection failed: 403" in said
    assert 'under [workspaces.w.dependencies]: allow = ["files.elsewhere.example:443"]' in said

    assert {image["Id"] for image in engine_client.images(all=True)} == before
    with anyio.fail_after(GONE_SECONDS):
        while set(ours(engine_client)) - others:  # noqa: ASYNC110  # the engine has no event for what is left
            await anyio.sleep(0.05)
    assert not list((tmp_path / "audit" / "packages").glob("*"))


async def test_an_index_whose_authority_is_unknown_is_refused_and_the_key_is_named(
    workspace: Workspace,
) -> None:
    workspace.lock.write_text(lock_of(make_wheel(workspace.index.folder, "small")))
    trustme.CA().cert_pem.write_to_path(str(workspace.index.ca_bundle))
    said = await refused(workspace)
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "`ca_bundle`" in said


async def test_source_is_built_in_the_sandbox_only_where_that_is_allowed(workspace: Workspace) -> None:
    source = workspace.index.folder / "plain-1.0.tar.gz"
    backend = (
        "import os\n"
        "def build_wheel(folder, *_):\n"
        "    import zipfile\n"
        "    name = 'plain-1.0-py3-none-any.whl'\n"
        "    with zipfile.ZipFile(os.path.join(folder, name), 'w') as w:\n"
        "        w.writestr('plain.py', 'built_by = %r' % os.uname().nodename)\n"
        "        w.writestr('plain-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: plain\\nVersion: 1.0\\n')\n"
        "        w.writestr('plain-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\n"
        "Tag: py3-none-any\\n')\n"
        "        w.writestr('plain-1.0.dist-info/RECORD', '')\n"
        "    return name\n"
    )
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    tree = workspace.lock.parent / "plain-1.0"
    tree.mkdir()
    (tree / "backend.py").write_text(backend)
    (tree / "pyproject.toml").write_text(project)
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n")
    with tarfile.open(source, "w:gz") as archive:
        archive.add(tree, "plain-1.0")
    workspace.lock.write_text(f"plain==1.0 --hash=sha256:{digest(source)}\n")
    assert "No matching distribution found" in await refused(workspace)
    result = await workspace.run("import plain; print(plain.built_by)", source_builds="allow")
    assert result.stdout == "sandbox\n"


SCRIPT = """
# /// script
# dependencies = ["small"]
# ///
import small, importlib.util
print(small.version, importlib.util.find_spec("locked"))
"""


async def test_a_program_gets_exactly_what_its_block_names_resolved_once_and_recorded(
    workspace: Workspace,
) -> None:
    make_wheel(workspace.index.folder, "small", "1.0")
    small = make_wheel(workspace.index.folder, "small", "2.0", requires=["inner>=1"])
    make_wheel(workspace.index.folder, "inner", "1.5")
    workspace.lock.write_text(lock_of(make_wheel(workspace.index.folder, "locked")))
    allowed = {"inline": "allow", "inline_names": ["small"]}
    first = await workspace.run(SCRIPT, **allowed)
    assert (first.stdout, first.stderr) == ("2.0 None\n", "")
    lock = await AuditStore(Path(workspace.configuration().audit.path)).content(first.run_id, "lock")
    assert lock is not None
    assert [line.split()[0] for line in lock.decode().splitlines()] == ["inner==1.5", "small==2.0"]
    assert digest(small).encode() in lock

    asked = len(workspace.index.requests)
    make_wheel(workspace.index.folder, "small", "3.0")
    assert (await workspace.run(SCRIPT, **allowed)).stdout == "2.0 None\n"
    assert len(workspace.index.requests) == asked


async def test_a_replay_is_in_the_layer_of_then_whatever_the_lock_says_now(workspace: Workspace) -> None:
    wheel = make_wheel(workspace.index.folder, "small")
    workspace.lock.write_text(lock_of(wheel))
    original = await workspace.run("import small; print(small.version)")
    workspace.lock.unlink()
    asked = len(workspace.index.requests)
    configuration = workspace.configuration()
    then = await recorded(AuditStore(Path(configuration.audit.path)), original.run_id)
    policy, differences = policy_now(then, configuration)
    assert policy.image == (await facts(configuration, original.run_id))["image"]
    assert differences + await image_changes(then, policy, configuration) == []
    assert (await replay(then, policy, configuration)).same
    assert len(workspace.index.requests) == asked


async def test_a_call_that_would_wait_too_long_is_told_of_the_installation_and_gets_its_result_later(
    workspace: Workspace,
) -> None:
    workspace.lock.write_text(lock_of(make_wheel(workspace.index.folder, "small")))
    async with (
        workspace.open() as executor,
        Flights(executor, reply_within_seconds=0.2) as flights,
        Client(create_server(flights), raise_exceptions=True) as client,
    ):
        answer = await client.call_tool("execute_python", {"code": "import small; print(small.version)"})
        hints = set()
        while answer.structured_content and answer.structured_content["status"] == "running":
            hints.add(answer.structured_content["hint"].split(":")[0])
            arguments = {"run_id": answer.structured_content["run_id"], "wait_seconds": 0.2}
            answer = await client.call_tool("get_run", arguments)
        assert "Packages are being installed, which is done once; then the program runs" in hints
        assert answer.structured_content
        assert answer.structured_content["stdout"] == "1.0\n"


def command_line(folder: Path, engine_host: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mcp_sandbox", *words],
        cwd=folder,
        env={**os.environ, "DOCKER_HOST": engine_host, "MCP_SANDBOX_CONFIG": str(folder / "config.toml")},
        capture_output=True,
        text=True,
        timeout=MINUTES,
        check=False,
    )


async def test_the_command_line_builds_lists_and_prunes(
    index: Index, engine_host: str, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "requirements.lock").write_text(lock_of(make_wheel(index.folder, "small")))
    (tmp_path / "config.toml").write_text(
        f"""
[audit]
path = "{tmp_path}/audit"
[defaults]
image = "{IMAGE}"
[workspaces.project]
path = "{folder}"
[workspaces.project.dependencies]
lock = "requirements.lock"
index = "{index.url}"
[workspaces.project.egress]
ca_bundle = "{index.ca_bundle}"
"""
    )
    built = command_line(tmp_path, engine_host, "deps", "build", "--workspace", "project")
    assert (built.returncode, built.stdout) == (0, "small 1.0\n"), built.stderr
    assert "Collecting small==1.0" in built.stderr
    logged = command_line(tmp_path, engine_host, "policy", "log")
    assert index.url.split("/")[2] in logged.stdout.replace(" ", ":")
    listed = command_line(tmp_path, engine_host, "deps", "list")
    assert "project" in listed.stdout
    assert "mcp-sandbox/minimal" in listed.stdout
    ran = command_line(
        tmp_path, engine_host, "run", "--workspace", "project", "-c", "import small; print(small.version)"
    )
    assert (ran.stdout, ran.stderr) == ("1.0\n", "")
    young = command_line(tmp_path, engine_host, "deps", "prune")
    assert young.stdout == "0 layers removed.\n"
    pruned = command_line(tmp_path, engine_host, "deps", "prune", "--unused-for", "0")
    assert "1 layers removed." in pruned.stdout
    assert command_line(tmp_path, engine_host, "deps", "list").stdout.startswith("No layers.")
    (folder / "requirements.lock").write_text("small==1.0\n")
    refusal = command_line(tmp_path, engine_host, "deps", "build", "--workspace", "project")
    assert refusal.returncode == 125
    assert "has no hash for small (line 1)" in refusal.stderr


async def test_numpy_and_pandas_of_the_machines_own_index_on_the_minimal_image(
    tmp_path: Path, configure: Callable[..., Configuration]
) -> None:
    lock = tmp_path / "requirements.lock"
    lines = (
        (Path(__file__).parents[2] / "mcp_sandbox/image/requirements.lock")
        .read_text()
        .replace("\\\n", "")
        .splitlines()
    )
    wanted = ("numpy==", "pandas==", "python-dateutil==", "six==", "pytz==", "tzdata==")
    lock.write_text("\n".join(line for line in lines if line.startswith(wanted)))
    # What the index's names resolve to may be an address that is refused unless it is named.
    hosts = ("pypi.org", "files.pythonhosted.org")
    addresses = {info[4][0] for host in hosts for info in socket.getaddrinfo(host, 443, socket.AF_INET)}
    policy: dict[str, Any] = {
        "dependencies": {"lock": str(lock), "allow": [f"{address}:443" for address in sorted(addresses)]},
        "ready": 0,
    }
    program = "import numpy, pandas; print(pandas.DataFrame({'a': numpy.arange(4)}).a.sum())"
    with anyio.fail_after(MINUTES):
        async with running(configure(**policy), os.environ, origin="cli") as executor:
            first, second = [await execute(executor, program) for _ in range(2)]
            assert (first.stdout, second.stdout) == ("6\n", "6\n")
            used = await facts(configure(**policy), second.run_id)
            assert "egress" not in used
