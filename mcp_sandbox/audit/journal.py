"""The chain that one server writes: each run's opening and closing, and an end that is sealed.

Blocking, and only ever called from a worker thread. One object, one chain, one connection; calls take turns.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mcp_sandbox.audit import lease as leases
from mcp_sandbox.audit.record import (
    Opening,
    as_bytes,
    as_text,
    body_of,
    canonical,
    contents_data,
    opening_data,
    sha256,
)
from mcp_sandbox.audit.run_id import RunIds, name_of
from mcp_sandbox.audit.schema import connect, set_up
from mcp_sandbox.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mcp_sandbox.audit.folder import Folder
    from mcp_sandbox.audit.record import Kind
    from mcp_sandbox.model import ExecutionResult

INLINE_BYTES = 32 * 1024
"""Contents up to this size live in the database: one transaction writes them with their record, and a million
runs are not three million files."""

SEARCHED_CHARACTERS = 64 * 1024
"""How much of a program the search finds; indexing more would make the call wait."""

_CHANGED = "Run `mcp-sandbox runs verify`. The next call starts a new chain."


class Chain:
    """Where a chain ends: the number and hash of its last record."""

    def __init__(self, number: int, server: str, seq: int, head: str) -> None:
        self.number = number
        self.server = server
        self.seq = seq
        self.head = head

    @property
    def end(self) -> tuple[int, str]:
        """Number and hash of the last record."""
        return self.seq, self.head


class Journal:
    """Writes one server's chain.

    Every method raises AuditError when the store cannot be written, and has then written nothing.
    """

    def __init__(self, folder: Folder, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._ids = RunIds(clock)
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._lease: leases.Lease | None = None
        self._chain: Chain | None = None
        self._attempted: tuple[int, str] | None = None

    @property
    def server(self) -> str:
        """Name of the chain; empty before it begins."""
        return self._chain.server if self._chain else ""

    def begin(self, busy_seconds: float) -> None:
        """Open the store, close what dead servers left open, begin a chain; does nothing the second time."""
        with self._taking_turns(busy_seconds):
            self._begin(busy_seconds)

    def open_run(self, opening: Opening, busy_seconds: float) -> int:
        """Write the opening record, on disk when this returns, and return the run's number."""
        contents = {"code": as_bytes(opening.code)}
        with self._writing(busy_seconds) as (connection, chain):
            number = self._free_number(connection)
            body = self._append(connection, chain, "opening", opening_data(name_of(number), opening))
            self._insert_run(connection, chain, number, body, opening, "open", "", contents)
        return number

    def close_run(
        self,
        number: int,
        data: Mapping[str, object],
        contents: Mapping[str, bytes],
        result: ExecutionResult | None,
        busy_seconds: float,
    ) -> None:
        """Write the closing record; `data` has at least `status` and `error`."""
        self._keep_files(contents)
        with self._writing(busy_seconds) as (connection, chain):
            self._append_closing(connection, chain, number, data, contents, result)

    def refuse(
        self,
        opening: Opening | None,
        data: Mapping[str, object],
        contents: Mapping[str, bytes],
        error_code: str,
        busy_seconds: float,
    ) -> int:
        """Write the one record of a call that ran nothing, and return its number."""
        with self._writing(busy_seconds) as (connection, chain):
            number = self._free_number(connection)
            said = opening_data(name_of(number), opening) if opening else {"run_id": name_of(number)}
            record = {**said, **data, "contents": contents_data(contents)}
            body = self._append(connection, chain, "refused", record)
            self._insert_run(connection, chain, number, body, opening, "refused", error_code, contents)
        return number

    def end(self, busy_seconds: float) -> None:
        """Close what is still open, seal the chain and let go of everything; does nothing before `begin`."""
        with self._taking_turns(busy_seconds):
            if self._chain is None:
                return
            try:
                with self._transaction(self._chain, busy_seconds) as connection:
                    self._close_left_open(
                        connection, self._chain, "abandoned", "The server ended during the run."
                    )
                    self._seal(connection, self._chain, {"reason": "exit"})
                if self._lease:
                    self._lease.remove()
            finally:
                self._let_go()

    # Transactions

    @contextmanager
    def _taking_turns(self, seconds: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=seconds):
            raise AuditError(
                f"The run record in {self._folder.path} did not answer within {seconds:g} s.",
                next_step="Look at the disk that holds it, or name another folder under [audit] path.",
            )
        try:
            with self._folder.explained():
                yield
        finally:
            self._turn.release()

    @contextmanager
    def _writing(self, busy_seconds: float) -> Iterator[tuple[sqlite3.Connection, Chain]]:
        with self._taking_turns(busy_seconds):
            chain = self._begin(busy_seconds)
            with self._transaction(chain, busy_seconds) as connection:
                yield connection, chain

    @contextmanager
    def _transaction(self, chain: Chain, busy_seconds: float) -> Iterator[sqlite3.Connection]:
        """One transaction that appends to `chain`; a failure leaves the store and `chain` as they were."""
        connection = self._connected(busy_seconds)
        before = chain.end
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._expect_own_end(connection, chain)
            yield connection
            connection.execute(
                "UPDATE chains SET last_seq = ?, head = ? WHERE id = ?", (chain.seq, chain.head, chain.number)
            )
            # A commit that fails may yet be found done: then the chain goes on from there, see below.
            self._attempted = chain.end
            connection.execute("COMMIT")
        except BaseException as exc:
            chain.seq, chain.head = before
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(exc, sqlite3.Error):
                self._disconnect()
            raise
        self._attempted = None

    def _expect_own_end(self, connection: sqlite3.Connection, chain: Chain) -> None:
        """Refuse to go on from an end that this server did not write: its memory outranks the file."""
        found = connection.execute(
            "SELECT last_seq, head FROM chains WHERE id = ? AND server = ? AND sealed = 0",
            (chain.number, chain.server),
        ).fetchone()
        if found == chain.end:
            return
        if found is not None and found == self._attempted:
            chain.seq, chain.head = found
            return
        if chain is self._chain:
            self._let_go()
        raise AuditError(
            f"Something else changed this server's chain in the run record in {self._folder.path}.",
            next_step=_CHANGED,
        )

    def _connected(self, busy_seconds: float) -> sqlite3.Connection:
        """Return a connection to the file that is there now, not to one that was deleted meanwhile."""
        if self._connection is not None:
            try:
                status = self._folder.database.lstat()
            except FileNotFoundError:
                status = None
            if status is None or (status.st_dev, status.st_ino) != self._file:
                self._let_go()
                raise AuditError(
                    f"The run record in {self._folder.path} was removed or replaced.", next_step=_CHANGED
                )
        else:
            self._connection = connect(self._folder.database, busy_seconds=busy_seconds)
            status = self._folder.database.lstat()
            self._file = status.st_dev, status.st_ino
        self._connection.execute(f"PRAGMA busy_timeout = {int(busy_seconds * 1000)}")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _let_go(self) -> None:
        self._disconnect()
        if self._lease:
            self._lease.release()
        self._lease = self._chain = self._attempted = None

    # The life of a chain

    def _begin(self, busy_seconds: float) -> Chain:
        if self._chain is not None:
            return self._chain
        try:
            self._folder.prepare()
            connection = self._connected(busy_seconds)
            set_up(self._folder, connection)
            server = secrets.token_hex(8)
            self._bury_the_dead(connection, server, busy_seconds)
            # The lease before the record: a chain that is in the store and has no lease is dead.
            self._lease = leases.take(self._folder.leases / server)
            assert self._lease is not None, "64 random bits were drawn twice"  # noqa: S101
            self._chain = self._write_genesis(connection, server)
        except BaseException:
            if self._lease:
                self._lease.remove()
            self._let_go()
            raise
        return self._chain

    def _write_genesis(self, connection: sqlite3.Connection, server: str) -> Chain:
        """Begin a chain whose first record names the ends of the others: none of them can then go missing."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            others = connection.execute(
                "SELECT server, last_seq, head FROM chains WHERE followed = 0 ORDER BY id"
            ).fetchall()
            connection.execute("UPDATE chains SET followed = 1 WHERE followed = 0 AND sealed = 1")
            number = connection.execute(
                "INSERT INTO chains (server, last_seq, head, sealed, followed) VALUES (?, -1, '', 0, 0)",
                (server,),
            ).lastrowid
            assert number is not None  # noqa: S101 - an INSERT has one
            chain = Chain(number, server, -1, "")
            ends = [{"server": name, "seq": seq, "hash": head} for name, seq, head in others]
            self._append(connection, chain, "genesis", {"follows": ends})
            connection.execute(
                "UPDATE chains SET last_seq = ?, head = ? WHERE id = ?", (chain.seq, chain.head, chain.number)
            )
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
        return chain

    def _bury_the_dead(self, connection: sqlite3.Connection, by: str, busy_seconds: float) -> None:
        """Close the runs, and seal the chains, of servers that died; the lease decides who is dead."""
        unsealed = connection.execute(
            "SELECT id, server, last_seq, head FROM chains WHERE sealed = 0"
        ).fetchall()
        for number, server, _, _ in unsealed:
            lease = leases.take(self._folder.leases / server)
            if lease is None:
                continue
            try:
                # Read only now, with the lease held: the server itself, or another one, may have sealed it.
                found = connection.execute(
                    "SELECT last_seq, head FROM chains WHERE id = ? AND sealed = 0", (number,)
                ).fetchone()
                if found is not None:
                    chain = Chain(number, server, *found)
                    with self._transaction(chain, busy_seconds) as writing:
                        self._close_left_open(
                            writing, chain, "server_died", "The server died before it.", by=by
                        )
                        self._seal(writing, chain, {"reason": "server_died", "by": by})
            except BaseException:
                lease.release()
                raise
            lease.remove()

    def _close_left_open(
        self, connection: sqlite3.Connection, chain: Chain, code: str, message: str, **more: object
    ) -> None:
        left = connection.execute(
            "SELECT id FROM runs WHERE status = 'open' AND chain = ? ORDER BY id", (chain.number,)
        ).fetchall()
        data = {"status": "lost", "error": {"code": code, "message": message}, **more}
        for (number,) in left:
            self._append_closing(connection, chain, number, data, {}, None)

    def _seal(self, connection: sqlite3.Connection, chain: Chain, data: Mapping[str, object]) -> None:
        self._append(connection, chain, "seal", {**data, "records": chain.seq + 2})
        connection.execute("UPDATE chains SET sealed = 1 WHERE id = ?", (chain.number,))

    # Rows

    def _append(
        self, connection: sqlite3.Connection, chain: Chain, kind: Kind, data: Mapping[str, object]
    ) -> str:
        """Add a record to the chain and return its text."""
        seq = chain.seq + 1
        body = body_of(kind, chain.server, seq, chain.head, int(self._clock() * 1000), data)
        digest = sha256(body)
        connection.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (chain.number, seq, digest, body))
        chain.seq, chain.head = seq, digest
        return body

    def _append_closing(
        self,
        connection: sqlite3.Connection,
        chain: Chain,
        number: int,
        data: Mapping[str, object],
        contents: Mapping[str, bytes],
        result: ExecutionResult | None,
    ) -> None:
        record = {**data, "run_id": name_of(number), "contents": contents_data(contents)}
        body = self._append(connection, chain, "closing", record)
        error = data["error"]
        closed = connection.execute(
            "UPDATE runs SET closing = ?, status = ?, error = ?, exit_code = ?, duration_ms = ?,"
            " bytes = bytes + ? WHERE id = ? AND status = 'open'",
            (
                chain.seq,
                data["status"],
                error["code"] if isinstance(error, dict) else "",
                result.exit_code if result else None,
                result.duration_ms if result else None,
                len(body) + sum(map(len, contents.values())),
                number,
            ),
        ).rowcount
        if closed != 1:
            raise AuditError(f"The run {name_of(number)} is not open in the record.", next_step=_CHANGED)
        self._insert_contents(connection, number, contents)
        for artifact in result.artifacts if result else ():
            connection.execute(
                "INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?)",
                (number, artifact.path, artifact.path.rpartition("/")[2], artifact.sha256),
            )

    def _insert_run(
        self,
        connection: sqlite3.Connection,
        chain: Chain,
        number: int,
        body: str,
        opening: Opening | None,
        status: str,
        error: str,
        contents: Mapping[str, bytes],
    ) -> None:
        policy = canonical(opening.policy) if opening else "{}"
        connection.execute("INSERT OR IGNORE INTO policies VALUES (?, ?)", (sha256(policy), policy))
        connection.execute(
            "INSERT INTO runs VALUES (?, ?, ?, NULL, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?)",
            (
                number,
                chain.number,
                chain.seq,
                opening.workspace if opening else "",
                status,
                opening.language if opening else "",
                opening.origin if opening else "mcp",
                opening.client.name if opening else "",
                sha256(policy),
                error,
                len(body) + sum(map(len, contents.values())),
            ),
        )
        self._insert_contents(connection, number, contents)
        if "code" in contents:
            connection.execute(
                "INSERT INTO search (rowid, code) VALUES (?, ?)", (number, searched_text(contents["code"]))
            )

    def _insert_contents(
        self, connection: sqlite3.Connection, number: int, contents: Mapping[str, bytes]
    ) -> None:
        for role, data in contents.items():
            digest = sha256(data)
            inline = is_inline(role, data)
            if not inline:
                # Again, now that nobody else writes: a prune may have removed the file since `_keep_files`.
                self._folder.keep(digest, data)
            connection.execute(
                "INSERT INTO contents VALUES (?, ?, ?, ?, ?)",
                (number, role, digest, len(data), data if inline else None),
            )

    def _keep_files(self, contents: Mapping[str, bytes]) -> None:
        """Write big contents before the transaction, which would make other servers wait meanwhile."""
        with self._folder.explained():
            for role, data in contents.items():
                if not is_inline(role, data):
                    self._folder.keep(sha256(data), data)

    def _free_number(self, connection: sqlite3.Connection) -> int:
        """Return a number that no run has: two servers can draw the same one in the same millisecond."""
        while True:
            number = self._ids.next()
            if connection.execute("SELECT 1 FROM runs WHERE id = ?", (number,)).fetchone() is None:
                return number


def is_inline(role: str, data: bytes) -> bool:
    """Tell whether a content lives in the database; code always does, since searches read it."""
    return role == "code" or len(data) <= INLINE_BYTES


def searched_text(code: bytes) -> str:
    """Return the part of a program that goes into the search index."""
    return as_text(code)[:SEARCHED_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def policy_of(text: str) -> dict[str, object]:
    """Return a policy as it was recorded."""
    policy: dict[str, object] = json.loads(text)
    return policy
