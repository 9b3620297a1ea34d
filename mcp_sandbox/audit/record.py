"""What a record says, and the form in which its hash covers it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from typing import Literal

from pydantic import Field

from mcp_sandbox.model import Client, Language, Status, Value

RECORD_VERSION = 1

Origin = Literal["mcp", "cli", "replay"]

Kind = Literal["genesis", "opening", "closing", "refused", "gap", "seal"]

RunStatus = Status | Literal["open", "error", "refused"]
"""How a run stands in the record. `open`: no closing record yet; `error`: the sandbox failed; `refused`:
nothing ran."""


class InputFile(Value):
    """A file that went into a run."""

    path: str
    size: int
    """Bytes."""
    sha256: str
    """Lower-case hex of the content."""


class Opening(Value):
    """What is known of a run before it starts."""

    language: Language
    code: str
    timeout_seconds: float | None = None
    """Wall-clock limit asked for, in seconds; None where none was."""
    client: Client = Client()
    session_id: str = ""
    workspace: str = ""
    policy: Mapping[str, object] = Field(default_factory=dict)
    """The effective policy, as JSON can say it."""
    stdin_sha256: str = ""
    """Lower-case hex; empty where the run has no standard input."""
    files: tuple[InputFile, ...] = ()
    origin: Origin = "mcp"
    environment: tuple[str, ...] = ()
    """Names of variables, never their values."""
    replay_of: str = ""
    """Run that this one repeats; empty where it repeats none."""


def canonical(value: object) -> str:
    """Return `value` as JSON in one fixed form, all ASCII.

    Raises:
        ValueError: It holds a number that JSON has no form for.
        TypeError: It holds something that is not JSON.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256(data: bytes | str) -> str:
    """Return the SHA-256 of `data` (text as UTF-8), as lower-case hex."""
    return hashlib.sha256(as_bytes(data) if isinstance(data, str) else data).hexdigest()


def as_bytes(text: str) -> bytes:
    """Return the UTF-8 of `text`, lone surrogates kept: the record holds exactly what was sent."""
    return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    """Undo `as_bytes`; bytes that never were text become U+FFFD."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def opening_data(run_id: str, opening: Opening) -> dict[str, object]:
    """Return what the opening record says: code and policy by their hash alone."""
    return {
        "run_id": run_id,
        **opening.model_dump(mode="json", exclude={"code", "policy"}),
        "policy_sha256": sha256(canonical(opening.policy)),
        "contents": contents_data({"code": as_bytes(opening.code)}),
    }


def contents_data(contents: Mapping[str, bytes]) -> dict[str, object]:
    """Return what a record says of contents that are kept beside it."""
    return {role: {"sha256": sha256(data), "bytes": len(data)} for role, data in contents.items()}


def body_of(kind: Kind, server: str, seq: int, previous: str, at: int, data: Mapping[str, object]) -> str:
    """Return the text that a record's hash covers; `at` is milliseconds since 1970."""
    return canonical(
        {
            "v": RECORD_VERSION,
            "kind": kind,
            "server": server,
            "seq": seq,
            "previous": previous,
            "at": at,
            "data": data,
        }
    )
