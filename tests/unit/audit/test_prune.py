"""Old runs go; that they went is on the record, and what is left can still be verified."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from mcp_sandbox.audit import prune as prune_module
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.prune import prune
from mcp_sandbox.audit.rows import INLINE_BYTES
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.errors import AuditError, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mcp_sandbox.audit.findings import Verification
    from mcp_sandbox.audit.record import Opening

    Run = Callable[..., Awaitable[str]]
    Tamper = Callable[..., None]
    Verified = Callable[..., Verification]

pytestmark = pytest.mark.anyio

DAY = 86400


@pytest.fixture
async def names(folder: Path, run: Run) -> list[str]:
    """Ten runs in two chains, one a day until now; each has an output of its own that is a file."""
    names = []
    for chain in range(2):
        now = [time.time() - (10 - 5 * chain) * DAY]
        store = AuditStore(folder, clock=lambda now=now: now[0])
        for number in range(5):
            big = f"{chain} {number}\n".encode() * INLINE_BYTES
            names.append(await run(store, stdout=big, code=f"print({len(names)})  # secret{len(names)}"))
            now[0] += DAY
        await store.aclose()
    return names


def blobs(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def age(paths: list[Path]) -> None:
    for path in paths:
        os.utime(path, (time.time() - DAY,) * 2)


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def listed(folder: Path) -> list[str]:
    return [run.run_id for run in await AuditStore(folder).list(limit=100)][::-1]


async def test_runs_older_than_an_age_go_and_the_rest_still_verifies(
    names: list[str], folder: Path, verified: Verified
):
    pruned = prune(Folder(folder), older_than=days_ago(3.5))
    assert pruned.runs == 7
    assert await listed(folder) == names[7:]
    verification = verified()
    assert verification.ok
    assert (verification.runs, verification.pruned) == (3, 14)
    with pytest.raises(RequestRefused, match="pruned"):
        await AuditStore(folder).get(names[0])


async def test_the_oldest_go_until_the_rest_fits(names: list[str], folder: Path, verified: Verified):
    before = Folder(folder).size()
    pruned = prune(Folder(folder), keep_bytes=before // 2)
    assert 3 <= pruned.runs <= 7
    assert await listed(folder) == names[pruned.runs :]
    assert prune(Folder(folder), keep_bytes=0).runs == 10 - pruned.runs
    assert await listed(folder) == []
    assert verified().ok


async def test_nothing_of_a_pruned_program_or_output_stays_on_disk(names: list[str], folder: Path):
    age(blobs(folder))
    assert prune(Folder(folder), older_than=days_ago(3.5)).files == 7
    assert len(blobs(folder)) == 3
    connection = sqlite3.connect(folder / "record.sqlite3")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    left = (folder / "record.sqlite3").read_bytes()
    assert b"secret9" in left
    assert not any(f"secret{number}".encode() in left for number in range(7))
    assert len(await AuditStore(folder).list(code_contains="secret")) == 3


async def test_a_young_file_is_left_for_who_may_be_about_to_name_it(names: list[str], folder: Path):
    assert prune(Folder(folder), older_than=days_ago(3.5)).files == 0
    assert len(blobs(folder)) == 10


async def test_pruning_twice_and_in_small_batches_leaves_no_seam(
    names: list[str], folder: Path, verified: Verified, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prune_module, "BATCH_RUNS", 2)
    for days in (8.5, 5.5, 5.5, 0.5):
        prune(Folder(folder), older_than=days_ago(days))
        assert verified().ok
    assert verified().pruned == 20


async def test_a_dry_run_counts_and_removes_nothing(names: list[str], folder: Path, verified: Verified):
    before = verified()
    assert prune(Folder(folder), older_than=days_ago(3.5), dry_run=True).runs == 7
    assert verified() == before


async def test_what_is_running_is_not_pruned(
    names: list[str], folder: Path, opening: Opening, verified: Verified
):
    old = time.time() - 30 * DAY
    store = AuditStore(folder, clock=lambda: old)
    async with store.entry(opening) as entry:
        prune(Folder(folder), older_than=days_ago(0))
        assert await listed(folder) == [entry.run_id]
        assert verified().ok
    await store.aclose()
    assert verified().ok


async def test_a_server_goes_on_recording_while_its_chain_is_pruned(
    folder: Path, run: Run, verified: Verified
):
    store = AuditStore(folder)
    finished = anyio.Event()

    async def serve() -> None:
        while not finished.is_set():
            await run(store, stdout=b"x" * (INLINE_BYTES + 1))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(serve)
            for _ in range(5):
                await run(store)
                await anyio.to_thread.run_sync(lambda: prune(Folder(folder), older_than=days_ago(0)))
            finished.set()
    await store.aclose()
    verification = verified()
    assert verification.ok
    assert verification.pruned > 10


async def test_a_gap_record_excuses_only_the_records_it_names(
    names: list[str], folder: Path, verified: Verified, tamper: Tamper
):
    prune(Folder(folder), older_than=days_ago(3.5))
    tamper("DELETE FROM records WHERE chain = 2 AND seq = 5")
    assert {(problem.fault, problem.seq) for problem in verified().problems} >= {("removed", 1)}


async def test_without_its_gap_record_a_pruned_stretch_is_a_removed_one(
    names: list[str], folder: Path, verified: Verified, tamper: Tamper
):
    prune(Folder(folder), older_than=days_ago(3.5))
    tamper(
        "DELETE FROM records WHERE chain = 3",
        "DELETE FROM chains WHERE id = 3",
        "UPDATE chains SET followed = 0 WHERE id = 2",
    )
    assert {problem.fault for problem in verified().problems} == {"removed"}


async def test_an_altered_record_is_not_pruned_away(
    names: list[str], folder: Path, verified: Verified, tamper: Tamper
):
    tamper("UPDATE records SET body = replace(body, '\"v\":1', '\"v\":2') WHERE chain = 1 AND seq = 3")
    with pytest.raises(AuditError, match="Record 3"):
        prune(Folder(folder), older_than=days_ago(0))
    assert await listed(folder) == names
    assert [(problem.fault, problem.seq) for problem in verified().problems] == [("altered", 3)]


async def test_a_head_that_was_pruned_is_said_to_be(
    names: list[str], folder: Path, run: Run, verified: Verified
):
    store = AuditStore(folder)
    await run(store)
    await run(store)
    head = verified().head
    await run(store)
    assert verified(head).ok
    prune(Folder(folder), older_than=datetime.now(UTC))
    problems = verified(head).problems
    assert [problem.fault for problem in problems] == ["head"]
    assert "pruned" in problems[0].message
    await store.aclose()


async def test_the_database_shrinks(folder: Path, run: Run):
    store = AuditStore(folder)
    for number in range(60):
        await run(store, stdout=os.urandom(INLINE_BYTES), code=f"print({number})")
    await store.aclose()
    before = Folder(folder).size()
    prune(Folder(folder), older_than=datetime.now(UTC) + timedelta(days=1))
    with contextlib.closing(sqlite3.connect(folder / "record.sqlite3")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert Folder(folder).size() < before / 4
