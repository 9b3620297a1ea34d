"""The chain that one server writes: each run's opening and closing, and an end that is sealed.

Blocking, and only ever called from a worker thread. One object, one chain, one connection; calls take turns.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mcp_sandbox.audit import lease as leases
from mcp_sandbox.audit import rows
from mcp_sandbox.audit.connections import left_behind
from mcp_sandbox.audit.record import (
    Content,
    Opening,
    as_bytes,
    body_of,
    canonical,
    contents_data,
    opening_data,
    sha256,
)
from mcp_sandbox.audit.run_id import RunIds, name_of
from mcp_sandbox.audit.schema import begin_writing, connect, set_up
from mcp_sandbox.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mcp_sandbox.audit.folder import Folder
    from mcp_sandbox.audit.record import Kind

_TRY_AGAIN = "Try again: the next name is another one."
_CHANGED = "Run `mcp-sandbox runs verify`. The next call starts a new chain."


class Chain:
    """A chain by its end: the number and hash of its last record."""

    def __init__(self, number: int, server: str, seq: int = -1, head: str = "") -> None:
        self.number = number
        self.server = server
        self.seq = seq
        self.head = head

    @property
    def end(self) -> tuple[int, str]:
        """Number and hash of the last record."""
        return self.seq, self.head

    def append(self, connection: sqlite3.Connection, kind: Kind, at: int, data: Mapping[str, object]) -> str:
        """Write a record and return its text."""
        body = body_of(kind, self.server, self.seq + 1, self.head, at, data)
        digest = sha256(body.encode("ascii"))
        connection.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?)", (self.number, self.seq + 1, digest, body)
        )
        self.seq, self.head = self.seq + 1, digest
        return body


class Journal:
    """Writes one server's chain.

    Every method raises AuditError when the store cannot be written, and has then written nothing. `seconds`
    is how long it waits for other writers.
    """

    def __init__(self, folder: Folder, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._ids = RunIds(clock)
        self._turn = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the database that the connection is to."""
        self._lease: leases.Lease | None = None
        self._chain: Chain | None = None
        self._attempted: tuple[int, str] | None = None
        """The chain's end as a failed commit would have made it."""

    # What is recorded

    def begin(self, seconds: float) -> None:
        """Open the store, close what dead servers left open, begin a chain; does nothing the second time."""
        with self._taking_turns(seconds):
            self._begin(seconds)

    def open_run(self, opening: Opening, seconds: float) -> int:
        """Write the opening record, on disk when this returns, and return the run's number."""
        contents = _given(opening)
        with self.writing(seconds) as (connection, chain):
            self._keep_files(contents)
            return self._append_first(connection, chain, "opening", opening, {}, contents)

    def refuse(
        self, opening: Opening | None, data: Mapping[str, object], contents: Sequence[Content], seconds: float
    ) -> int:
        """Write the one record of a call that ran nothing, `error` being in `data`, and return its number."""
        with self.writing(seconds) as (connection, chain):
            more = _given(opening)[:1] if opening else ()
            return self._append_first(connection, chain, "refused", opening, data, [*contents, *more])

    def close_run(
        self, number: int, data: Mapping[str, object], contents: Sequence[Content], seconds: float
    ) -> None:
        """Write the closing record, `status` and `error` being in `data`."""
        # Files first: in the transaction they would make other servers wait.
        with self._folder.explained():
            self._keep_files(contents)
        with self._taking_turns(seconds):
            chain = self._chain
            if chain is None:
                raise self._not_open(number)
            with self._transaction(chain, seconds) as connection:
                self._append_closing(connection, chain, number, data, contents)

    def end(self, seconds: float) -> None:
        """Close what is still open, seal the chain and let go of everything; does nothing before `begin`."""
        with self._taking_turns(seconds):
            if self._chain is None:
                return
            try:
                with self._transaction(self._chain, seconds) as connection:
                    message = "The server ended during the run."
                    self._close_left_open(connection, self._chain, "server_ended", message)
                    self._seal(connection, self._chain, {"reason": "exit"})
                if self._lease:
                    self._lease.remove()
            finally:
                self._let_go()

    def _append_first(
        self,
        connection: sqlite3.Connection,
        chain: Chain,
        kind: Kind,
        opening: Opening | None,
        data: Mapping[str, object],
        contents: Sequence[Content],
    ) -> int:
        number = self._free_number(connection)
        record: dict[str, object] = {"run_id": name_of(number), "contents": contents_data(contents), **data}
        if opening is not None:
            policy = canonical(opening.policy)
            record.update(opening_data(opening, policy))
            connection.execute(
                "INSERT OR IGNORE INTO policies VALUES (?, ?)", (record["policy_sha256"], policy)
            )
        body = chain.append(connection, kind, self.now(), record)
        rows.insert_run(connection, rows.opened(number, chain.number, chain.seq, body, record))
        rows.insert_contents(connection, number, contents)
        return number

    def _append_closing(
        self,
        connection: sqlite3.Connection,
        chain: Chain,
        number: int,
        data: Mapping[str, object],
        contents: Sequence[Content],
    ) -> None:
        row = rows.find_run(connection, number)
        if row is None or row.status != "open" or row.chain != chain.number:
            raise self._not_open(number)
        record = {"run_id": name_of(number), "contents": contents_data(contents), **data}
        body = chain.append(connection, "closing", self.now(), record)
        # Again, now that nobody else writes: a prune may have removed a file meanwhile.
        self._keep_files([content for content in contents if not self._folder.has(content)])
        rows.update_run(connection, rows.closed(row, chain.seq, body, record))
        rows.insert_contents(connection, number, contents)
        rows.insert_artifacts(connection, number, record)

    def _not_open(self, number: int) -> AuditError:
        return AuditError(
            f"The run {name_of(number)} is not open in the record {self._folder.path}: its chain has ended.",
            next_step=f"`mcp-sandbox runs show {name_of(number)}` tells how it was closed.",
        )

    def _close_left_open(
        self, connection: sqlite3.Connection, chain: Chain, code: str, message: str, **more: object
    ) -> None:
        left = connection.execute(
            "SELECT id FROM runs WHERE status = 'open' AND chain = ? ORDER BY id", (chain.number,)
        ).fetchall()
        data = {"status": "lost", "error": {"code": code, "message": message}, **more}
        for (number,) in left:
            made = left_behind(self._folder.staged(name_of(number)))
            facts = {"facts": {"egress": made}} if made else {}
            self._append_closing(connection, chain, number, {**data, **facts}, ())
            self._folder.forget_staged(name_of(number))

    def _seal(self, connection: sqlite3.Connection, chain: Chain, data: Mapping[str, object]) -> None:
        chain.append(connection, "seal", self.now(), {**data, "records": chain.seq + 2})
        connection.execute("UPDATE chains SET sealed = 1 WHERE id = ?", (chain.number,))

    def _keep_files(self, contents: Sequence[Content]) -> None:
        for content in contents:
            if not rows.is_inline(content):
                self._folder.keep(content)

    def _free_number(self, connection: sqlite3.Connection) -> int:
        """Return a number that no run has: two servers can draw the same one in the same millisecond."""
        number = self._ids.next()
        while rows.find_run(connection, number):
            number = self._ids.next()
        return number

    def now(self) -> int:
        """Return the time that a record gets, in milliseconds since 1970."""
        return int(self._clock() * 1000)

    # Transactions

    @contextmanager
    def _taking_turns(self, seconds: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=seconds):
            raise self._folder.silent(seconds)
        try:
            with self._folder.explained():
                yield
        finally:
            self._turn.release()

    @contextmanager
    def writing(self, seconds: float) -> Iterator[tuple[sqlite3.Connection, Chain]]:
        """Yield the store in a transaction, and the chain to append to; an exception undoes it all."""
        with self._taking_turns(seconds):
            chain = self._begin(seconds)
            with self._transaction(chain, seconds) as connection:
                yield connection, chain

    @contextmanager
    def _transaction(self, chain: Chain, seconds: float) -> Iterator[sqlite3.Connection]:
        """One transaction that appends to `chain`; a failure leaves the store and `chain` as they were."""
        connection = self._connected()
        begin_writing(connection, seconds)
        before = chain.end
        try:
            self._expect_own_end(connection, chain)
            before = chain.end
            yield connection
            self._attempted = chain.end
            _commit(connection, chain)
        except BaseException as exc:
            chain.seq, chain.head = before
            with suppress(sqlite3.Error):
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
            # A commit that failed was found done: the chain goes on from there.
            chain.seq, chain.head = found
            return
        if chain is self._chain:
            self._let_go()
        raise AuditError(
            f"Something else changed the chain {chain.server} of the run record in {self._folder.path}.",
            next_step=_CHANGED,
        )

    def _connected(self) -> sqlite3.Connection:
        """Return a connection to the file that is there now, not to one that was deleted meanwhile."""
        if self._connection is None:
            self._connection = connect(self._folder.database)
            self._file = self._folder.database_file()
        elif self._folder.database_file() != self._file:
            self._let_go()
            raise AuditError(
                f"The run record in {self._folder.path} was removed or replaced.", next_step=_CHANGED
            )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    # The life of a chain

    def _begin(self, seconds: float) -> Chain:
        if self._chain is not None:
            return self._chain
        try:
            self._folder.prepare()
            connection = self._connected()
            set_up(self._folder, connection)
            server = secrets.token_hex(8)
            self._bury_the_dead(connection, server, seconds)
            # The lease before the record: a chain that is in the store and has no lease is dead.
            self._lease = self._take_lease(server)
            self._chain = self._write_genesis(connection, server, seconds)
        except BaseException:
            if self._lease:
                self._lease.remove()
            self._let_go()
            raise
        return self._chain

    def _take_lease(self, server: str) -> leases.Lease:
        lease = leases.take(self._folder.leases / server)
        if lease is None:
            raise AuditError(
                f"Another process has the name {server} in {self._folder.path}.", next_step=_TRY_AGAIN
            )
        return lease

    def _write_genesis(self, connection: sqlite3.Connection, server: str, seconds: float) -> Chain:
        """Begin a chain whose first record names the ends of the others: none of them can then go missing."""
        begin_writing(connection, seconds)
        try:
            others = connection.execute(
                "SELECT server, last_seq, head FROM chains WHERE followed = 0 ORDER BY id"
            ).fetchall()
            connection.execute("UPDATE chains SET followed = 1 WHERE followed = 0 AND sealed = 1")
            number = connection.execute(
                "INSERT INTO chains (server, last_seq, head, sealed, followed) VALUES (?, -1, '', 0, 0)",
                (server,),
            ).lastrowid
            chain = Chain(number or 0, server)
            ends = [{"server": name, "seq": seq, "hash": head} for name, seq, head in others]
            chain.append(connection, "genesis", self.now(), {"follows": ends})
            _commit(connection, chain)
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return chain

    def _bury_the_dead(self, connection: sqlite3.Connection, by: str, seconds: float) -> None:
        """Close the runs, and seal the chains, of servers that died; the lease decides who is dead."""
        unsealed = connection.execute("SELECT id, server FROM chains WHERE sealed = 0").fetchall()
        for number, server in unsealed:
            lease = leases.take(self._folder.leases / server)
            if lease is None:
                continue
            try:
                # Read only now, with the lease held: the server itself, or another one, may have sealed it.
                end = connection.execute(
                    "SELECT last_seq, head FROM chains WHERE id = ? AND sealed = 0", (number,)
                ).fetchone()
                if end is not None:
                    chain = Chain(number, server, *end)
                    with self._transaction(chain, seconds):
                        message = "The server died during the run."
                        self._close_left_open(connection, chain, "server_died", message, by=by)
                        self._seal(connection, chain, {"reason": "server_died", "by": by})
            except BaseException:
                lease.release()
                raise
            lease.remove()

    def _let_go(self) -> None:
        self._disconnect()
        if self._lease:
            self._lease.release()
        self._lease = self._chain = self._attempted = None


def _given(opening: Opening) -> tuple[Content, ...]:
    """Return what a run starts from, as far as it is the call's own: enough to run it again."""
    stdin = (Content.of("stdin", opening.stdin),) if opening.stdin else ()
    files = (Content.of(f"file:{path}", data) for path, data in opening.given)
    return (Content.of("code", as_bytes(opening.code)), *stdin, *files)


def _commit(connection: sqlite3.Connection, chain: Chain) -> None:
    connection.execute("UPDATE chains SET last_seq = ?, head = ? WHERE id = ?", (*chain.end, chain.number))
    connection.execute("COMMIT")
