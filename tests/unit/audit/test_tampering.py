"""Somebody changes the store afterwards; `verify` finds it and says which record."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.audit.export import json_lines
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.rows import INLINE_BYTES
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.errors import AuditError, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mcp_sandbox.audit.findings import Verification

    Run = Callable[..., Awaitable[str]]
    Tamper = Callable[..., None]
    Verified = Callable[..., Verification]

pytestmark = pytest.mark.anyio

BIG = b"x" * (INLINE_BYTES + 1)

PLOT = {
    "path": "a/b.png",
    "size": 3,
    "mime_type": "image/png",
    "sha256": "ab" * 32,
    "uri": "artifact://x",
}


SECOND = "(SELECT id FROM runs WHERE opening = 3)"


@pytest.fixture
async def names(folder: Path, run: Run) -> list[str]:
    """Three runs, records 1 to 6: the first has a big output, the second an artifact."""
    store = AuditStore(folder)
    names = [
        await run(store, stdout=BIG),
        await run(store, ended={"artifacts": [PLOT]}),
        await run(store, workspace="other"),
    ]
    await store.aclose()
    return names


def found(verification: Verification) -> set[tuple[str, int | None]]:
    return {(problem.fault, problem.seq) for problem in verification.problems}


def rehash(folder: Path, seq: int, change: Callable[[dict[str, object]], None]) -> None:
    """Rewrite a record and its own hash, as somebody does who knows the format."""
    connection = sqlite3.connect(folder / "record.sqlite3", isolation_level=None)
    (body,) = connection.execute("SELECT body FROM records WHERE seq = ?", (seq,)).fetchone()
    record = json.loads(body)
    change(record)
    body = json.dumps(record, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    connection.execute("UPDATE records SET body = ?, hash = ? WHERE seq = ?", (body, digest, seq))
    connection.close()


async def test_an_untouched_store_is_fine(names: list[str], verified: Verified):
    verification = verified()
    assert verification.ok
    assert (verification.chains, verification.records, verification.runs) == (1, 8, 3)
    assert verification.contents == 10
    assert verification.incomplete == ()


async def test_every_single_record_is_guarded_against_a_changed_letter(
    names: list[str], tamper: Tamper, verified: Verified
):
    for seq in range(8):
        tamper(f"UPDATE records SET body = replace(body, '\"v\":1', '\"v\":2') WHERE seq = {seq}")
        assert found(verified()) == {("altered", seq)}
        tamper(f"UPDATE records SET body = replace(body, '\"v\":2', '\"v\":1') WHERE seq = {seq}")


async def test_a_flipped_bit_that_is_no_text_any_more_is_found_and_the_rest_stays_readable(
    names: list[str], folder: Path, tamper: Tamper, verified: Verified
):
    tamper("UPDATE records SET body = CAST(x'FFFE' || CAST(body AS BLOB) AS TEXT) WHERE seq = 3")
    assert found(verified()) == {("altered", 3)}
    store = AuditStore(folder)
    assert (await store.get(names[0])).code == "print(6 * 7)"
    assert len(await store.list()) == 3


async def test_a_record_with_a_new_hash_does_not_fit_the_next(
    names: list[str], folder: Path, verified: Verified
):
    rehash(folder, 4, lambda record: record["data"].update(status="timed_out"))  # type: ignore[attr-defined]
    assert ("altered", 4) in found(verified())


async def test_a_changed_hash_is_found(names: list[str], tamper: Tamper, verified: Verified):
    tamper("UPDATE records SET hash = 'not' || substr(hash, 4) WHERE seq = 2")
    assert found(verified()) == {("altered", 2)}


async def test_a_removed_record_is_named(names: list[str], tamper: Tamper, verified: Verified):
    tamper("DELETE FROM records WHERE seq = 4")
    assert ("removed", 4) in found(verified())


async def test_a_whole_removed_run_is_named_though_its_rows_are_gone_too(
    names: list[str], tamper: Tamper, verified: Verified
):
    tamper(
        "DELETE FROM records WHERE seq IN (3, 4)",
        "DELETE FROM runs WHERE opening = 3",
        "DELETE FROM contents WHERE run NOT IN (SELECT id FROM runs)",
        "DELETE FROM artifacts",
    )
    verification = verified()
    assert found(verification) == {("removed", 3)}
    assert "3 to 4" in verification.problems[0].message


async def test_a_removed_first_record_is_named(names: list[str], tamper: Tamper, verified: Verified):
    tamper("DELETE FROM records WHERE seq = 0")
    assert ("removed", 0) in found(verified())


async def test_records_that_changed_places_are_named(names: list[str], tamper: Tamper, verified: Verified):
    tamper(
        "UPDATE records SET seq = 100 WHERE seq = 3",
        "UPDATE records SET seq = 3 WHERE seq = 5",
        "UPDATE records SET seq = 5 WHERE seq = 100",
    )
    assert {("moved", 3), ("moved", 5)} <= found(verified())


async def test_a_cut_off_end_is_named(names: list[str], tamper: Tamper, verified: Verified):
    tamper("DELETE FROM records WHERE seq > 4")
    assert ("truncated", 5) in found(verified())


async def test_a_cut_off_end_that_the_list_of_chains_agrees_with_shows_in_the_runs(
    names: list[str], tamper: Tamper, verified: Verified
):
    tamper(
        "DELETE FROM records WHERE seq > 5",
        "UPDATE chains SET last_seq = 5, sealed = 0, head = (SELECT hash FROM records WHERE seq = 5)",
    )
    verification = verified()
    assert ("altered", 5) in found(verification)
    assert len(verification.incomplete) == 1


async def test_a_cut_off_end_without_a_trace_is_shown_by_the_head_that_was_kept(
    names: list[str], tamper: Tamper, verified: Verified
):
    head = verified().head
    tamper(
        "DELETE FROM records WHERE seq > 4",
        "DELETE FROM runs WHERE opening > 4",
        "DELETE FROM contents WHERE run NOT IN (SELECT id FROM runs)",
        "UPDATE chains SET last_seq = 4, sealed = 0, head = (SELECT hash FROM records WHERE seq = 4)",
    )
    assert verified().ok
    assert found(verified(head)) == {("head", 7)}


async def test_a_kept_head_still_fits_when_the_record_has_grown(
    names: list[str], folder: Path, run: Run, verified: Verified
):
    head = verified().head
    later = AuditStore(folder)
    await run(later)
    await later.aclose()
    assert verified(head).ok
    assert verified().head != head


async def test_another_store_in_its_place_does_not_fit_the_kept_head(
    names: list[str], folder: Path, run: Run, verified: Verified
):
    head = verified().head
    (folder / "record.sqlite3").unlink()
    forged = AuditStore(folder)
    await run(forged)
    await forged.aclose()
    assert verified().ok
    assert [problem.fault for problem in verified(head).problems] == ["head"]


@pytest.mark.parametrize(
    "head", ["x", "a:b:c", "a:1:" + "0" * 63, "a:-1:" + "0" * 64, f"a:{10**30}:" + "0" * 64]
)
async def test_what_is_no_head_is_refused(names: list[str], verified: Verified, head: str):
    with pytest.raises(RequestRefused, match="is not the head"):
        verified(head)


async def test_a_removed_chain_is_named_by_the_one_after_it(
    names: list[str], folder: Path, run: Run, tamper: Tamper, verified: Verified
):
    later = AuditStore(folder)
    await run(later)
    await later.aclose()
    tamper(
        "DELETE FROM records WHERE chain = 1",
        "DELETE FROM runs WHERE chain = 1",
        "DELETE FROM contents WHERE run NOT IN (SELECT id FROM runs)",
        "DELETE FROM artifacts",
        "DELETE FROM chains WHERE id = 1",
    )
    assert found(verified()) == {("removed", 7)}


async def test_records_of_an_unlisted_chain_are_found(names: list[str], tamper: Tamper, verified: Verified):
    tamper("INSERT INTO records SELECT 9, seq, hash, body FROM records WHERE seq = 0")
    assert found(verified()) == {("unexpected", None)}


async def test_records_after_the_seal_are_found(names: list[str], tamper: Tamper, verified: Verified):
    tamper("INSERT INTO records SELECT chain, 8, hash, body FROM records WHERE seq = 6")
    assert {("moved", 8), ("unexpected", 8)} <= found(verified())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET status = 'exited', exit_code = 1 WHERE opening = 3",
        "UPDATE runs SET workspace = 'x' WHERE opening = 3",
        "UPDATE runs SET closing = NULL, status = 'open' WHERE opening = 3",
        "DELETE FROM runs WHERE opening = 3",
        f"UPDATE contents SET body = CAST('print(6 * 8)' AS BLOB) WHERE role = 'code' AND run = {SECOND}",
        f"UPDATE contents SET sha256 = '00' WHERE role = 'stdout' AND run = {SECOND}",
        f"DELETE FROM contents WHERE role = 'stdout' AND run = {SECOND}",
        f"INSERT INTO contents SELECT {SECOND}, 'stdin', '00', 0, x''",
        "DELETE FROM artifacts",
        "UPDATE artifacts SET sha256 = '00'",
    ],
)
async def test_a_list_that_says_otherwise_than_the_records_is_found(
    names: list[str], tamper: Tamper, verified: Verified, change: str
):
    tamper(change)
    problems = verified().problems
    assert [problem.run_id for problem in problems] == [names[1]]


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO runs SELECT id + 1, chain, opening, closing, workspace, status, language, origin,"
        " client, policy, error, exit_code, duration_ms, bytes FROM runs WHERE opening = 3",
        "INSERT INTO contents VALUES (7, 'code', '00', 0, x'')",
        "INSERT INTO artifacts VALUES (7, 'x', 'x', '00')",
    ],
)
async def test_a_run_that_never_was_is_found(
    names: list[str], tamper: Tamper, verified: Verified, change: str
):
    tamper(change)
    assert found(verified()) == {("unexpected", None)}


async def test_a_changed_or_removed_policy_is_found(names: list[str], tamper: Tamper, verified: Verified):
    tamper("UPDATE policies SET body = replace(body, 'none', 'full')")
    assert found(verified()) == {("altered", None)}
    tamper("DELETE FROM policies")
    assert found(verified()) == {("missing", None)}


def the_blob(folder: Path) -> Path:
    return next(path for path in (folder / "blobs").rglob("*") if path.is_file())


def flip(path: Path) -> None:
    path.write_bytes(b"y" + path.read_bytes()[1:])


def cut(path: Path) -> None:
    os.truncate(path, 100)


def replace_by_a_link(path: Path) -> None:
    copy = path.rename(path.with_name("copy"))
    path.symlink_to(copy)


def replace_by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("change", [flip, cut, replace_by_a_link, replace_by_a_pipe])
async def test_a_changed_content_is_found_with_its_run(
    names: list[str], folder: Path, verified: Verified, change: Callable[[Path], None]
):
    change(the_blob(folder))
    (problem,) = verified().problems
    assert (problem.fault, problem.run_id) == ("altered", names[0])


@pytest.mark.parametrize("change", [flip, cut, replace_by_a_link, replace_by_a_pipe])
async def test_a_later_run_with_the_same_content_does_not_take_the_changed_one_for_it(
    names: list[str], folder: Path, run: Run, verified: Verified, change: Callable[[Path], None]
):
    change(the_blob(folder))
    store = AuditStore(folder)
    assert await store.output(await run(store, stdout=BIG)) == BIG
    await store.aclose()
    assert verified().ok


async def test_a_removed_content_is_found_and_said_when_read(
    names: list[str], folder: Path, verified: Verified
):
    the_blob(folder).unlink()
    (problem,) = verified().problems
    assert (problem.fault, problem.run_id) == ("missing", names[0])
    with pytest.raises(AuditError, match="No such file"):
        await AuditStore(folder).output(names[0])


@pytest.mark.parametrize(
    "data",
    [{}, {"follows": 7}, {"run_id": 7}, {"run_id": "0", "contents": []}, {"follows": [7]}],
)
async def test_a_forged_record_of_the_wrong_form_is_a_finding_not_a_crash(
    names: list[str], folder: Path, verified: Verified, data: dict[str, object]
):
    for seq in (0, 3, 4, 7):
        rehash(folder, seq, lambda record: record.update(data=data))
    assert not verified().ok


@pytest.mark.parametrize("body", ["", "[]", "{", "[" * 100_000, '{"data":{}}', '"\\ud800"'])
async def test_a_run_whose_record_was_overwritten_is_said_to_be_when_it_is_read(
    names: list[str], folder: Path, tamper: Tamper, body: str
):
    tamper(
        f"UPDATE records SET body = '{body}' WHERE seq = 3", "UPDATE runs SET status = 'x' WHERE opening = 3"
    )
    store = AuditStore(folder)
    assert [run.status for run in await store.list()] == ["exited", "x", "exited"]
    with pytest.raises(AuditError, match="Record 3 of"):
        await store.get(names[1])
    with pytest.raises(AuditError, match="Record 3 of"):
        await store.result(names[1])
    with reading(Folder(folder)) as reader:
        lines = [json.loads(line) for line in json_lines(reader)]
    assert [line["seq"] for line in lines if "damaged" in line] == [3]


async def test_a_damaged_database_is_said_to_be(names: list[str], folder: Path, verified: Verified):
    database = folder / "record.sqlite3"
    whole = database.read_bytes()
    fine = 0
    for page in range(len(whole) // 4096):
        database.write_bytes(whole[: page * 4096] + b"\xa5" * 4096 + whole[(page + 1) * 4096 :])
        with contextlib.suppress(AuditError):
            fine += verified().ok
    # Indexes alone may be damaged without a word: nothing of the record is in them.
    assert fine < len(whole) // 4096


async def test_a_server_refuses_to_go_on_from_an_end_that_it_did_not_write(
    store: AuditStore, run: Run, tamper: Tamper, verified: Verified
):
    await run(store)
    tamper(
        "DELETE FROM records WHERE seq > 0",
        "DELETE FROM runs",
        "UPDATE chains SET last_seq = 0, head = (SELECT hash FROM records WHERE seq = 0)",
    )
    with pytest.raises(AuditError, match="changed the chain"):
        await run(store)
    await run(store)
    assert not verified().ok
