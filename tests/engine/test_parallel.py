"""Many calls at once: each is answered with its own result, only so many run, and nothing of them stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.clients.raw import ANSWER_SECONDS, RawClient, configuration_file, serving
from tests.engine.sandboxes import SECONDS, SLEEP, none_left, runs, sleeping

if TYPE_CHECKING:
    from docker import APIClient

pytestmark = pytest.mark.engine

CALLS = 40
MAX_PARALLEL = 3
# The clock is the kernel's, so that times of different sandboxes can be compared.
PROGRAM = (
    "import time; began = time.monotonic(); time.sleep({seconds}); print({number}, began, time.monotonic())"
)


async def call_many(server: RawClient, calls: int) -> list[tuple[float, float]]:
    """Make that many calls at once; check that each is given its own result; return when each ran."""
    spans = []
    ids = {
        number: await server.begin(
            "execute_python", code=PROGRAM.format(number=number, seconds=number % 3 * 0.05)
        )
        for number in range(calls)
    }
    for number, request_id in ids.items():
        answer = await server.answer_to(request_id, 4 * ANSWER_SECONDS)
        told, began, ended = answer["result"]["structuredContent"]["stdout"].split()
        assert int(told) == number
        assert len(server.answers_to(request_id)) == 1
        spans.append((float(began), float(ended)))
    return spans


def at_once(spans: list[tuple[float, float]]) -> int:
    """Return how many ran at the same time, at most."""
    changes = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    most = running = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


async def settled(server: RawClient, what: str) -> int:
    """Count the server's threads (`task`) or descriptors (`fd`) when their number does not change any more."""
    counts = [-1]
    with anyio.fail_after(SECONDS):
        while len(counts) < 10 or len(set(counts[-10:])) > 1:
            await anyio.sleep(0.05)
            counts.append(len(list(Path(f"/proc/{server.process.pid}/{what}").iterdir())))
    return counts[-1]


async def test_forty_calls_at_once_are_all_answered_and_leave_nothing(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host, server={"max_parallel": MAX_PARALLEL}, ready=0)
    async with serving(configuration) as server:
        await call_many(server, 4 * MAX_PARALLEL)
        await none_left(engine_client, tmp_path)
        threads, descriptors = await settled(server, "task"), await settled(server, "fd")
        assert 1 < at_once(await call_many(server, CALLS)) <= MAX_PARALLEL
        await none_left(engine_client, tmp_path)
        # A few more may wait for work, each with a connection; what is kept for each call would be 40.
        assert await settled(server, "task") < threads + CALLS // 4
        assert await settled(server, "fd") < descriptors + CALLS // 4
    assert [run.status for run in await runs(tmp_path)] == ["exited"] * (4 * MAX_PARALLEL + CALLS)


async def test_a_call_that_finds_the_queue_full_is_told_so_at_once(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(
        tmp_path, engine_host, server={"max_parallel": 1, "max_queued": 2}, ready=0
    )
    async with serving(configuration) as server:
        running = await server.begin("execute_shell", command=SLEEP)
        await sleeping(engine_client, tmp_path)
        waiting = [await server.begin("execute_shell", command=f"echo {number}") for number in range(2)]
        refused = await server.call("execute_shell", command="echo refused")
        assert refused["isError"] is True
        assert refused["content"][0]["text"].startswith("busy: 2 calls wait already")
        assert "Try again" in refused["content"][0]["text"]
        await server.cancel(running)
        for number, request_id in enumerate(waiting):
            result = (await server.answer_to(request_id))["result"]
            assert result["structuredContent"]["stdout"] == f"{number}\n"
    assert sorted(run.status for run in await runs(tmp_path)) == ["cancelled", "exited", "exited", "refused"]
