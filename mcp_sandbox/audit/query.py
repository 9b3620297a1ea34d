"""What is on the record: list, look up, read back. Blocking; nothing here writes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from mcp_sandbox.audit import rows, search
from mcp_sandbox.audit.record import as_text, read_body
from mcp_sandbox.audit.run_id import RANDOM_BITS, first_at, name_of, range_of
from mcp_sandbox.audit.schema import connect, set_up
from mcp_sandbox.errors import AuditError, RequestRefused
from mcp_sandbox.model import ExecutionResult, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcp_sandbox.audit.folder import Folder

Stream = Literal["stdout", "stderr"]

_AMBIGUOUS_SHOWN = 4

_FEW = 4000
"""Runs whose code can be read through in a few milliseconds."""

_HAS_ARTIFACT = "EXISTS (SELECT 1 FROM artifacts WHERE artifacts.run = runs.id AND artifacts.{} = ?)"


class RunSummary(Value):
    """One run, as a list shows it."""

    run_id: str
    opened_at: datetime
    workspace: str
    status: str
    """A `record.RunStatus`; text, so that a list is readable even where somebody changed it."""
    language: str
    """Empty where a malformed call named none."""
    origin: str
    client: str
    error: str
    """Code of the error; empty where there was none."""
    exit_code: int | None
    duration_ms: int | None
    """Wall-clock time of the program, in milliseconds; null where unknown."""


class RunRecord(Value):
    """One run, with all that the record says of it."""

    summary: RunSummary
    server: str
    """The chain that it is on."""
    opening: dict[str, Any]
    """Its opening (or refused) record: `seq`, `previous`, `at`, `data`, ..."""
    closing: dict[str, Any] | None
    """Its closing record; null while it is open."""
    policy: dict[str, Any]
    code: str
    contents: dict[str, int]
    """Sizes in bytes, by role."""


class WorkspaceStats(Value):
    """Counts of one workspace's runs."""

    workspace: str
    runs: int
    statuses: dict[str, int]
    failed: int
    """Runs that did not end with exit code 0, refused calls among them; open ones are not counted."""
    median_ms: int | None
    """Of the programs' wall-clock times, in milliseconds."""
    p95_ms: int | None
    longest_ms: int | None


class _Where:
    """Conditions that all hold, and the values of their marks."""

    def __init__(self) -> None:
        self._conditions = ["1"]
        self.values: list[str | int] = []

    def __str__(self) -> str:
        return " AND ".join(self._conditions)

    def add(self, condition: str, value: str | int) -> None:
        self._conditions.append(condition)
        self.values.append(value)


class Reader:
    """Reads one store through a connection of its own."""

    def __init__(self, folder: Folder, connection: sqlite3.Connection) -> None:
        self._folder = folder
        self.connection = connection

    def list(
        self,
        *,
        workspace: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        code_contains: str | None = None,
        artifact: str | None = None,
        limit: int = 20,
    ) -> Sequence[RunSummary]:
        """Return runs, newest first.

        `code_contains` is any part of the program, upper and lower case alike, of three characters or more.
        `artifact` is a file name, a path under the scratch folder (with a `/`), or a SHA-256 in hex.

        Raises:
            RequestRefused: `code_contains` is too short.
        """
        where = _Where()
        if workspace is not None:
            where.add("runs.workspace = ?", rows.text(workspace))
        if status is not None:
            where.add("runs.status = ?", rows.text(status))
        if since is not None:
            where.add("runs.id >= ?", first_at(int(since.timestamp() * 1000)))
        source, number = "runs", "runs.id"
        few = self._are_few(where)
        if code_contains is not None:
            sought = search.Sought(code_contains)
            if not few and artifact is None:
                source, number = "search CROSS JOIN runs ON runs.id = search.rowid", "search.rowid"
                where.add("search MATCH ?", sought.match(self.connection))
            # Of the index's own number: the run's row is then looked up only where the code fits.
            where.add(search.CODE_FITS.format(number), sought.like)
        if artifact is not None:
            column = _artifact_column(artifact)
            if few:
                where.add(_HAS_ARTIFACT.format(column), rows.text(artifact))
            else:
                source, number = "artifacts CROSS JOIN runs ON runs.id = artifacts.run", "artifacts.run"
                where.add(f"artifacts.{column} = ?", rows.text(artifact))
        found = self.connection.execute(
            f"SELECT DISTINCT {number}, runs.* FROM {source} WHERE {where}"  # noqa: S608 - marks
            f" ORDER BY {number} DESC LIMIT ?",
            (*where.values, max(limit, 0)),
        )
        return [_summary(rows.RunRow(*row[1:])) for row in found]

    def _are_few(self, where: _Where) -> bool:
        """Tell whether to look at each of these runs, rather than at all that an index of contents finds.

        That index yields the newest first. Among many runs enough soon fit; among few it would yield all.
        """
        (count,) = self.connection.execute(
            f"SELECT count(*) FROM (SELECT 1 FROM runs WHERE {where} LIMIT {_FEW})",  # noqa: S608 - marks
            where.values,
        ).fetchone()
        return bool(count < _FEW)

    def resolve(self, prefix: str) -> int:
        """Return the number of the one run whose name starts with `prefix`; `last` is the newest.

        Raises:
            RequestRefused: There is none, or more than one.
        """
        if prefix == "last":
            found = self.connection.execute("SELECT max(id) FROM runs").fetchone()[0]
            if found is None:
                raise RequestRefused("No run is on the record.", next_step="Run something first.")
            return int(found)
        numbers = range_of(prefix)
        matches = (
            self.connection.execute(
                "SELECT id FROM runs WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?",
                (*numbers, _AMBIGUOUS_SHOWN + 1),
            ).fetchall()
            if numbers
            else []
        )
        if len(matches) == 1:
            return int(matches[0][0])
        if not matches:
            raise RequestRefused(
                f"No run on the record has a name that starts with {prefix[:40]!r}.",
                next_step="`mcp-sandbox runs list` shows the names; old runs may have been pruned.",
            )
        names = ", ".join(name_of(number) for (number,) in matches[:_AMBIGUOUS_SHOWN])
        more = " and more" if len(matches) > _AMBIGUOUS_SHOWN else ""
        raise RequestRefused(
            f"More than one run has a name that starts with {prefix!r}: {names}{more}.",
            next_step="Give more letters of the name.",
        )

    def get(self, prefix: str) -> RunRecord:
        """Return all that is recorded of a run.

        Raises:
            RequestRefused: No run, or more than one, has a name that starts with `prefix`.
        """
        number = self.resolve(prefix)
        row = rows.find_run(self.connection, number)
        assert row is not None  # noqa: S101 - found in the same snapshot
        (server,) = self.connection.execute("SELECT server FROM chains WHERE id = ?", (row.chain,)).fetchone()
        sizes = self.connection.execute("SELECT role, size FROM contents WHERE run = ?", (number,)).fetchall()
        return RunRecord(
            summary=_summary(row),
            server=server,
            opening=self._said(server, row.opening),
            closing=None if row.closing is None else self._said(server, row.closing),
            policy=self.policy(row.policy),
            code=as_text(self.content(number, "code") or b""),
            contents=dict(sizes),
        )

    def result(self, prefix: str) -> ExecutionResult | None:
        """Return a run's result as the client got it; None where the run is open or had none.

        Raises:
            RequestRefused: No run, or more than one, has a name that starts with `prefix`.
        """
        record = self.get(prefix)
        said = record.closing["data"].get("result") if record.closing else None
        if said is None:
            return None
        streams = {stream: self._shown(record.summary.run_id, stream) for stream in ("stdout", "stderr")}
        try:
            return ExecutionResult.model_validate({**said, **streams})
        except ValueError as exc:
            raise self.altered(f"The result of {record.summary.run_id}") from exc

    def _shown(self, run_id: str, stream: str) -> str:
        number = self.resolve(run_id)
        shown = self.content(number, f"{stream}_shown")
        return as_text((self.content(number, stream) or b"") if shown is None else shown)

    def output(self, prefix: str, stream: Stream = "stdout") -> bytes:
        """Return what a run wrote to `stdout` or `stderr`, as far as it was kept; nothing where it has none.

        Raises:
            RequestRefused: No run, or more than one, has a name that starts with `prefix`.
            AuditError: The content is gone.
        """
        return self.content(self.resolve(prefix), stream) or b""

    def content(self, number: int, role: str, offset: int = 0, limit: int | None = None) -> bytes | None:
        """Return one content of a run, or a part of it; None where it has none of that role.

        Raises:
            AuditError: Its file is gone.
        """
        found = self.connection.execute(
            "SELECT sha256, body FROM contents WHERE run = ? AND role = ?", (number, role)
        ).fetchone()
        if found is None:
            return None
        digest, body = found
        if body is not None:
            return cast("bytes", body)[offset : None if limit is None else offset + limit]
        with self._folder.explained("read"):
            return self._folder.read(digest, offset, limit)

    def size(self, number: int, role: str) -> int | None:
        """Return the bytes of one content of a run, or None where it has none of that role."""
        found = self.connection.execute(
            "SELECT size FROM contents WHERE run = ? AND role = ?", (number, role)
        ).fetchone()
        return found and cast("int", found[0])

    def policy(self, digest: str) -> dict[str, Any]:
        """Return a policy by its hash; an empty one where a malformed call had none."""
        found = self.connection.execute("SELECT body FROM policies WHERE sha256 = ?", (digest,)).fetchone()
        return cast("dict[str, Any]", json.loads(found[0])) if found else {}

    def places(self, number: int) -> tuple[int, int | None]:
        """Return the numbers of a run's opening and closing record in their chain; None while it is open."""
        row = rows.find_run(self.connection, number)
        assert row is not None, "the caller resolved it in this snapshot"  # noqa: S101
        return row.opening, row.closing

    def record(self, server: str, seq: int) -> str:
        """Return the text of a record.

        Raises:
            AuditError: It is gone.
        """
        found = self.connection.execute(
            "SELECT body FROM records JOIN chains ON chains.id = records.chain WHERE server = ? AND seq = ?",
            (server, seq),
        ).fetchone()
        if found is None:
            raise AuditError(
                f"Record {seq} of {server} is gone from the run record in {self._folder.path}.",
                next_step="Run `mcp-sandbox runs verify`.",
            )
        return cast("str", found[0])

    def _said(self, server: str, seq: int) -> dict[str, Any]:
        try:
            return read_body(self.record(server, seq))
        except (ValueError, RecursionError) as exc:
            raise self.altered(f"Record {seq} of {server}") from exc

    def altered(self, what: str) -> AuditError:
        """Return the error for something that is not what was recorded."""
        return AuditError(
            f"{what} in the run record in {self._folder.path} is not what was recorded.",
            next_step="Run `mcp-sandbox runs verify`.",
        )

    def stats(self) -> Sequence[WorkspaceStats]:
        """Return counts and durations for each workspace, the busiest first."""
        statuses: dict[str, dict[str, int]] = {}
        failed: dict[str, int] = {}
        durations: dict[str, list[int]] = {}
        found = self.connection.execute("SELECT workspace, status, exit_code, duration_ms FROM runs")
        for workspace, status, exit_code, duration in found:
            counts = statuses.setdefault(workspace, {})
            counts[status] = counts.get(status, 0) + 1
            if status != "open" and exit_code != 0:
                failed[workspace] = failed.get(workspace, 0) + 1
            if duration is not None:
                durations.setdefault(workspace, []).append(duration)
        stats = [
            WorkspaceStats(
                workspace=workspace,
                runs=sum(counts.values()),
                statuses=counts,
                failed=failed.get(workspace, 0),
                **_quantiles(sorted(durations.get(workspace, ()))),
            )
            for workspace, counts in statuses.items()
        ]
        return sorted(stats, key=lambda one: (-one.runs, one.workspace))


@contextmanager
def reading(folder: Folder) -> Iterator[Reader]:
    """Yield a reader that sees the store as it is now, whatever is written meanwhile.

    Raises:
        AuditError: There is no store, or it cannot be read.
    """
    with folder.explained("read"):
        folder.check()
        connection = connect(folder.database, immutable=folder.is_archive())
    try:
        with folder.explained("read"):
            set_up(folder, connection)
            # A flipped bit may make a text that is not UTF-8: it must be read all the same, to be told of.
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
        try:
            yield Reader(folder, connection)
        except sqlite3.Error as exc:
            # An OSError is left as it is: the caller may be writing a file of its own.
            raise folder.failed("read", exc) from exc
    finally:
        connection.close()


def opened_at(number: int) -> datetime:
    """Return when the run with this number was opened."""
    return datetime.fromtimestamp((number >> RANDOM_BITS) / 1000, UTC)


def _summary(row: rows.RunRow) -> RunSummary:
    return RunSummary(
        run_id=name_of(row.id),
        opened_at=opened_at(row.id),
        workspace=row.workspace,
        status=row.status,
        language=row.language,
        origin=row.origin,
        client=row.client,
        error=row.error,
        exit_code=row.exit_code,
        duration_ms=row.duration_ms,
    )


def _artifact_column(artifact: str) -> str:
    if len(artifact) == 64 and set(artifact) <= set("0123456789abcdef"):
        return "sha256"
    return "path" if "/" in artifact else "name"


def _quantiles(durations: Sequence[int]) -> dict[str, int | None]:
    """Return median, 95th percentile and maximum of sorted durations."""
    if not durations:
        return {"median_ms": None, "p95_ms": None, "longest_ms": None}
    count = len(durations)
    return {
        "median_ms": durations[count // 2],
        "p95_ms": durations[min(count * 95 // 100, count - 1)],
        "longest_ms": durations[-1],
    }
