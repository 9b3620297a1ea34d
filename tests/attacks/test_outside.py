"""Attacks seen from outside: what the host, the engine and another run notice of them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import docker.errors
import pytest
from anyio import to_thread

from mcp_sandbox.app import _host_id, running
from mcp_sandbox.config.settings import GVISOR
from mcp_sandbox.engines.docker.lockdown import GVISOR_THREADS, GVISOR_THREADS_OF_A_PROCESS, LABEL
from mcp_sandbox.engines.docker.seccomp import profile
from mcp_sandbox.model import ExecutionRequest, ExecutionResult
from mcp_sandbox.run import Run
from tests.attacks.conftest import TIGHT, product_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from docker import APIClient

    from mcp_sandbox.config.policy import Configuration, Policy
    from mcp_sandbox.executor import Executor

pytestmark = pytest.mark.engine

CANARY = f"canary-{secrets.token_hex(8)}"
HOLD_SECONDS = 60.0
CAPABILITIES_OF_PODMAN = 14
"""That a container has where none is dropped; it lists them one by one."""


class Held:
    """A run that goes on until it is let go."""

    def __init__(self, name: str) -> None:
        self.container = name
        self.result: ExecutionResult | None = None


class Marker:
    """Notices the word that a program prints when it is where it should be."""

    def __init__(self, word: bytes) -> None:
        self._word, self._seen, self.reached = word, b"", anyio.Event()

    def write(self, stream: str, data: bytes) -> None:
        seen = self._seen + data
        self._seen = seen[-len(self._word) :]
        if self._word in seen:
            self.reached.set()

    write_tail = write


@contextlib.asynccontextmanager
async def while_it_runs(
    configuration: Configuration, client: APIClient, code: str, *, language: str = "python"
) -> AsyncIterator[Held]:
    """Run a program that prints READY and goes on; yield its container; end the run when the scope is left."""
    async with (
        running(configuration, {**os.environ, "CANARY": CANARY}, origin="cli") as executor,
        anyio.create_task_group() as tasks,
    ):
        marker = Marker(b"READY")
        request = ExecutionRequest(language=language, code=code, timeout_seconds=HOLD_SECONDS)  # type: ignore[arg-type]
        held = Held("")

        async def run() -> None:
            held.result = await executor.execute(request, Run(marker))

        tasks.start_soon(run)
        with anyio.fail_after(30):
            await marker.reached.wait()
        # Under gVisor a bomb may have ended its sandbox already.
        held.container = next(iter(await to_thread.run_sync(containers, client, configuration)), "")
        yield held
        tasks.cancel_scope.cancel()


def containers(client: APIClient, configuration: Configuration) -> list[str]:
    label = f"{LABEL}.host={_host_id(configuration)}"
    return [found["Id"] for found in client.containers(all=True, filters={"label": label})]


def request(code: str, seconds: float = 20.0) -> ExecutionRequest:
    return ExecutionRequest(language="python", code=code, timeout_seconds=seconds)


@pytest.fixture
async def executor(configure: Callable[..., Configuration], runtime: str) -> AsyncIterator[Executor]:
    async with running(configure(runtime=runtime, **TIGHT), os.environ, origin="cli") as running_executor:
        yield running_executor


WAITS = "import time\nprint('READY', flush=True)\ntime.sleep(60)\n"


async def test_the_engine_was_asked_for_every_restriction_of_a_live_run(
    configure: Callable[..., Configuration], engine_host: str, engine_client: APIClient, runtime: str
) -> None:
    configuration = configure(runtime=runtime, **TIGHT)
    async with while_it_runs(configuration, engine_client, WAITS) as held:
        seen: dict[str, Any] = await to_thread.run_sync(engine_client.inspect_container, held.container)
    host, config = seen["HostConfig"], seen["Config"]
    policy = configuration.policy
    wanted = {
        "5.3": not any(option.startswith("label") for option in host["SecurityOpt"]),
        "5.4": host["CapDrop"] == ["ALL"] and not host["CapAdd"],
        "5.5": host["Privileged"] is False,
        "5.6": seen["Mounts"] == [] and not host["Binds"],
        "5.8": not host["PortBindings"] and not host["PublishAllPorts"],
        "5.10": host["NetworkMode"] == "none",
        "5.11": host["Memory"] == host["MemorySwap"] == policy.memory,
        "5.12": host["NanoCpus"] == policy.cpus * 1e9,
        "5.13": host["ReadonlyRootfs"] is True,
        "5.15": host["RestartPolicy"]["Name"] == "no",
        "5.16": host["PidMode"] == "",
        "5.17": host["IpcMode"] == "private",
        "5.18": not host["Devices"] and not host["DeviceRequests"],
        "5.19": {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]}
        == {"nofile": policy.nofile, "fsize": policy.scratch_size, "core": 0},
        "5.21": host["UTSMode"] == "",
        "5.22": f"seccomp={profile()}" in host["SecurityOpt"],
        "5.25": host["CgroupParent"] == "",
        "5.26": "no-new-privileges" in host["SecurityOpt"],
        "5.27": config["Healthcheck"]["Test"] == ["NONE"],
        "5.28": config["Image"].startswith("sha256:"),
        "5.29": host["PidsLimit"] == most_on_the_host(policy.pids_limit, runtime),
        "5.31": host["UsernsMode"] == "",
        "no log": host["LogConfig"]["Type"] == "none",
        "removed by the engine": host["AutoRemove"] is True,
        "never root": config["User"] not in ("", "0", "root", "0:0"),
        "ends with its server": config["StdinOnce"] is True,
        "no volume": not seen["Mounts"],
    }
    if product_of(engine_host) == "Podman":
        wanted |= as_podman_tells(seen, policy)
    assert [item for item, held_ in wanted.items() if not held_] == []


def as_podman_tells(seen: dict[str, Any], policy: Policy) -> dict[str, bool]:
    """Return what of the list Podman tells in other words than Docker."""
    host = seen["HostConfig"]
    limits = {limit["Name"].removeprefix("RLIMIT_").lower(): limit["Hard"] for limit in host["Ulimits"]}
    return {
        "5.4": len(host["CapDrop"]) == CAPABILITIES_OF_PODMAN and not host["CapAdd"],
        "5.16": host["PidMode"] == "private",
        "5.17": host["IpcMode"] == "shareable",  # it says so of every namespace that is the container's own
        "5.19": limits == {"nofile": policy.nofile, "fsize": policy.scratch_size, "core": 0, "nproc": 4096},
        "5.21": host["UTSMode"] == "private",
        "5.22": any(option.endswith("seccomp/profile.json") for option in host["SecurityOpt"]),
        "5.28": seen["Image"].startswith("sha256:"),
        "ends with its server": seen["Config"]["OpenStdin"] is True,  # more it does not tell
    }


async def test_nothing_of_a_program_shows_in_what_the_engine_and_the_host_tell_of_it(
    configure: Callable[..., Configuration], engine_client: APIClient, runtime: str
) -> None:
    code = f"secret = {CANARY!r}\n{WAITS}"
    async with while_it_runs(configure(runtime=runtime), engine_client, code) as held:
        inspected = json.dumps(await to_thread.run_sync(engine_client.inspect_container, held.container))
        command_lines = (await anyio.run_process(["ps", "axww", "-o", "args"])).stdout.decode()
        listed = json.dumps(await to_thread.run_sync(engine_client.containers))
    assert CANARY not in inspected
    assert CANARY not in listed
    assert CANARY not in command_lines


async def test_the_servers_environment_stays_outside(
    configure: Callable[..., Configuration], runtime: str
) -> None:
    environ = {**os.environ, "CANARY": CANARY, "PYTHONSTARTUP": "/tmp/x", "LD_PRELOAD": ""}
    async with running(configure(runtime=runtime), environ, origin="cli") as executor:
        result = await executor.execute(
            request("import os\nprint(dict(os.environb), open('/proc/self/environ').read())")
        )
    assert CANARY not in result.stdout
    assert "PYTHONSTARTUP" not in result.stdout


def usage(client: APIClient, container: str) -> dict[str, Any]:
    """Return what the engine counts of a container; nothing where it is gone."""
    try:
        return dict(client.stats(container, stream=False, one_shot=True)) if container else {}
    except (docker.errors.APIError, ValueError):  # the answer breaks off when the container goes
        return {}


BOMB = """
import os
print("READY", flush=True)
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


async def test_the_host_never_has_more_processes_of_a_fork_bomb_than_the_limit(
    configure: Callable[..., Configuration], engine_client: APIClient, runtime: str
) -> None:
    configuration = configure(runtime=runtime, **TIGHT)
    counts: list[int] = []
    async with while_it_runs(configuration, engine_client, BOMB) as held:
        for _ in range(5):
            found = await to_thread.run_sync(usage, engine_client, held.container)
            counts.append(found.get("pids_stats", {}).get("current", 0))
    assert max(counts) <= most_on_the_host(configuration.policy.pids_limit, runtime)


def most_on_the_host(processes: int, runtime: str) -> int:
    """Return how many the host may have for so many inside: under gVisor each is some threads of its kernel's."""
    return processes if runtime != GVISOR else GVISOR_THREADS + GVISOR_THREADS_OF_A_PROCESS * processes


BURNERS = """
import os
for _ in range(7):
    if not os.fork():
        break
else:
    print("READY", flush=True)
while True:
    pass
"""


def throttling(client: APIClient, container: str) -> dict[str, int]:
    """Return what the host's kernel counts of a container's share; not every engine passes it on."""
    process = Path("/proc", str(client.inspect_container(container)["State"]["Pid"]))
    lines = (process / "cgroup").read_text().splitlines()
    group = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    folder = f"cpu{group['cpu']}" if "cpu" in group else group[""].lstrip("/")  # cgroup v1, or v2
    counted = Path("/sys/fs/cgroup", folder, "cpu.stat").read_text().splitlines()
    return {name: int(value) for name, value in map(str.split, counted)}


PERIODS = 15
"""Of 100 ms, in which the kernel gives a share."""


async def test_the_host_gives_no_more_processor_time_than_the_share(
    configure: Callable[..., Configuration], engine_client: APIClient, runtime: str
) -> None:
    configuration = configure(
        runtime=runtime, cpus=0.2, **TIGHT
    )  # so little that a busy machine has it to give
    async with while_it_runs(configuration, engine_client, BURNERS) as held:
        first_periods = throttling(engine_client, held.container)
        first = await to_thread.run_sync(usage, engine_client, held.container)
        with anyio.fail_after(60):
            enough = first_periods["nr_periods"] + PERIODS
            while throttling(engine_client, held.container)["nr_periods"] < enough:  # noqa: ASYNC110
                await anyio.sleep(0.1)  # the kernel counts, it does not tell
        last = await to_thread.run_sync(usage, engine_client, held.container)
        last_periods = throttling(engine_client, held.container)
    used = last["cpu_stats"]["cpu_usage"]["total_usage"] - first["cpu_stats"]["cpu_usage"]["total_usage"]
    assert last_periods["nr_throttled"] > 0
    # A period of 100 ms gives 20 ms at most; what a period began with may be spent late.
    periods = last_periods["nr_periods"] - first_periods["nr_periods"]
    assert used <= (periods + 2) * 0.1e9 * 0.2 * 1.2


async def test_the_engine_answers_others_while_a_program_floods(
    configure: Callable[..., Configuration], engine_client: APIClient, runtime: str
) -> None:
    flood = "print('READY', flush=True)\nwhile True: print('x' * 9999)\n"
    async with while_it_runs(configure(runtime=runtime, **TIGHT), engine_client, flood) as held:
        for _ in range(5):
            with anyio.fail_after(10):
                await to_thread.run_sync(engine_client.containers, abandon_on_cancel=True)
                await to_thread.run_sync(
                    engine_client.inspect_container, held.container, abandon_on_cancel=True
                )


async def test_no_listener_of_the_host_hears_a_program(executor: Executor) -> None:
    name = f"\0{CANARY}"
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("0.0.0.0", tcp.getsockname()[1]))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(name)
        abstract.listen()
        for listener in (tcp, udp, abstract):
            listener.setblocking(False)
        addresses = sorted({"127.0.0.1", "172.17.0.1", *host_addresses()})
        code = f"""
import socket
for address in {addresses!r}:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as knock:
            knock.settimeout(2)
            try:
                knock.connect((address, {tcp.getsockname()[1]}))
                knock.send(b"heard")
            except OSError:
                pass
with socket.socket(socket.AF_UNIX) as knock:
    print(knock.connect_ex({name!r}) != 0)
"""
        result = await executor.execute(request(code))
        assert result.stdout == "True\n", result
        for heard in (tcp.accept, lambda: udp.recv(100), abstract.accept):
            with pytest.raises(BlockingIOError):
                heard()


def host_addresses() -> list[str]:
    found = subprocess.run(["ip", "-4", "-o", "addr"], check=False, capture_output=True, text=True).stdout
    return [line.split()[3].partition("/")[0] for line in found.splitlines()]


@pytest.mark.parametrize("kind", ["socket", "pipe"])
async def test_a_way_out_that_lies_in_the_workspace_is_closed(
    configure: Callable[..., Configuration], tmp_path: Path, runtime: str, kind: str
) -> None:
    folder = tmp_path / "workspace"
    (folder / "deep").mkdir(parents=True)
    path = folder / "deep" / "out"
    with contextlib.ExitStack() as stack:
        if kind == "socket":
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
            listener.setblocking(False)
            attempt = "s = socket.socket(socket.AF_UNIX); s.connect('/workspace/deep/out'); s.send(b'heard')"
        else:
            os.mkfifo(path)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            stack.callback(os.close, reader)
            attempt = "os.write(os.open('/workspace/deep/out', os.O_WRONLY | os.O_NONBLOCK), b'heard')"
        path.chmod(0o777)
        code = f"import os, socket\ntry:\n    {attempt}\n    print('out')\nexcept OSError:\n    print('closed')\n"
        async with running(
            configure(runtime=runtime, path=str(folder)), os.environ, origin="cli"
        ) as executor:
            result = await executor.execute(request(code))
        assert result.stdout == "closed\n", result
        if kind == "socket":
            with pytest.raises(BlockingIOError):
                listener.accept()
        else:
            assert os.read(reader, 100) == b""


HOLDS = f"""
import ctypes, fcntl, os, socket, time
libc = ctypes.CDLL(None)
fcntl.flock(open("/etc/passwd"), fcntl.LOCK_EX)
fcntl.lockf(open("/tmp/lock", "w"), fcntl.LOCK_EX)
held = [socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 4711))]
held[0].bind("\\0{CANARY}")
held[0].listen()
libc.shmget(4711, ctypes.c_size_t(4096), 0o1666)
open("/dev/shm/{CANARY}", "w").close()
open("/tmp/{CANARY}", "w").close()
print("READY", flush=True)
time.sleep(60)
"""
LOOKS = f"""
import ctypes, fcntl, os, socket
libc = ctypes.CDLL(None)
found = []
try:
    fcntl.flock(open("/etc/passwd"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    found.append("a lock")
with socket.socket(socket.AF_UNIX) as knock:
    if knock.connect_ex("\\0{CANARY}") == 0:
        found.append("an abstract socket")
with socket.socket() as knock:
    if knock.connect_ex(("127.0.0.1", 4711)) == 0:
        found.append("a port")
if libc.shmget(4711, ctypes.c_size_t(4096), 0) >= 0:
    found.append("shared memory")
for folder in ("/dev/shm", "/tmp"):
    if os.listdir(folder):
        found.append(folder)
for pid in (name for name in os.listdir("/proc") if name.isdigit()):
    if "{CANARY}" in open("/proc/%s/cmdline" % pid).read():
        found.append("a process")
print(*found or ["nothing"])
"""


async def test_two_runs_at_once_see_nothing_of_each_other(
    configure: Callable[..., Configuration], engine_client: APIClient, executor: Executor, runtime: str
) -> None:
    async with while_it_runs(configure(runtime=runtime), engine_client, HOLDS):
        result = await executor.execute(request(LOOKS))
    assert result.stdout == "nothing\n", result


async def test_a_container_that_somebody_pauses_ends_at_its_deadline(
    configure: Callable[..., Configuration], engine_client: APIClient
) -> None:
    configuration = configure(runtime="runc")
    marker = Marker(b"READY")
    async with running(configuration, os.environ, origin="cli") as executor:
        results: list[ExecutionResult] = []
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                results.append(await executor.execute(request(WAITS, 3), Run(marker)))

            tasks.start_soon(run)
            with anyio.fail_after(60):
                await marker.reached.wait()
                [container] = await to_thread.run_sync(containers, engine_client, configuration)
                await to_thread.run_sync(engine_client.pause, container)
        assert [result.status for result in results] == ["timed_out"]
        again = await executor.execute(request("print(1)"))
    assert again.stdout == "1\n"
    await none_left(engine_client, configuration)


async def test_a_container_that_somebody_kills_is_lost_and_keeps_its_output(
    configure: Callable[..., Configuration], engine_client: APIClient, runtime: str
) -> None:
    configuration = configure(runtime=runtime)
    async with while_it_runs(configuration, engine_client, WAITS) as held:
        await to_thread.run_sync(engine_client.kill, held.container)
        with anyio.fail_after(30):
            while held.result is None:  # noqa: ASYNC110  # the run's own task sets it
                await anyio.sleep(0.05)
    assert held.result.status == "lost"
    assert held.result.stdout == "READY\n"
    await none_left(engine_client, configuration)


async def none_left(client: APIClient, configuration: Configuration) -> None:
    with anyio.fail_after(30):
        while await to_thread.run_sync(containers, client, configuration):  # noqa: ASYNC110  # it does not tell
            await anyio.sleep(0.05)


async def test_an_agent_that_is_drowned_in_work_still_ends_the_program(executor: Executor) -> None:
    result = await executor.execute(request(BOMB, 2))
    assert result.status in ("timed_out", "lost", "out_of_memory")
    after = await executor.execute(request("print('next')"))
    assert after.stdout == "next\n"


async def test_a_file_that_comes_out_never_holds_what_a_link_leads_to(executor: Executor) -> None:
    code = "import os\nos.symlink('/etc/passwd', 'f')\nopen('g', 'w').write('own')\nos.link('g', 'h')\n"
    result = await executor.execute(request(code))
    contents = {artifact.path: artifact.size for artifact in result.artifacts}
    assert contents == {"g": 3, "h": 3}
