"""A recorded run, run again: the same where nothing changed; what did change is told, and nothing is ever loosened."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.model import ExecutionRequest
from mcp_sandbox.replay import policy_now, recorded, replay, workspace_changes
from tests.clients.raw import ANSWER_SECONDS, configuration_file, environment
from tests.corpus.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker import APIClient

    from mcp_sandbox.config.policy import Configuration

pytestmark = pytest.mark.engine

COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))
SMALL = {"memory": "128MiB", "scratch_size": "16MiB", "tmp_size": "16MiB", "shm_size": "16MiB"}
MANY = 50
# Programs whose output and files are theirs alone: no process ids, addresses, times or order of threads.
TOPICS = ("source", "syntax", "exit", "traceback", "language", "import")
ALIKE = [case for case in CASES if case.topic in TOPICS and "zip" not in case.name and case.source.strip()]
Ended = subprocess.CompletedProcess[str]


@pytest.mark.timeout(300)
async def test_programs_of_every_kind_run_again_the_same(configure: Callable[..., Configuration]) -> None:
    cases = ALIKE[:: len(ALIKE) // MANY][:MANY]
    assert len(cases) == MANY
    configuration = configure(memory=128 << 20, scratch_size=16 << 20, tmp_size=16 << 20, shm_size=16 << 20)
    slots = anyio.CapacityLimiter(4)
    outcomes: dict[str, list[str]] = {}

    async def again(run_id: str, name: str) -> None:
        async with slots:
            original = await recorded(AuditStore(Path(configuration.audit.path)), run_id)
            policy, differences = policy_now(original, configuration)
            assert differences == []
            assert await workspace_changes(original, policy, configuration) == []
            outcomes[name] = (await replay(original, policy, configuration)).differences

    with anyio.fail_after(250):
        names: dict[str, str] = {}

        async def first(source: str, name: str) -> None:
            async with slots:
                request = ExecutionRequest(
                    language="python", code=source, stdin=name.encode(), files=((f"{name}.txt", b"file"),)
                )
                names[name] = (await executor.execute(request)).run_id

        async with (
            running(configuration, os.environ, origin="cli") as executor,
            anyio.create_task_group() as runs,
        ):
            for case in cases:
                runs.start_soon(first, case.source, case.name)
        async with anyio.create_task_group() as replays:
            for name, run_id in names.items():
                replays.start_soon(again, run_id, name)
    assert len(outcomes) == MANY
    assert {name: differences for name, differences in outcomes.items() if differences} == {}


class Machine:
    """A home folder with a configuration and a record of its own."""

    def __init__(self, home: Path, host: str) -> None:
        home.mkdir()
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        (self.work / "data.txt").write_text("one\n")
        (home / "token").write_text("s3cr3t-value-of-a-token\n")
        self._host = host
        self.configure()

    def configure(self, *, more: str = "", secret: bool = True, **policy: object) -> None:
        self.file = configuration_file(self.home, self._host, **{**SMALL, **policy})
        text = f'{self.file.read_text()}\n[workspaces.w]\npath = "{self.work}"\n{more}\n'
        if secret:
            text += f'[workspaces.w.secrets]\nTOKEN = {{ file = "{self.home}/token" }}\n'
        self.file.write_text(text)

    def call(self, *arguments: str | Path) -> Ended:
        command, *rest = arguments
        names = ["runs", rest.pop(0)] if command == "runs" else [str(command)]
        return subprocess.run(
            [COMMAND, *map(str, names), "--config", self.file, *rest],
            capture_output=True,
            text=True,
            env=environment(self.home),
            timeout=ANSWER_SECONDS * 2,
            cwd=self.home,
        )

    def run(self, code: str, workspace: str = "w") -> None:
        ended = self.call("run", "--workspace", workspace, "-c", code)
        assert ended.returncode == 0, ended.stderr

    def replay(self, *options: str | Path) -> Ended:
        return self.call("runs", "replay", *(options or ("last",)))


@pytest.fixture
def machine(tmp_path: Path, engine_host: str) -> Machine:
    return Machine(tmp_path / "here", engine_host)


READS = (
    "import os; print(open('data.txt').read(), 'TOKEN' in os.environ)\nopen('made.txt', 'w').write('made')"
)


def test_nothing_changed_and_then_a_file_did(machine: Machine) -> None:
    machine.run(READS)
    ended = machine.replay()
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert ended.stdout.endswith(": the same\n")
    (machine.work / "data.txt").write_text("two\n")
    (machine.work / "more.txt").write_text("more\n")
    (first,) = machine.call("runs", "list", "--json").stdout.split('"run_id": "')[-1:]
    run_id = first.partition('"')[0]
    ended = machine.replay(run_id)
    assert ended.returncode == 125
    assert "not as then: more.txt: new\nnot as then: data.txt: other content\n" in ended.stderr
    ended = machine.replay("--force", run_id)
    assert ended.returncode == 1
    assert "-one\n+two\n" in ended.stdout
    assert ended.stdout.endswith(": different\n")


def test_a_tightened_policy_holds_and_a_loosened_one_gives_nothing(machine: Machine) -> None:
    limits = (
        "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[1], os.environ.get('NEW'))"
    )
    machine.configure(nofile=100)
    machine.run(limits)
    machine.configure(nofile=80)
    ended = machine.replay()
    assert ended.returncode == 125
    assert "not as then: nofile: 100 then, 80 now\n" in ended.stderr
    ended = machine.replay("--force", "last")
    assert ended.returncode == 1
    assert "-100 None\n+80 None\n" in ended.stdout
    machine.run(limits)  # under the tighter policy
    machine.configure(
        nofile=200,
        memory="256MiB",
        secret=False,
        more='secrets = { TOKEN = { env = "HOME" }, NEW = { env = "HOME" } }',
    )
    ended = machine.replay()
    assert (ended.returncode, ended.stderr) == (0, ""), ended


def test_a_secret_that_is_absent_is_named(machine: Machine) -> None:
    machine.run(READS)
    (machine.home / "token").unlink()
    ended = machine.replay()
    assert ended.returncode == 125
    assert "secret_missing: the secret TOKEN cannot be had from the file " in ended.stderr
    machine.configure(secret=False)
    ended = machine.call("runs", "replay", machine_run(machine))
    assert ended.returncode == 125
    assert (
        "not as then: the secret TOKEN: given then, not in the workspace's configuration now\n"
        in ended.stderr
    )
    ended = machine.replay("--force", machine_run(machine))
    assert ended.returncode == 1
    assert "- True\n+ False\n" in ended.stdout


def test_a_program_that_held_a_secret_is_not_taken_for_what_ran(machine: Machine) -> None:
    machine.run("print(len('s3cr3t-value-of-a-token'))")
    ended = machine.replay()
    assert ended.returncode == 125
    assert "not as then: the secret TOKEN: its value stood in the program" in ended.stderr


def machine_run(machine: Machine) -> str:
    """Return the name of the first run on the record."""
    return machine.call("runs", "list", "--json").stdout.split('"run_id": "')[-1].partition('"')[0]


def test_an_image_that_was_rebuilt_or_is_gone_is_told(machine: Machine, engine_client: APIClient) -> None:
    repository = f"mcp-sandbox-tests/{machine.home.parent.name.lower()}"
    container = engine_client.create_container("mcp-sandbox/minimal")["Id"]
    images: list[str] = []
    try:
        for number in range(2):
            images.append(
                engine_client.commit(container, repository, "latest", changes=[f"LABEL number={number}"])[
                    "Id"
                ]
            )
            if number == 0:
                machine.configure(image=repository)
                machine.run(READS)
        ended = machine.replay()
        assert ended.returncode == 125
        assert (
            f"not as then: image: {images[0]} then; {repository}, as configured, is {images[1]} now"
            in ended.stderr
        )
        assert machine.replay("--force", "last").returncode == 0  # in the image of then, which is still there
        engine_client.remove_image(images[0], force=True)
        ended = machine.replay("--force", "last")
        assert ended.returncode == 125
        assert f"not as then: the image {images[0]} is gone from the engine\n" in ended.stderr
        assert "image_missing" in ended.stderr
    finally:
        engine_client.remove_container(container, force=True)
        engine_client.remove_image(repository, force=True)


def test_a_run_is_replayed_on_another_machine_from_its_export(
    machine: Machine, engine_host: str, tmp_path: Path
) -> None:
    machine.run(READS)
    export = tmp_path / "run.tar"
    assert machine.call("runs", "export", "last", "-o", export).returncode == 0
    other = Machine(tmp_path / "there", engine_host)
    ended = other.replay("--from-export", export, "--workspace", "w")
    assert ended.returncode == 125  # the same files, and at another place: that is for a person to see
    assert f"not as then: path: {machine.work} then, {other.work} now\n" in ended.stderr
    ended = other.replay("--from-export", export, "--workspace", "w", "--force")
    assert ended.returncode == 0, ended
    assert "not as then: data.txt" not in ended.stderr
    (other.work / "data.txt").write_text("two\n")
    ended = other.replay("--from-export", export, "--workspace", "w", "--force")
    assert ended.returncode == 1
    assert "not as then: data.txt: other content\n" in ended.stderr
    assert "-one\n+two\n" in ended.stdout
    export.write_bytes(export.read_bytes().replace(b"open('data.txt')", b"open('date.txt')"))
    ended = other.replay("--from-export", export, "--workspace", "w", "--force")
    assert ended.returncode == 125
    assert "its contents are not those that SHA256SUMS names" in ended.stderr


def test_files_of_a_run_are_listed_and_copied_out(machine: Machine, tmp_path: Path) -> None:
    machine.run(
        "import os\nos.mkdir('a')\nfor n in 'a/x', 'y':\n    open(n, 'w').write(n)\nos.symlink('y', 'z')"
    )
    listed = machine.call("runs", "artifacts", "last")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["path", "a/x", "y"]
    assert "not kept: z: a link" in listed.stderr
    out = tmp_path / "out"
    out.mkdir()
    (out / "y").write_text("mine")
    copied = machine.call("runs", "artifacts", "last", "--out", out)
    assert copied.returncode == 125
    assert "y: file exists" in copied.stderr
    assert ((out / "a/x").read_text(), (out / "y").read_text()) == ("a/x", "mine")
