"""The record for other programs: as JSON Lines, or one run as an archive that explains itself. Blocking."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from typing import IO, TYPE_CHECKING, Any

from mcp_sandbox.audit.record import read_body, sha256
from mcp_sandbox.audit.run_id import first_at, range_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from mcp_sandbox.audit.query import Reader

_SUFFIXES = {"python": ".py", "shell": ".sh"}


def json_lines(reader: Reader, *, since: datetime | None = None, contents: bool = True) -> Iterator[str]:
    """Yield a line for each record, chain by chain: `server`, `seq`, `hash`, `record`, `contents`.

    The text after `"record":`, up to `,"contents":`, is what the hash covers, to the letter. With `since`,
    records of earlier runs are left out, and what remains no longer links up. A text that is no record any more
    stands under `damaged`.

    Raises:
        AuditError: A content is gone.
    """
    first = 0 if since is None else first_at(int(since.timestamp() * 1000))
    found = reader.connection.execute(
        "SELECT server, seq, hash, body FROM records JOIN chains ON chains.id = chain ORDER BY chain, seq"
    )
    for server, seq, digest, body in found:
        try:
            data = read_body(body)["data"]
        except (ValueError, RecursionError):
            yield json.dumps({"server": server, "seq": seq, "hash": digest, "damaged": body})
            continue
        number = _number(data)
        if number is None or number >= first:
            kept = dict(_contents(reader, data, number)) if contents and number is not None else {}
            yield (
                f'{{"server":{json.dumps(server)},"seq":{seq},"hash":{json.dumps(digest)},'
                f'"record":{body},"contents":{json.dumps(kept)}}}'
            )


def archive(reader: Reader, prefix: str, target: IO[bytes]) -> str:
    """Write one run as a tar file, the same bytes each time, and return the run's name.

    `sha256sum -c SHA256SUMS` checks it; the sums of `opening.json` and `closing.json` are their hashes.

    Raises:
        RequestRefused: No run, or more than one, has a name that starts with `prefix`.
        AuditError: A content is gone.
        OSError: `target` cannot be written.
    """
    run = reader.get(prefix)
    run_id, number = run.summary.run_id, reader.resolve(run.summary.run_id)
    files = {"run.json": _json(run.summary.model_dump(mode="json"))}
    for name, seq in zip(("opening", "closing"), reader.places(number), strict=True):
        if seq is not None:
            files[f"{name}.json"] = reader.record(run.server, seq).encode("ascii")
    files["policy.json"] = _json(run.policy)
    for role in sorted(run.contents):
        files[file_name(role, run.summary.language)] = reader.content(number, role) or b""
    files["SHA256SUMS"] = "".join(sum_line(name, sha256(data)) for name, data in files.items()).encode()
    with tarfile.open(fileobj=target, mode="w|") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{run_id}/{name}")
            member.size, member.mtime, member.mode = len(data), int(run.summary.opened_at.timestamp()), 0o600
            tar.addfile(member, io.BytesIO(data))
    return run_id


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode("ascii")


def file_name(role: str, language: str) -> str:
    """Return where in the archive a content goes: never outside it, whatever the record says."""
    if role == "code":
        return "code" + _SUFFIXES.get(language, "")
    kind, _, path = role.partition(":")
    parts = (f"{kind}s", *path.split("/")) if path else role.split("/")
    return "/".join(part for part in parts if part not in {"", ".", ".."}) or "content"


def sum_line(name: str, sha256: str) -> str:
    """Return a line of SHA256SUMS."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
    mark = "\\" if escaped != name else ""
    return f"{mark}{sha256}  {escaped}\n"


def _contents(reader: Reader, data: dict[str, Any], number: int) -> Iterator[tuple[str, object]]:
    """Yield what a record names by hash: text as text, other bytes as base64."""
    for role in data.get("contents", {}):
        content = reader.content(number, role) or b""
        try:
            yield role, content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            yield role, {"base64": base64.b64encode(content).decode("ascii")}
    if "policy_sha256" in data:
        yield "policy", reader.policy(data["policy_sha256"])


def _number(data: dict[str, Any]) -> int | None:
    numbers = range_of(data["run_id"]) if isinstance(data.get("run_id"), str) else None
    return numbers[0] if numbers else None
