"""What the executor relies on: on disk before the run, closed whatever happens to it."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.audit.store import AuditStore, Unrecorded
from mcp_sandbox.errors import Busy, EngineUnreachable, RequestRefused, SandboxError
from mcp_sandbox.model import Artifact, Client, ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_sandbox.audit.record import Opening

    Result = Callable[..., ExecutionResult]

pytestmark = pytest.mark.anyio


def runs(folder: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "record.sqlite3") as connection:
        return connection.execute("SELECT status, error, exit_code FROM runs ORDER BY id").fetchall()


def records(folder: Path) -> list[dict[str, object]]:
    with sqlite3.connect(folder / "record.sqlite3") as connection:
        rows = connection.execute("SELECT body FROM records ORDER BY chain, seq").fetchall()
    return [json.loads(body) for (body,) in rows]


async def test_the_opening_is_on_disk_before_the_body_runs(store: AuditStore, folder: Path, opening: Opening):
    async with store.entry(opening):
        assert runs(folder) == [("open", "", None)]
        assert records(folder)[1]["data"]["client"] == {"name": "desk", "version": "1"}


async def test_leaving_with_a_result_records_it_and_what_was_learnt_meanwhile(
    store: AuditStore, folder: Path, opening: Opening, result: Result
):
    plot = Artifact(path="out/plot.png", size=3, mime_type="image/png", sha256="ab" * 32, uri="artifact://x")
    async with store.entry(opening) as entry:
        entry.note(image_id="sha256:1", runtime="runc")
        entry.note(runtime="runsc")
        entry.finish(result(entry.run_id, exit_code=3, artifacts=(plot,)), stdout=b"42\n\xff", stderr=b"")
    assert runs(folder) == [("exited", "", 3)]
    closing = records(folder)[2]
    assert closing["kind"] == "closing"
    assert closing["data"]["facts"] == {"image_id": "sha256:1", "runtime": "runsc"}
    assert closing["data"]["result"]["artifacts"][0]["path"] == "out/plot.png"


async def test_a_failure_is_recorded_by_its_code_and_still_raised(
    store: AuditStore, folder: Path, opening: Opening
):
    with pytest.raises(EngineUnreachable):
        async with store.entry(opening):
            raise EngineUnreachable("Nothing answers at tcp://engine.")
    assert runs(folder) == [("error", "engine_unreachable", None)]


@pytest.mark.parametrize("error", [RequestRefused("No."), Busy("64 calls wait already.")])
async def test_a_refusal_inside_the_scope_is_recorded_as_one(
    store: AuditStore, folder: Path, opening: Opening, error: SandboxError
):
    with pytest.raises(type(error)):
        async with store.entry(opening):
            raise error
    assert runs(folder) == [("refused", error.code, None)]


async def test_an_unknown_failure_is_recorded_without_its_text(
    store: AuditStore, folder: Path, opening: Opening
):
    with pytest.raises(ValueError, match="hunter2"):
        async with store.entry(opening):
            raise ValueError("hunter2")
    assert runs(folder) == [("error", "internal_error", None)]
    assert "hunter2" not in json.dumps(records(folder))


async def test_a_cancelled_run_is_recorded_as_cancelled(store: AuditStore, folder: Path, opening: Opening):
    with anyio.move_on_after(30) as scope:
        async with store.entry(opening):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert runs(folder) == [("cancelled", "cancelled", None)]


async def test_a_result_outlives_a_cancellation_after_it(
    store: AuditStore, folder: Path, opening: Opening, result: Result
):
    with anyio.move_on_after(30) as scope:
        async with store.entry(opening) as entry:
            entry.finish(result(entry.run_id), stdout=b"42\n", stderr=b"")
            scope.cancel()
            await anyio.sleep_forever()
    assert runs(folder) == [("exited", "cancelled", 0)]


async def test_leaving_without_a_result_is_an_error_on_the_record(
    store: AuditStore, folder: Path, opening: Opening
):
    async with store.entry(opening):
        pass
    assert runs(folder) == [("error", "internal_error", None)]


async def test_a_refused_call_is_a_record(store: AuditStore, folder: Path, opening: Opening):
    run_id = await store.refused(opening, RequestRefused("The code is longer than 1 MB."))
    assert len(run_id) == 13
    assert runs(folder) == [("refused", "refused", None)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"code": 7, "language": {"$ne": 1}},
        {"code": "\ud800", "x": float("nan"), "y": b"\xff", "z": {1, 2}},
        {"code": "x" * 1_000_000},
        {"code": "\ud800", 7: [[1.5, None, True]]},
        {"code": json.loads("[" * 900 + "]" * 900)},
    ],
)
async def test_a_malformed_call_is_a_record(store: AuditStore, folder: Path, arguments: dict[str, object]):
    await store.refused(arguments, RequestRefused("`code` is not text."))
    assert runs(folder) == [("refused", "refused", None)]


async def test_code_is_recorded_as_sent_even_where_it_is_not_valid_unicode(
    store: AuditStore, folder: Path, opening: Opening
):
    async with store.entry(opening.model_copy(update={"code": "print('\ud800\x00')"})):
        with sqlite3.connect(folder / "record.sqlite3") as connection:
            (code,) = connection.execute("SELECT body FROM contents WHERE role = 'code'").fetchone()
    assert code == b"print('\xed\xa0\x80\x00')"


async def test_hostile_names_and_numbers_are_recorded_all_the_same(
    store: AuditStore, folder: Path, opening: Opening, result: Result
):
    hostile = {
        "workspace": "\ud800\x1b[2J",
        "client": Client(name="\udfff\x00", version="\u202e"),
        "timeout_seconds": float("nan"),
        "policy": {"\ud800": float("inf")},
    }
    plot = Artifact(path="\ud800/\x1b]0;x\x07", size=1 << 80, mime_type="\ud800", sha256="", uri="")
    async with store.entry(opening.model_copy(update=hostile)) as entry:
        entry.note(image=b"\xff", nan=float("nan"))
        changes = {"exit_code": 1 << 70, "artifacts": (plot, plot), "stdout": "\ud800"}
        entry.finish(result(entry.run_id).model_copy(update=changes), stdout=b"\xff\x00", stderr=b"")
    assert runs(folder) == [("exited", "", None)]


async def test_names_of_runs_sort_by_time_also_when_the_clock_is_set_back(tmp_path: Path, opening: Opening):
    times = iter([2e9, 2e9, 1e9, *[1e9] * 50])
    store = AuditStore(tmp_path / "state", clock=lambda: next(times))
    names = [await store.refused(opening, RequestRefused("No.")) for _ in range(5)]
    assert names == sorted(set(names))
    await store.aclose()


async def test_an_unrecorded_run_keeps_nothing(opening: Opening, result: Result):
    store = Unrecorded()
    async with store.entry(opening) as entry:
        entry.finish(result(entry.run_id), stdout=b"", stderr=b"")
    assert await store.refused({}, RequestRefused("No."))
    await store.aclose()
