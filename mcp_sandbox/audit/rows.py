"""The rows that repeat what the records say, so that it can be looked up.

Each is worked out from a record's text alone, here and nowhere else: the journal writes them, `verify` works
them out again and compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_sandbox.audit.record import as_text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from mcp_sandbox.audit.record import Content

INLINE_BYTES = 32 * 1024
"""Contents up to this size live in the database: one transaction writes them with their record, and a million
runs are not three million files."""

SEARCHED_CHARACTERS = 64 * 1024
"""How much of a program the search index covers; indexing more would make the call wait."""

_INT64 = range(-(1 << 63), 1 << 63)


class RunRow(NamedTuple):
    """A row of `runs`."""

    id: int
    chain: int
    opening: int
    closing: int | None
    workspace: str
    status: str
    language: str
    origin: str
    client: str
    policy: str
    error: str
    exit_code: int | None
    duration_ms: int | None
    bytes: int


class ArtifactRow(NamedTuple):
    """A row of `artifacts`."""

    run: int
    path: str
    name: str
    sha256: str


def opened(number: int, chain: int, seq: int, body: str, data: Mapping[str, Any]) -> RunRow:
    """Return the row that an opening or a refused record makes."""
    error = data.get("error")
    return RunRow(
        id=number,
        chain=chain,
        opening=seq,
        closing=None,
        workspace=text(data.get("workspace")),
        status="refused" if error else "open",
        language=text(data.get("language")),
        origin=text(data.get("origin")),
        client=text((data.get("client") or {}).get("name")),
        policy=text(data.get("policy_sha256")),
        error=text(error["code"]) if error else "",
        exit_code=None,
        duration_ms=None,
        bytes=len(body) + content_bytes(data),
    )


def closed(row: RunRow, seq: int, body: str, data: Mapping[str, Any]) -> RunRow:
    """Return the row that the closing record makes of an open run's row."""
    error, result = data.get("error"), data.get("result") or {}
    return row._replace(
        closing=seq,
        status=text(data.get("status")),
        error=text(error["code"]) if error else "",
        exit_code=_integer(result.get("exit_code")),
        duration_ms=_integer(result.get("duration_ms")),
        bytes=row.bytes + len(body) + content_bytes(data),
    )


def artifacts(number: int, data: Mapping[str, Any]) -> Iterator[ArtifactRow]:
    """Yield the rows of the artifacts that a closing record names, each path once."""
    found = {text(artifact["path"]): artifact for artifact in (data.get("result") or {}).get("artifacts", ())}
    for path, artifact in found.items():
        yield ArtifactRow(number, path, path.rpartition("/")[2], text(artifact["sha256"]))


def insert_run(connection: sqlite3.Connection, row: RunRow) -> None:
    """Write the row of a new run."""
    connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - marks


def update_run(connection: sqlite3.Connection, row: RunRow) -> None:
    """Write what closing changes in a run's row."""
    connection.execute(
        "UPDATE runs SET closing = ?, status = ?, error = ?, exit_code = ?, duration_ms = ?, bytes = ?"
        " WHERE id = ?",
        (row.closing, row.status, row.error, row.exit_code, row.duration_ms, row.bytes, row.id),
    )


def find_run(connection: sqlite3.Connection, number: int) -> RunRow | None:
    """Return a run's row."""
    found = connection.execute("SELECT * FROM runs WHERE id = ?", (number,)).fetchone()
    return None if found is None else RunRow(*found)


def delete_run(connection: sqlite3.Connection, number: int) -> None:
    """Delete all that is kept of a run except its records."""
    code = connection.execute(
        "SELECT body FROM contents WHERE run = ? AND role = 'code'", (number,)
    ).fetchone()
    if code is not None:
        # The index holds no text of its own: to forget the run it must be told what it was.
        connection.execute(
            "INSERT INTO search (search, rowid, code) VALUES ('delete', ?, ?)",
            (number, searched_text(code[0])),
        )
    connection.execute("DELETE FROM contents WHERE run = ?", (number,))
    connection.execute("DELETE FROM artifacts WHERE run = ?", (number,))
    connection.execute("DELETE FROM runs WHERE id = ?", (number,))


def insert_contents(connection: sqlite3.Connection, number: int, contents: Sequence[Content]) -> None:
    """Write contents; of those that are files, that they are."""
    for content in contents:
        connection.execute(
            "INSERT INTO contents VALUES (?, ?, ?, ?, ?)",
            (
                number,
                content.role,
                content.sha256,
                content.size,
                content.data if is_inline(content) else None,
            ),
        )
        if content.role == "code":
            connection.execute(
                "INSERT INTO search (rowid, code) VALUES (?, ?)", (number, searched_text(content.data))
            )


def insert_artifacts(connection: sqlite3.Connection, number: int, data: Mapping[str, Any]) -> None:
    """Write the rows of the artifacts that a closing record names."""
    connection.executemany("INSERT INTO artifacts VALUES (?, ?, ?, ?)", artifacts(number, data))


def is_inline(content: Content) -> bool:
    """Tell whether a content lives in the database; code always does, since searches read it."""
    return content.role == "code" or (content.file is None and content.size <= INLINE_BYTES)


def searched_text(code: bytes) -> str:
    """Return the part of a program that goes into the search index."""
    return text(as_text(code)[:SEARCHED_CHARACTERS])


def content_bytes(data: Mapping[str, Any]) -> int:
    """Return the size of all contents that a record names."""
    return sum(content["bytes"] for content in data.get("contents", {}).values())


def text(value: object) -> str:
    """Return text that SQLite takes: a client may name itself with half of a surrogate pair."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and value in _INT64 else None
