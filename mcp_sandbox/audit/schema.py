"""The tables, and how a store of an older version becomes one of this version. Forward only.

`records` is the record: each row is a text and its hash. `runs`, `artifacts` and `search` repeat parts of
it in a form that can be looked up; `verify` compares them with what the records say.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import time
from typing import TYPE_CHECKING

from mcp_sandbox.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mcp_sandbox.audit.folder import Folder

BUSY_SECONDS = 5.0
"""How long SQLite waits for what others hold only for moments (a migration, a recovery), in seconds."""

OLDEST_SQLITE = (3, 37, 0)
"""First with STRICT tables."""

APPLICATION_ID = 0x6D637362  # "mcsb", for `file` and for us: this database is ours

_FIRST = """
CREATE TABLE chains (
    id INTEGER PRIMARY KEY,
    server TEXT NOT NULL UNIQUE,
    last_seq INTEGER NOT NULL,
    head TEXT NOT NULL,          -- hash of the last record
    sealed INTEGER NOT NULL,     -- 1 when the last record is a seal
    followed INTEGER NOT NULL    -- 1 when a later genesis names the seal
) STRICT;
CREATE INDEX chains_unfollowed ON chains (followed) WHERE followed = 0;

CREATE TABLE records (
    chain INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,          -- SHA-256 of body
    body TEXT NOT NULL,          -- canonical JSON; holds the predecessor's hash
    PRIMARY KEY (chain, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE policies (
    sha256 TEXT PRIMARY KEY,
    body TEXT NOT NULL           -- canonical JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,      -- the run's name as a number: time-ordered
    chain INTEGER NOT NULL,
    opening INTEGER NOT NULL,    -- seq of the opening (or refused) record
    closing INTEGER,             -- seq of the closing record; NULL while open
    workspace TEXT NOT NULL,
    status TEXT NOT NULL,
    language TEXT NOT NULL,
    origin TEXT NOT NULL,
    client TEXT NOT NULL,
    policy TEXT NOT NULL,
    error TEXT NOT NULL,         -- code of the error; empty where there was none
    exit_code INTEGER,
    duration_ms INTEGER,
    bytes INTEGER NOT NULL       -- of its records and contents
) STRICT;
CREATE INDEX runs_by_workspace ON runs (workspace);
CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX runs_by_workspace_status ON runs (workspace, status);

CREATE TABLE contents (
    run INTEGER NOT NULL,
    role TEXT NOT NULL,          -- code, stdout, stderr, ...
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    body BLOB,                   -- NULL: a file under blobs/
    PRIMARY KEY (run, role)
) STRICT, WITHOUT ROWID;
CREATE INDEX contents_in_files ON contents (sha256) WHERE body IS NULL;

CREATE TABLE artifacts (
    run INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,          -- last part of path
    sha256 TEXT NOT NULL,
    PRIMARY KEY (run, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX artifacts_by_name ON artifacts (name, run);
CREATE INDEX artifacts_by_path ON artifacts (path, run);
CREATE INDEX artifacts_by_sha256 ON artifacts (sha256, run);

CREATE VIRTUAL TABLE search USING fts5 (
    code, content = '', detail = 'none', columnsize = 0, tokenize = 'trigram'
);
"""

_EGRESS_INDEX = """
CREATE INDEX records_with_egress ON records (json_extract(body, '$.data.run_id')) WHERE instr(body, '"egress":[') > 0;
"""
"""Closing records that tell of connections, in the order of their runs. Within a text of the record, quotation marks
are escaped, so only a key matches."""

MIGRATIONS: tuple[str, ...] = (_FIRST, _EGRESS_INDEX)
"""Script N turns version N into version N + 1. Never change one that was released: append."""


def connect(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """Open the database for reading and writing.

    `immutable` reads a database at rest without the files that SQLite else keeps beside it.

    Raises:
        sqlite3.Error: It cannot be opened.
        AuditError: SQLite is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise AuditError(
            f"The run record needs SQLite {needed} or newer; this Python has {sqlite3.sqlite_version}.",
            next_step="Use a Python that comes with a newer SQLite.",
        )
    connection = sqlite3.connect(
        path.absolute().as_uri() + ("?immutable=1" if immutable else "?mode=rw"),
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions are begun and ended here, never by the module
        check_same_thread=False,  # one at a time, but not always the same worker thread
    )
    try:
        # FULL: a commit is on disk when it returns, so a record outlives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        # A pruned record must not stay readable in free pages.
        connection.execute("PRAGMA secure_delete = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def begin_writing(connection: sqlite3.Connection, seconds: float) -> None:
    """Begin a transaction as the only writer, waiting `seconds` for the others.

    SQLite's own wait looks again ever more rarely, and starves where several servers write without a pause.
    Here all who wait have the same chance, every 2 ms or so.

    Raises:
        sqlite3.OperationalError: Others kept it busy, or it cannot be written.
    """
    deadline = time.monotonic() + seconds
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.001, 0.003))  # noqa: S311 - chance, not secrecy
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def set_up(folder: Folder, connection: sqlite3.Connection) -> None:
    """Bring the store to this version; servers that start at once take turns.

    Raises:
        AuditError: A newer version wrote it, or it is something else.
        sqlite3.Error: It cannot be written.
    """
    if _version(connection) == len(MIGRATIONS):
        _expect_ours(folder, connection)
        return
    # Changing to WAL does not wait for others as a transaction does: it fails at once. So take turns outside.
    descriptor = os.open(folder.setup_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _expect_ours(folder, connection)
        if _version(connection) == 0:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
        migrate(folder, connection, MIGRATIONS)
    finally:
        os.close(descriptor)


def migrate(folder: Folder, connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Apply the scripts that the store has not seen, each whole or not at all.

    Raises:
        AuditError: A newer version wrote it.
        sqlite3.Error: A script failed; the store is as it was before that script.
    """
    while (version := _version(connection)) < len(migrations):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {migrations[version]}"
                f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version + 1}; COMMIT;"
            )
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    if version > len(migrations):
        raise AuditError(
            f"The run record in {folder.path} was written by a newer version (format {version}).",
            next_step="Use that version, or name another folder under [audit] path in the configuration.",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _expect_ours(folder: Folder, connection: sqlite3.Connection) -> None:
    empty = not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not empty and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise AuditError(
            f"{folder.database} is a database of something else.",
            next_step="Name another folder under [audit] path in the configuration.",
        )
