"""Remove old runs, and put on the record that they were removed. Blocking.

To the record a prune is a server like others. Its chain holds a gap record for each batch, which names the
stretches of other chains that are gone, and the hashes at both ends: so chains can still be verified.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from mcp_sandbox.audit import rows
from mcp_sandbox.audit.journal import Journal
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.record import read_body, sha256
from mcp_sandbox.audit.run_id import LARGEST, first_at
from mcp_sandbox.errors import AuditError, RequestRefused
from mcp_sandbox.model import Value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from mcp_sandbox.audit.folder import Folder

BATCH_RUNS = 50
"""Runs that one transaction removes: other servers wait for it, and a closing record may have less than 1 s."""

PAUSE_SECONDS = 0.01
"""Time between two transactions, in which the servers that wait get their turn."""

BUSY_SECONDS = 10.0

_STEP_PAGES = 1000


class Pruned(Value):
    """What a prune removed, or would."""

    runs: int
    bytes: int
    """Of their records and contents, as they were recorded."""
    files: int = 0
    """Files of contents that were deleted; unknown, so 0, where nothing was removed yet."""


def prune(
    folder: Folder,
    *,
    older_than: datetime | None = None,
    keep_bytes: int | None = None,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda runs: None,
) -> Pruned:
    """Remove the runs opened before `older_than`, then the oldest until the rest fits in `keep_bytes`.

    Open runs stay. Other servers may be at work meanwhile.

    Raises:
        RequestRefused: Neither limit is given.
        AuditError: The store cannot be read or written; what was removed until then is on the record.
    """
    if older_than is None and keep_bytes is None:
        raise RequestRefused("Nothing says what to prune.", next_step="Give an age or a size.")
    with reading(folder) as reader:
        before = _first_kept(reader.connection, folder, older_than, keep_bytes)
        runs, size = reader.connection.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM runs WHERE id < ? AND status <> 'open'", (before,)
        ).fetchone()
    if dry_run:
        return Pruned(runs=runs, bytes=size)
    reason = {
        "older_than": older_than and older_than.isoformat(timespec="seconds"),
        "keep_bytes": keep_bytes,
    }
    journal = Journal(folder)
    journal.begin(BUSY_SECONDS)
    try:
        removed = 0
        while batch := _remove_batch(journal, before, reason):
            removed += batch
            progress(batch)
            time.sleep(PAUSE_SECONDS)
        files = _remove_unnamed(folder, journal)
        _give_back(journal)
    finally:
        journal.end(BUSY_SECONDS)
    return Pruned(runs=removed, bytes=size, files=files)


def _first_kept(
    connection: sqlite3.Connection, folder: Folder, older_than: datetime | None, keep_bytes: int | None
) -> int:
    """Return the number from which runs are kept."""
    by_age = 0 if older_than is None else first_at(int(older_than.timestamp() * 1000))
    if keep_bytes is None:
        return by_age
    (recorded,) = connection.execute("SELECT coalesce(sum(bytes), 0) FROM runs").fetchone()
    # What the database needs beyond the texts (indexes, half-full pages) is shared out among the runs.
    allowed = keep_bytes * recorded / max(folder.size(), 1)
    kept, first = 0, LARGEST
    for number, size in connection.execute("SELECT id, bytes FROM runs ORDER BY id DESC"):
        kept += size
        if kept > allowed:
            break
        first = number
    return max(by_age, first)


def _remove_batch(journal: Journal, before: int, reason: Mapping[str, object]) -> int:
    with journal.writing(BUSY_SECONDS) as (connection, chain):
        batch = [
            rows.RunRow(*row)
            for row in connection.execute(
                "SELECT * FROM runs WHERE id < ? AND status <> 'open' ORDER BY id LIMIT ?",
                (before, BATCH_RUNS),
            )
        ]
        if batch:
            removed = [_remove_stretch(connection, *stretch) for stretch in _stretches(batch)]
            for run in batch:
                rows.delete_run(connection, run.id)
            data = {"reason": reason, "runs": len(batch), "removed": removed}
            chain.append(connection, "gap", journal.now(), data)
    return len(batch)


def _stretches(batch: Sequence[rows.RunRow]) -> Iterator[tuple[int, int, int]]:
    """Yield chain, first and last number of each row of neighbouring records that belong to these runs."""
    places = sorted(
        (run.chain, seq) for run in batch for seq in (run.opening, run.closing) if seq is not None
    )
    # Neighbours differ from their place in the list by the same number.
    for (chain, _), group in itertools.groupby(
        enumerate(places), lambda item: (item[1][0], item[1][1] - item[0])
    ):
        seqs = [seq for _, (_, seq) in group]
        yield chain, seqs[0], seqs[-1]


def _remove_stretch(connection: sqlite3.Connection, chain: int, first: int, last: int) -> dict[str, object]:
    """Delete records, and return what a gap record says of them."""
    (server,) = connection.execute("SELECT server FROM chains WHERE id = ?", (chain,)).fetchone()
    between = "FROM records WHERE chain = ? AND seq BETWEEN ? AND ?"
    before: str | None = None
    after, expected = "", first
    for seq, digest, body in connection.execute(
        f"SELECT seq, hash, body {between} ORDER BY seq",
        (chain, first, last),
    ):
        previous = _previous(body) if sha256(body.encode("utf-8", "replace")) == digest else None
        before = previous if before is None else before
        if previous is None or (after and previous != after) or seq != expected:
            raise _altered(server, seq)
        after, expected = digest, seq + 1
    if before is None or expected != last + 1:
        raise _altered(server, expected)
    connection.execute(f"DELETE {between}", (chain, first, last))
    return {"server": server, "first": first, "last": last, "before": before, "after": after}


def _previous(body: str) -> str | None:
    try:
        return str(read_body(body)["previous"])
    except (ValueError, KeyError, RecursionError):
        return None


def _altered(server: str, seq: int) -> AuditError:
    return AuditError(
        f"Record {seq} of {server} is not as it was recorded; to prune it would hide that.",
        next_step="Run `mcp-sandbox runs verify`, and keep a copy of the folder.",
    )


def _remove_unnamed(folder: Folder, journal: Journal) -> int:
    """Delete the files that no run names: those of pruned runs, and what a crash left."""
    removed = 0
    for paths in _batches(folder.blob_paths()):
        # In a transaction: no server can begin to name a file between the look and the deletion.
        with journal.writing(BUSY_SECONDS) as (connection, _):
            for path in paths:
                if not _is_named(connection, path) and folder.may_remove(path):
                    path.unlink(missing_ok=True)
                    removed += 1
    return removed


def _is_named(connection: sqlite3.Connection, path: Path) -> bool:
    found = connection.execute("SELECT 1 FROM contents WHERE sha256 = ? AND body IS NULL", (path.name,))
    return found.fetchone() is not None


def _batches(paths: Iterator[Path]) -> Iterator[Sequence[Path]]:
    while batch := list(itertools.islice(paths, BATCH_RUNS)):
        yield batch


def _give_back(journal: Journal) -> None:
    """Return the database's free pages to the disk, a few at a time."""
    with journal.writing(BUSY_SECONDS) as (connection, _):
        connection.execute("DELETE FROM policies WHERE sha256 NOT IN (SELECT policy FROM runs)")
    left = _STEP_PAGES
    while left >= _STEP_PAGES:
        with journal.writing(BUSY_SECONDS) as (connection, _):
            (left,) = connection.execute("PRAGMA freelist_count").fetchone()
            for _ in range(min(left, _STEP_PAGES)):
                # One page each: Python's sqlite3 takes one step of this statement, however many are asked for.
                connection.execute("PRAGMA incremental_vacuum(1)")
