"""What a record says, and the form in which its hash covers it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path  # noqa: TC003 - `Content` is made of it
from typing import Any, Literal, NamedTuple

from pydantic import Field

from mcp_sandbox.model import Client, Language, Network, Status, Value

RECORD_VERSION = 1

_KEYS = {"v", "kind", "server", "seq", "previous", "at", "data"}

Origin = Literal["mcp", "cli", "replay", "shell"]

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
    network: Network | None = None
    """What it asked to reach; None where it did not say."""
    client: Client = Client()
    session_id: str = ""
    workspace: str = ""
    policy: Mapping[str, object] = Field(default_factory=dict)
    """The effective policy, as JSON can say it."""
    stdin: bytes = b""
    given: tuple[tuple[str, bytes], ...] = ()
    """Paths and contents of the files that the call brought along; `files` has their hashes."""
    stdin_sha256: str = ""
    """Lower-case hex; empty where the run has no standard input."""
    files: tuple[InputFile, ...] = ()
    origin: Origin = "mcp"
    environment: tuple[str, ...] = ()
    """Names of variables, never their values."""
    replay_of: str = ""
    """Run that this one repeats; empty where it repeats none."""


class Caller(Value):
    """Who made a call that was too malformed to be an opening."""

    client: Client = Client()
    workspace: str = ""
    origin: Origin = "mcp"


class Content(NamedTuple):
    """Bytes that a record names by their hash, and that are kept beside it."""

    role: str
    """What they are to the run: code, stdout, stderr, ..."""
    data: bytes
    sha256: str
    file: Path | None = None
    """Where they are on disk instead of in `data`, in the store's staging folder."""
    file_bytes: int = 0

    @classmethod
    def of(cls, role: str, data: bytes) -> Content:
        """Return the content with its hash."""
        return cls(role, data, sha256(data))

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) if self.file is None else self.file_bytes


def canonical(value: object) -> str:
    """Return `value` as JSON in one fixed form, all ASCII; what JSON has no form for becomes its `repr`."""
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def _plain(value: object) -> object:
    """Return `value` in JSON's own types: a NaN in a call must not keep that call off the record."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else repr(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item) for item in value]
    return repr(value)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` as lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def as_bytes(text: str) -> bytes:
    """Return the UTF-8 of `text`, lone surrogates kept: the record holds exactly what was sent."""
    return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    """Undo `as_bytes`; bytes that never were text become U+FFFD."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def opening_data(opening: Opening, policy: str) -> dict[str, object]:
    """Return what the opening record says, `policy` being the canonical form of the opening's policy.

    Code and policy are named by their hash alone.
    """
    return {
        **opening.model_dump(mode="json", exclude={"code", "policy", "stdin", "given"}),
        "policy_sha256": sha256(policy.encode("ascii")),
    }


def contents_data(contents: Sequence[Content]) -> dict[str, object]:
    """Return what a record says of its contents."""
    return {content.role: {"sha256": content.sha256, "bytes": content.size} for content in contents}


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


def read_body(body: str) -> dict[str, Any]:
    """Return what a record says.

    Raises:
        ValueError: It is not a record.
    """
    record = json.loads(body)
    if not isinstance(record, dict) or not record.keys() >= _KEYS or not isinstance(record["data"], dict):
        raise ValueError("not a record")
    return record
