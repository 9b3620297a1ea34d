"""Servers that are killed at any moment leave no sandbox, servers side by side leave each other's alone, and many
runs leave nothing at all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import docker
import pytest
from anyio import to_thread

from tests.clients.raw import INITIALIZE, PATIENCE, configuration_file, environment, server_command, serving
from tests.engine.sandboxes import SLEEP, none_left, sandboxes, sleeping, sleeps

if TYPE_CHECKING:
    from docker import APIClient

    from tests.clients.raw import RawClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

KILLED = 50
AT_ONCE = 5
LONGEST_SECONDS = 2.5
"""Longest time between a moment that can be told (a server starts, answers, has run something) and the kill."""
ANSWERED = (b"", b'"id":0', b'"id":2')
RUNS = 500
SETTLED = 100
"""Runs after which caches, pools and threads are what they stay."""
SMALL = {"scratch_size": "16MiB", "tmp_size": "8MiB", "shm_size": "8MiB"}


async def killed_at_some_moment(configuration: Path, number: int, moment: float, host: str) -> bool:
    """Give a new server calls and kill it; tell whether there were sandboxes then.

    Of three, one is killed so many seconds after it started, one after it answered, one after its first run.
    """
    calls = [
        {"method": "initialize", "params": INITIALIZE, "id": 0},
        {"method": "notifications/initialized"},
        *(
            {
                "method": "tools/call",
                "id": number,
                "params": {"name": "execute_shell", "arguments": {"command": f"trap '' TERM; {command}"}},
            }
            for number, command in enumerate((f"{SLEEP} & wait", "true", f"setsid {SLEEP} & echo left"), 1)
        ),
    ]
    answers = configuration.parent / f"said{number}"
    with answers.open("ab") as said:
        process = subprocess.Popen(  # noqa: ASYNC220  # returns at once
            server_command(configuration),
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env=environment(configuration.parent),
            cwd="/",
        )
    assert process.stdin
    try:
        process.stdin.write(
            b"".join(json.dumps({"jsonrpc": "2.0", **call}).encode() + b"\n" for call in calls)
        )
        process.stdin.flush()
        with anyio.fail_after(60 * PATIENCE):
            while ANSWERED[number % 3] not in answers.read_bytes():  # noqa: ASYNC110  # a file tells nobody
                await anyio.sleep(0.05)
        await anyio.sleep(moment)  # the moment is what this is about
        return await to_thread.run_sync(has_sandboxes, host, configuration.parent)
    finally:
        process.kill()
        process.stdin.close()
        assert process.wait() == -signal.SIGKILL


async def test_servers_killed_at_any_moment_leave_no_sandbox(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host)
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    limit = anyio.CapacityLimiter(AT_ONCE)
    had_sandboxes: list[bool] = []

    async def one(number: int, moment: float) -> None:
        async with limit:
            had_sandboxes.append(await killed_at_some_moment(configuration, number, moment, engine_host))

    async with anyio.create_task_group() as tasks:
        for number in range(KILLED):
            tasks.start_soon(one, number, chance.uniform(0, LONGEST_SECONDS * PATIENCE))
    assert sum(had_sandboxes) >= KILLED // 3, f"hardly any was killed while there were sandboxes; seed {seed}"
    # What runs ends with its server, with nobody there to see to it.
    with anyio.fail_after(60 * PATIENCE):
        while any(found["State"] == "running" for found in sandboxes(engine_client, tmp_path)):  # noqa: ASYNC110
            await anyio.sleep(0.1)  # the engine is asked, it does not tell
    left = Counter(found["State"] for found in sandboxes(engine_client, tmp_path))
    print(
        f"seed {seed}: {sum(had_sandboxes)} of {KILLED} were killed among sandboxes; left to the sweep: {dict(left)}"
    )
    # What was made and never started is found by the next server.
    async with serving(configuration_file(tmp_path, engine_host, ready=0)):
        await none_left(engine_client, tmp_path)


def has_sandboxes(host: str, folder: Path) -> bool:
    client = docker.APIClient(host, timeout=60)  # one of its own for each thread
    try:
        return bool(sandboxes(client, folder))
    finally:
        client.close()


async def test_a_server_that_starts_leaves_the_sandboxes_of_a_living_one_and_takes_those_of_a_dead_one(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, ready=0)
    async with serving(configuration) as living:
        call = await living.begin("execute_shell", command=f"{SLEEP} & sleep 12; echo unharmed")
        [container] = await sleeping(engine_client, tmp_path)
        async with serving(configuration) as dead:
            await dead.begin("execute_shell", command=f"trap '' TERM; {SLEEP} & wait")
            await sleeping(engine_client, tmp_path, programs=2)
            dead.process.kill()
            await dead.ended()
            dead.not_protocol.clear()
        async with serving(configuration) as third:
            assert (await third.python("print(1)"))["stdout"] == "1\n"
            with anyio.fail_after(30 * PATIENCE):
                while len(left := sandboxes(engine_client, tmp_path)) > 1:  # noqa: ASYNC110  # as above
                    await anyio.sleep(0.1)
            assert [found["Id"] for found in left] == [container]
        result = (await living.answer_to(call, 60 * PATIENCE))["result"]["structuredContent"]
        assert (result["status"], result["stdout"]) == ("exited", "unharmed\n")
    await none_left(engine_client, tmp_path)


async def test_servers_of_other_records_never_touch_each_others_sandboxes(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours = configuration_file(tmp_path / "a", engine_host, ready=0)
    theirs = configuration_file(tmp_path / "b", engine_host, ready=0)
    async with serving(ours) as first:
        call = await first.begin("execute_shell", command=f"{SLEEP} & sleep 8; echo unharmed")
        await sleeping(engine_client, tmp_path / "a")
        for _ in range(2):
            async with serving(theirs) as second:
                assert (await second.python("print(1)"))["stdout"] == "1\n"
                second.process.kill()
                await second.ended()
                second.not_protocol.clear()
        result = (await first.answer_to(call, 60 * PATIENCE))["result"]["structuredContent"]
        assert (result["status"], result["stdout"]) == ("exited", "unharmed\n")


class Held:
    """What a server holds of its machine."""

    def __init__(self, pid: int, folder: Path, client: APIClient) -> None:
        process = Path("/proc", str(pid))
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
        self.descriptors = sum(1 for _ in (process / "fd").iterdir())
        self.threads = int(status["Threads"])
        self.resident = int(status["VmRSS"].split()[0]) * 1024
        self.files = {path for path in folder.rglob("*") if path.is_file() and "blobs" not in path.parts}
        self.volumes = {volume["Name"] for volume in client.volumes()["Volumes"] or ()}
        self.images = {image["Id"] for image in client.images(all=True)}


PROGRAMS: list[tuple[str, dict[str, Any]]] = [
    ("execute_python", {"code": "print('x' * 1000)"}),
    ("execute_shell", {"command": "echo text > file; echo done"}),
    ("execute_python", {"code": "raise SystemExit(3)"}),
    ("execute_shell", {"command": "kill -SEGV $$"}),
    ("execute_python", {"code": "import time; time.sleep(60)", "timeout_seconds": 0.3}),
    ("execute_python", {"code": "bytearray(b'x') * 2**30"}),
    ("execute_shell", {"command": "(setsid sleep 60 &); yes | head -c 3000000"}),
]


async def calls(server: RawClient, number: int) -> None:
    """Make so many calls, a few at a time, of every kind in turn."""
    limit = anyio.CapacityLimiter(4)
    sending = anyio.Lock()

    async def one(index: int) -> None:
        tool, arguments = PROGRAMS[index % len(PROGRAMS)]
        async with limit:
            async with sending:
                call = await server.begin(tool, **arguments)
            answer = await server.answer_to(call, 120 * PATIENCE)
            assert not answer["result"].get("isError"), answer

    async with anyio.create_task_group() as tasks:
        for index in range(number):
            tasks.start_soon(one, index)


async def test_five_hundred_runs_leave_a_server_and_its_machine_as_they_were(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, memory="96MiB", ready=0, **SMALL)
    async with serving(configuration) as server:
        await calls(server, SETTLED)
        server.messages.clear()
        await none_left(engine_client, tmp_path)
        before = Held(server.process.pid, tmp_path, engine_client)
        await calls(server, RUNS)
        server.messages.clear()
        await none_left(engine_client, tmp_path)
        after = Held(server.process.pid, tmp_path, engine_client)
    # Connections to the engine and threads that wait for work are kept, a few of each; a leak would be one a run.
    assert after.descriptors <= before.descriptors + 10
    assert after.threads <= before.threads + 10
    assert after.resident <= before.resident + 8 * 2**20
    assert after.files <= before.files
    assert after.volumes <= before.volumes
    assert after.images <= before.images


async def test_a_server_that_slept_through_a_deadline_finds_the_program_ended_at_it(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, ready=0)
    async with serving(configuration) as server:
        call = await server.begin(
            "execute_shell", command=f"echo begun; trap '' TERM; {SLEEP}", timeout_seconds=4
        )
        await sleeping(engine_client, tmp_path)
        server.process.send_signal(
            signal.SIGSTOP
        )  # as when a laptop's lid closes over it, and not over the engine
        try:
            with anyio.fail_after(60 * PATIENCE):
                while await to_thread.run_sync(has_programs, engine_client, tmp_path):  # noqa: ASYNC110  # as above
                    await anyio.sleep(0.1)
        finally:
            server.process.send_signal(signal.SIGCONT)
        result = (await server.answer_to(call, 60 * PATIENCE))["result"]["structuredContent"]
        assert (result["status"], result["stdout"]) == ("timed_out", "begun\n")
        assert (await server.python("print('next')"))["stdout"] == "next\n"
    await none_left(engine_client, tmp_path)


async def test_a_run_whose_containers_keeper_is_killed_is_lost_and_leaves_nothing(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, ready=0, runtime="runc")
    async with serving(configuration) as server:
        call = await server.begin("execute_shell", command=f"echo begun; {SLEEP}")
        [container] = await sleeping(engine_client, tmp_path)
        os.kill(keeper_of(engine_client, container), signal.SIGKILL)
        result = (await server.answer_to(call, 60 * PATIENCE))["result"]["structuredContent"]
        assert (result["status"], result["stdout"]) == ("lost", "begun\n")
        assert (await server.python("print('next')"))["stdout"] == "next\n"
    await none_left(engine_client, tmp_path)


def keeper_of(client: APIClient, container: str) -> int:
    """Return the process that watches over a container: containerd's shim, or conmon."""
    first = client.inspect_container(container)["State"]["Pid"]
    return int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])


def has_programs(client: APIClient, folder: Path) -> bool:
    return any(sleeps(client, found["Id"]) for found in sandboxes(client, folder))
