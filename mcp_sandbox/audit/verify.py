"""Find what was altered, removed, moved or cut off since it was recorded, and say which. Blocking.

It shows whether the store agrees with itself, with the contents that it names, and with a head that was kept
elsewhere. Who can write the store can also write another one that agrees with itself: only the head kept
elsewhere tells the two apart.
"""

from __future__ import annotations

import sqlite3
from array import array
from typing import TYPE_CHECKING

from mcp_sandbox.audit import lease as leases
from mcp_sandbox.audit.chain_check import ChainCheck, ChainRow, File, Mention, Stretch, fits
from mcp_sandbox.audit.findings import Fault, Problem, Verification
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.record import sha256
from mcp_sandbox.audit.run_id import name_of
from mcp_sandbox.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mcp_sandbox.audit.folder import Folder

_SHOWN = 20
"""Stray rows that are named one by one."""


def verify(
    folder: Folder, *, expect_head: str = "", progress: Callable[[int], None] = lambda records: None
) -> Verification:
    """Check the whole store as it is at one moment; `progress` is told of records as they are done.

    Raises:
        AuditError: It cannot be opened.
        RequestRefused: `expect_head` is not a head.
    """
    expected = list(_read_head(expect_head))
    with reading(folder) as reader:
        return _StoreCheck(folder, reader.connection).run(expected, progress)


def head_of(connection: sqlite3.Connection) -> str:
    """Return the ends of all chains that no later chain names."""
    ends = connection.execute("SELECT server, last_seq, head FROM chains WHERE followed = 0 ORDER BY id")
    return ",".join(f"{server}:{seq}:{digest}" for server, seq, digest in ends)


def _read_head(text: str) -> Iterator[Mention]:
    for end in filter(None, (part.strip() for part in text.split(","))):
        server, _, rest = end.partition(":")
        seq, _, digest = rest.partition(":")
        if not (seq.isascii() and seq.isdecimal() and len(seq) < 19 and len(digest) == 64):
            raise RequestRefused(
                f"{end[:120]!r} is not the head of a record.",
                next_step="Give it as `mcp-sandbox runs verify` printed it: SERVER:NUMBER:HASH.",
            )
        yield Mention(server, int(seq), digest, "the head that was kept elsewhere")


class _StoreCheck:
    def __init__(self, folder: Folder, connection: sqlite3.Connection) -> None:
        self._folder = folder
        self._connection = connection
        self._problems: list[Problem] = []
        self._incomplete: list[str] = []
        self._runs = array("q")
        self._doubtful: set[int] = set()
        self._holes: list[Stretch] = []
        self._gaps: dict[tuple[str, int], Stretch] = {}
        self._mentions: list[Mention] = []
        self._policies: set[str] = set()
        self._files: dict[str, File] = {}
        self._records = self._contents = self._artifacts = self._chains = 0

    def run(self, expected: Sequence[Mention], progress: Callable[[int], None]) -> Verification:
        head = ""
        try:
            chains = self._read_chains()
            for chain in chains:
                self._check_chain(chain, progress)
            self._check_holes()
            self._check_mentions(chains)
            self._check_head(expected)
            self._check_strays()
            self._check_policies()
            head = head_of(self._connection)
        except sqlite3.DatabaseError as exc:
            self._problem("damaged", f"The database cannot be read to its end: {exc}.")
        self._check_files()
        return Verification(
            chains=self._chains,
            records=self._records,
            runs=len(self._runs),
            contents=self._contents,
            pruned=sum(gap.last - gap.first + 1 for gap in self._gaps.values()),
            problems=tuple(self._problems),
            incomplete=tuple(self._incomplete),
            head=head,
        )

    def _problem(
        self, fault: Fault, message: str, server: str = "", seq: int | None = None, run_id: str = ""
    ) -> None:
        self._problems.append(Problem(fault=fault, message=message, server=server, seq=seq, run_id=run_id))

    # Chains

    def _read_chains(self) -> list[ChainRow]:
        chains = [
            ChainRow(*row)
            for row in self._connection.execute(
                "SELECT id, server, last_seq, head, sealed, followed FROM chains ORDER BY id"
            )
        ]
        self._chains = len(chains)
        known, last = {chain.id for chain in chains}, -(1 << 63)
        # One step for each chain, not for each record.
        while found := self._connection.execute(
            "SELECT chain FROM records WHERE chain > ? ORDER BY chain LIMIT 1", (last,)
        ).fetchone():
            (last,) = found
            if last not in known:
                self._problem(
                    "unexpected", f"There are records of a chain {last} that is not in the list of chains."
                )
        return chains

    def _check_chain(self, chain: ChainRow, progress: Callable[[int], None]) -> None:
        check = ChainCheck(self._connection, chain)
        try:
            check.walk(progress)
        except sqlite3.DatabaseError as exc:
            message = f"The chain cannot be read past this record: {exc}."
            self._problem("damaged", message, chain.server, check.seq)
        self._problems += check.problems
        self._holes += check.holes
        self._gaps |= {(gap.server, gap.first): gap for gap in check.gaps}
        self._mentions += check.mentions
        self._policies |= check.policies
        self._files |= {file.sha256: file for file in check.files}
        self._runs.extend(check.runs)
        self._doubtful |= check.doubtful
        self._records += check.records
        self._contents += check.contents
        self._artifacts += check.artifacts
        if not chain.sealed and not leases.is_held(self._folder.leases / chain.server):
            self._incomplete.append(
                f"The server {chain.server} died; the next start closes what it left open."
            )

    def _check_holes(self) -> None:
        for hole in self._holes:
            if not fits(hole, self._gaps):
                what = "record is" if hole.first == hole.last else "records are"
                message = f"{hole.last - hole.first + 1} {what} gone ({hole.first} to {hole.last})."
                self._problem(self._fault_of(hole), message, hole.server, hole.first)

    def _fault_of(self, hole: Stretch) -> Fault:
        (later,) = self._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM records JOIN chains ON chains.id = records.chain"
            " WHERE server = ? AND seq > ? LIMIT 1)",
            (hole.server, hole.last),
        ).fetchone()
        return "removed" if later else "truncated"

    # What is known of chains elsewhere

    def _check_mentions(self, chains: Sequence[ChainRow]) -> None:
        for mention in self._mentions:
            found = self._hash_at(mention)
            if found is None:
                message = f"Record {mention.seq} is gone, which {mention.by} names."
                self._problem("removed", message, mention.server, mention.seq)
            elif found not in {"", mention.hash}:
                message = f"Record {mention.seq} is another one than {mention.by} names."
                self._problem("altered", message, mention.server, mention.seq)
        named = {(mention.server, mention.seq) for mention in self._mentions}
        for chain in chains:
            if chain.followed and (chain.server, chain.last_seq) not in named:
                self._problem("removed", "No chain names this one's end, and one did.", chain.server)

    def _check_head(self, expected: Sequence[Mention]) -> None:
        for mention in expected:
            found = self._hash_at(mention)
            if found is None:
                self._problem(
                    "head", f"Record {mention.seq}, of {mention.by}, is gone.", mention.server, mention.seq
                )
            elif found == "":
                message = f"Record {mention.seq}, of {mention.by}, was pruned: keep a newer head."
                self._problem("head", message, mention.server, mention.seq)
            elif found != mention.hash:
                message = f"Record {mention.seq} is another one than {mention.by} says."
                self._problem("head", message, mention.server, mention.seq)

    def _hash_at(self, mention: Mention) -> str | None:
        """Return the hash of a record; empty where it was pruned and is unknown, None where it is gone."""
        found = self._connection.execute(
            "SELECT hash FROM records JOIN chains ON chains.id = records.chain WHERE server = ? AND seq = ?",
            (mention.server, mention.seq),
        ).fetchone()
        if found is not None:
            return str(found[0])
        for gap in self._gaps.values():
            if gap.server == mention.server and gap.first <= mention.seq <= gap.last:
                return gap.after if mention.seq == gap.last else ""
        return None

    # What no chain tells of

    def _check_strays(self) -> None:
        counts = {"runs": len(self._runs), "contents": self._contents, "artifacts": self._artifacts}
        for table, seen in counts.items():
            (count,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - ours
            if count != seen:
                self._name_strays(table, frozenset(self._runs) | self._doubtful)

    def _name_strays(self, table: str, known: frozenset[int]) -> None:
        column = "id" if table == "runs" else "run"
        found = self._connection.execute(f"SELECT DISTINCT {column} FROM {table}")  # noqa: S608 - ours
        strays = [number for (number,) in found if number not in known]
        message = f"There are {table} of this run, and no record of it."
        for number in strays[:_SHOWN]:
            self._problem("unexpected", message, run_id=name_of(number))
        if len(strays) > _SHOWN:
            self._problem("unexpected", f"There are {table} of {len(strays) - _SHOWN} more such runs.")

    def _check_policies(self) -> None:
        found = dict(self._connection.execute("SELECT sha256, body FROM policies").fetchall())
        for digest, body in found.items():
            if sha256(body.encode("utf-8", "replace")) != digest:
                self._problem("altered", f"The policy {digest} is not what was recorded.")
        for digest in self._policies - found.keys() - {""}:
            self._problem("missing", f"The policy {digest} is gone.")

    # Files

    def _check_files(self) -> None:
        for file in self._files.values():
            fault = self._folder.fault(file.sha256, file.size)
            if fault == "missing" and not self._is_still_named(file):
                continue
            if fault is not None:
                path = self._folder.blob(file.sha256)
                self._problem(
                    fault,
                    f"The file {path} is {'gone' if fault == 'missing' else 'not what was recorded'}.",
                    run_id=file.run_id,
                )
        left = sum(
            path.name not in self._files and self._folder.may_remove(path)
            for path in self._folder.blob_paths()
        )
        if left:
            self._incomplete.append(
                f"{left} files in {self._folder.blobs} belong to no run; "
                "`mcp-sandbox runs prune` removes them."
            )

    def _is_still_named(self, file: File) -> bool:
        """Tell whether the file is meant to be there: a prune may have been faster than this verification."""
        with reading(self._folder) as now:
            return (
                now.connection.execute(
                    "SELECT 1 FROM contents WHERE sha256 = ? AND body IS NULL", (file.sha256,)
                ).fetchone()
                is not None
            )
