"""Servers that share a record and are killed at random: no finished run is lost, no chain breaks, no end is made up."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.audit.verify import verify
from tests.clients.raw import PATIENCE, configuration_file, serving
from tests.engine.sandboxes import none_left

if TYPE_CHECKING:
    from docker import APIClient

REPOSITORY = Path(__file__).parents[2]
SERVERS = 4
RUNS = 1000
AT_ONCE = 4
KILLS = 3
"""Of each server."""

# Argument: folder, number of runs. Everything is the product's but the engine and the guest.
SERVER = """
import hashlib, sys
import anyio
from pathlib import Path
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.executor import Executor
from mcp_sandbox.model import ExecutionRequest
from tests.fakes import FakeEngine, plays

async def program(guest):
    text = guest.asked.code
    await guest.print(text * 500)
    await guest.exit(stdout=len(text) * 500, exit_code=len(text) % 7)
    await guest.come_out(b"made.txt", text * 5000)
    await guest.say(b"z", guest.fields(refused=0))

async def main():
    store = AuditStore(Path(sys.argv[1]))
    numbers = iter(range(int(sys.argv[2])))

    async def some(executor):
        for number in numbers:
            request = ExecutionRequest(language="python", code=f"print({number})", stdin=b"in")
            result = await executor.execute(request)
            print(result.run_id, request.code, flush=True)

    async with FakeEngine(plays(program)) as engine, anyio.create_task_group() as tasks:
        executor = Executor(Configuration(policy=Policy()), engine, store, origin="mcp")
        for _ in range(AT_ONCE):
            tasks.start_soon(some, executor)
    await store.aclose()

anyio.run(main)
""".replace("AT_ONCE", str(AT_ONCE))


def serve_and_be_killed(folder: Path, chance: random.Random) -> dict[str, str]:
    """Let a server do its part of the runs, killed and started anew; return the runs that it told of as finished."""
    told: dict[str, str] = {}
    share = RUNS // SERVERS
    ends = [*sorted(chance.sample(range(1, share - 20), KILLS)), share]
    for end in ends:
        # What a killed server finished and did not come to tell is done again, so that there are enough.
        command = [sys.executable, "-c", SERVER, str(folder), str(share - len(told))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as server:
            assert server.stdout
            for line in server.stdout:
                if line.endswith("\n"):
                    run_id, _, code = line.strip().partition(" ")
                    told[run_id] = code
                if len(told) >= end and end != share:
                    server.kill()
            status = server.wait()
        assert status == -9 or len(told) >= share  # it may have been done before it was killed
        if len(told) >= share:
            break
    return told


@pytest.mark.timeout(int(300 * PATIENCE))
async def test_a_thousand_runs_of_four_servers_that_are_killed_at_random(tmp_path: Path) -> None:
    told: dict[str, str] = {}

    async def one(seed: int) -> None:
        told.update(
            await anyio.to_thread.run_sync(serve_and_be_killed, tmp_path / "audit", random.Random(seed))
        )

    async with anyio.create_task_group() as servers:
        for seed in range(SERVERS):
            servers.start_soon(one, seed)
    assert len(told) >= RUNS
    store = AuditStore(tmp_path / "audit")
    await store.open()  # the next start closes what the dead left open
    await store.aclose()
    folder = Folder(tmp_path / "audit")
    with reading(folder) as reader:
        runs = {run.run_id: run for run in reader.list(limit=10 * RUNS)}
        for run_id, code in told.items():
            run = runs[run_id]
            assert (run.status, run.exit_code, run.error) == ("exited", len(code) % 7, "")
            number = reader.resolve(run_id)
            assert reader.content(number, "code") == code.encode()
            assert reader.content(number, "stdout") == code.encode() * 500
            assert reader.content(number, "artifact:made.txt") == code.encode() * 5000
    others = [run for run_id, run in runs.items() if run_id not in told]
    assert {run.status for run in others} <= {"exited", "lost"}  # finished and not told, or marked as cut off
    assert all((run.status == "lost") == (run.error != "") for run in others)
    assert len(others) <= SERVERS * KILLS * (AT_ONCE + 1)
    found = verify(folder)
    assert found.problems == ()
    assert found.runs == len(runs)
    assert SERVERS + 1 < found.chains <= SERVERS * (KILLS + 1) + 1
    assert not list((tmp_path / "audit" / "staging").glob("*/*"))


ROUNDS, REAL_SERVERS, CALLS = 4, 3, 5


@pytest.mark.engine
@pytest.mark.timeout(int(300 * PATIENCE))
async def test_real_servers_that_are_killed_while_they_run_programs(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    small = {"memory": "128MiB", "scratch_size": "16MiB", "tmp_size": "16MiB", "shm_size": "16MiB"}
    configuration = configuration_file(tmp_path, engine_host, **small)
    answered: dict[str, int] = {}
    chance = random.Random(7)

    async def one(answers: int) -> None:
        async with serving(configuration) as client:
            calls = [
                await client.begin("execute_python", code=f"print({number}); raise SystemExit({number})")
                for number in range(CALLS)
            ]
            with anyio.fail_after(120 * PATIENCE):
                while sum(len(client.answers_to(call)) for call in calls) < answers:
                    await client._heard.wait()
            if answers < CALLS:
                client.process.kill()
                await client.ended()
                with anyio.fail_after(20 * PATIENCE):
                    await client.said_nothing_more.wait()
            for number, call in enumerate(calls):
                for answer in client.answers_to(call):
                    result = answer["result"]["structuredContent"]
                    assert (result["status"], result["exit_code"]) == ("exited", number)
                    answered[result["run_id"]] = number

    for number in range(ROUNDS):
        async with anyio.create_task_group() as servers:
            for _ in range(REAL_SERVERS):
                servers.start_soon(one, CALLS if number == ROUNDS - 1 else chance.randrange(1, CALLS))
    assert len(answered) >= REAL_SERVERS * (CALLS + ROUNDS - 1)
    store = AuditStore(tmp_path / "audit")
    await store.open()
    runs = {run.run_id: run for run in await store.list(limit=1000)}
    await store.aclose()
    for run_id, exit_code in answered.items():
        assert (runs[run_id].status, runs[run_id].exit_code) == ("exited", exit_code)
    unanswered = [run for run_id, run in runs.items() if run_id not in answered]
    assert {run.status for run in unanswered} <= {"exited", "lost"}
    assert len(runs) <= ROUNDS * REAL_SERVERS * CALLS
    found = verify(Folder(tmp_path / "audit"))
    assert found.problems == ()
    assert found.runs == len(runs)
    await none_left(engine_client, tmp_path)
