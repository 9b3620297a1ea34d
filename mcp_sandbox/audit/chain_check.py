"""Walk one chain from its genesis to its end, and compare what it says with the rows that repeat it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_sandbox.audit import rows
from mcp_sandbox.audit.findings import Fault, Problem
from mcp_sandbox.audit.record import read_body, sha256
from mcp_sandbox.audit.run_id import name_of, range_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable


_STEP = 500
"""Records from one word of progress to the next."""


class ChainRow(NamedTuple):
    """A row of `chains`."""

    id: int
    server: str
    last_seq: int
    head: str
    sealed: int
    followed: int


class Stretch(NamedTuple):
    """Records of a chain that are not there: as the chain shows it, or as a gap record tells it."""

    server: str
    first: int
    last: int
    before: str
    """Hash of the record before the first; empty where there is none or it is unknown."""
    after: str
    """Hash of the last."""


class Mention(NamedTuple):
    """A record of a chain as something else knows it."""

    server: str
    seq: int
    hash: str
    by: str


class File(NamedTuple):
    """A content that is a file."""

    sha256: str
    size: int
    run_id: str


class _Run(NamedTuple):
    """What the records say of one run so far."""

    row: rows.RunRow
    contents: dict[str, Any]
    artifacts: tuple[rows.ArtifactRow, ...] = ()


class ChainCheck:
    """Checks one chain; what it finds is in its attributes, also after `walk` has raised."""

    def __init__(self, connection: sqlite3.Connection, chain: ChainRow) -> None:
        self._connection = connection
        self._chain = chain
        self.problems: list[Problem] = []
        self.holes: list[Stretch] = []
        self.gaps: list[Stretch] = []
        self.mentions: list[Mention] = []
        self.files: list[File] = []
        self.policies: set[str] = set()
        self.runs: list[int] = []
        self.records = 0
        self.contents = 0
        self.artifacts = 0
        self.seq = -1
        """Number of the last record that was read."""
        self._hashes: tuple[str, ...] = ("",)
        """Hash of that record: as stored and, where that differs, as worked out."""
        self._kind = ""
        self._open: dict[int, _Run] = {}
        self.doubtful: set[int] = set()
        """Runs of which a record was altered: their rows would only repeat that finding."""

    def walk(self, progress: Callable[[int], None]) -> None:
        """Check all records, then the end.

        Raises:
            sqlite3.DatabaseError: The database is damaged.
        """
        found = self._connection.execute(
            "SELECT seq, hash, body FROM records WHERE chain = ? ORDER BY seq", (self._chain.id,)
        )
        for seq, digest, body in found:
            self._check_record(seq, digest, body)
            self.records += 1
            if self.records % _STEP == 0:
                progress(_STEP)
        progress(self.records % _STEP)
        self._check_end()
        for run in self._open.values():
            self._check_rows(run)

    def _problem(self, fault: Fault, message: str, seq: int | None = None, run: int | None = None) -> None:
        run_id = "" if run is None else name_of(run)
        self.problems.append(
            Problem(fault=fault, message=message, server=self._chain.server, seq=seq, run_id=run_id)
        )

    # Records

    def _check_record(self, seq: int, stored: str, body: str) -> None:
        digest = sha256(body.encode("utf-8", "replace"))
        try:
            record = read_body(body)
            previous, kind, data = str(record["previous"]), record["kind"], record["data"]
            place = (record["server"], record["seq"])
        except (ValueError, KeyError, RecursionError):
            self._pass_over(seq, stored, digest)
            return
        run = _number(data)
        intact = digest == stored
        if not intact:
            self._problem("altered", "The record is not what its hash says.", seq, run)
        if place != (self._chain.server, seq):
            self._problem("moved", f"The record was written as number {place[1]} of {place[0]}.", seq, run)
            intact = False
        if seq != self.seq + 1:
            self._hole(seq - 1, previous)
        elif previous not in self._hashes and intact:
            self._problem("altered", "The next record was written after another one than this.", seq - 1)
        self.seq, self._kind = seq, kind
        self._hashes = (stored, digest)
        if intact:
            try:
                self._check_content(kind, seq, body, data, run)
            except (KeyError, TypeError, AttributeError):
                self._problem("altered", f"This is not what a record of kind {kind} says.", seq, run)
        elif run is not None:
            self.doubtful.add(run)

    def _pass_over(self, seq: int, stored: str, digest: str) -> None:
        """Go on after a text that is no record at all."""
        self._problem("altered", "The record cannot be read.", seq)
        lost = self._connection.execute(
            "SELECT id FROM runs WHERE chain = ? AND ? IN (opening, closing)", (self._chain.id, seq)
        )
        self.doubtful |= {number for (number,) in lost}
        if seq != self.seq + 1:
            self._hole(seq - 1, "")
        self.seq, self._kind, self._hashes = seq, "", (stored, digest)

    def _hole(self, last: int, after: str) -> None:
        self.holes.append(Stretch(self._chain.server, self.seq + 1, last, self._hashes[0], after))

    def _check_content(self, kind: str, seq: int, body: str, data: dict[str, Any], run: int | None) -> None:
        if (kind == "genesis") != (seq == 0):
            self._problem("moved", f"A record of kind {kind} does not belong here.", seq, run)
        if kind == "genesis":
            by = f"the first record of {self._chain.server}"
            self.mentions += [Mention(end["server"], end["seq"], end["hash"], by) for end in data["follows"]]
        elif kind == "gap":
            self.gaps += [Stretch(**removed) for removed in data["removed"]]
        elif kind == "seal" and data["records"] != seq + 1:
            self._problem("removed", f"The seal counts {data['records']} records.", seq)
        elif run is not None:
            self._check_run(kind, seq, body, data, run)

    def _check_run(self, kind: str, seq: int, body: str, data: dict[str, Any], number: int) -> None:
        if kind == "closing":
            run = self._open.pop(number, None)
            if run is not None:
                row = rows.closed(run.row, seq, body, data)
                contents = {**run.contents, **data["contents"]}
                self._check_rows(_Run(row, contents, tuple(rows.artifacts(number, data))))
            return
        self.runs.append(number)
        self.policies.add(data.get("policy_sha256", ""))
        run = _Run(rows.opened(number, self._chain.id, seq, body, data), data["contents"])
        if kind == "refused":
            self._check_rows(run)
        else:
            self._open[number] = run

    # Rows that repeat them

    def _check_rows(self, run: _Run) -> None:
        number = run.row.id
        if number in self.doubtful:
            return
        found = rows.find_run(self._connection, number)
        if found is None:
            self._problem("removed", "The list of runs has lost this run.", run.row.opening, number)
        elif found != run.row:
            names = ", ".join(
                name for name, is_, was in zip(found._fields, found, run.row, strict=True) if is_ != was
            )
            self._problem("altered", f"The list of runs says otherwise of: {names}.", run.row.opening, number)
        self._check_contents(run)
        artifacts = self._connection.execute("SELECT * FROM artifacts WHERE run = ?", (number,)).fetchall()
        self.artifacts += len(artifacts)
        if set(artifacts) != set(run.artifacts):
            self._problem("altered", "The list of artifacts says otherwise.", run.row.closing, number)

    def _check_contents(self, run: _Run) -> None:
        number = run.row.id
        found = self._connection.execute(
            "SELECT role, sha256, size, body FROM contents WHERE run = ?", (number,)
        ).fetchall()
        self.contents += len(found)
        for role in run.contents.keys() - {row[0] for row in found}:
            self._problem("missing", f"The content `{role}` is gone.", None, number)
        for role, digest, size, body in found:
            said = run.contents.get(role)
            if said is None:
                self._problem("unexpected", f"No record tells of the content `{role}`.", None, number)
            elif (digest, size) != (said["sha256"], said["bytes"]) or (
                body is not None and (len(body), sha256(body)) != (size, digest)
            ):
                self._problem("altered", f"The content `{role}` is not what was recorded.", None, number)
            elif body is None:
                self.files.append(File(digest, size, name_of(number)))

    # The end

    def _check_end(self) -> None:
        chain = self._chain
        if self.seq < chain.last_seq:
            self._hole(chain.last_seq, chain.head)
        elif self.seq > chain.last_seq:
            self._problem("unexpected", f"The chain ended with record {chain.last_seq}.", self.seq)
        elif chain.head not in self._hashes:
            self._problem("altered", "The last record is not the one that ended the chain.", self.seq)
        elif bool(chain.sealed) != (self._kind == "seal"):
            self._problem(
                "altered", "The chain is said to be sealed, or not to be, and is otherwise.", self.seq
            )


def fits(hole: Stretch, gaps: dict[tuple[str, int], Stretch]) -> bool:
    """Tell whether gap records, by the chain and number they begin at, account for all of a hole."""
    first, before = hole.first, hole.before
    while first <= hole.last:
        gap = gaps.get((hole.server, first))
        if gap is None or gap.before != before or gap.last < first:
            return False
        first, before = gap.last + 1, gap.after
    return first == hole.last + 1 and before == hole.after


def _number(data: dict[str, Any]) -> int | None:
    numbers = range_of(data["run_id"]) if isinstance(data.get("run_id"), str) else None
    return numbers[0] if numbers else None
