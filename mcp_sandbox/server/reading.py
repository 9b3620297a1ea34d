"""Files of runs, on the way into a call and out of the record."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from mcp_sandbox.artifacts import mime_type
from mcp_sandbox.capture import as_on_a_screen, clean, partial_character, unfinished
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.model import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp_sandbox.audit.store import Recorder

_STREAMS = {"stdout.txt": "stdout", "stderr.txt": "stderr"}
_LOOKED_AT = 8192
MAX_INPUTS = 100
"""Files of earlier runs that one call may take."""
_NO_SUCH_FILE = "The result of that run names its files; stdout.txt and stderr.txt are its whole output."


class ArtifactSlice(Value):
    """A part of a file."""

    run_id: str
    path: str
    size: int
    """Bytes of the whole file."""
    mime_type: str
    offset: int
    """Byte that the text starts at."""
    next_offset: int | None
    """Byte to go on at; null at the end, and where the file is not text."""
    text: str
    """Empty where the file is not text."""


async def read_slice(record: Recorder, run_id: str, path: str, offset: int, limit: int) -> ArtifactSlice:
    """Return a part of a run's file as text.

    Raises:
        RequestRefused: There is no such run or file.
        AuditError: It cannot be read.
    """
    size = await _size(record, run_id, path)
    beginning = await _content(record, run_id, path, 0, _LOOKED_AT)
    is_text = b"\0" not in beginning and not _is_media(mime_type(path))
    part = await _content(record, run_id, path, min(offset, size), limit) if is_text else b""
    if is_text and offset + len(part) < size:
        cut = unfinished(part) if path in _STREAMS else partial_character(part)
        part = part[: len(part) - cut] or part
    return ArtifactSlice(
        run_id=run_id,
        path=path,
        size=size,
        mime_type=mime_type(path),
        offset=offset,
        next_offset=offset + len(part) if is_text and offset + len(part) < size else None,
        text=clean((as_on_a_screen(part) if path in _STREAMS else part).decode("utf-8", "replace")),
    )


def slice_as_text(found: ArtifactSlice) -> str:
    """Return a part of a file as a person would read it."""
    if not found.text and found.next_offset is None:
        return f"{found.path}: {found.mime_type}, {found.size:,} bytes, nothing to show as text"
    more = "" if found.next_offset is None else f", more from offset {found.next_offset}"
    return f"{found.path}, {found.size:,} bytes, from {found.offset}{more}\n{found.text}"


async def earlier_files(record: Recorder, inputs: Sequence[str], limit: int) -> tuple[tuple[str, bytes], ...]:
    """Return path and content of files that earlier runs left, each named as "RUN_ID/PATH"; so many bytes at most.

    Raises:
        RequestRefused: There is no such run or file.
        AuditError: It cannot be read.
    """
    if len(inputs) > MAX_INPUTS:
        raise RequestRefused(
            f"`inputs` has {len(inputs)} entries; at most {MAX_INPUTS} are taken.",
            next_step="Have the earlier run make one archive of them.",
        )
    named = [(run_id, path) for run_id, _, path in (name.partition("/") for name in inputs)]
    size = sum([await _size(record, run_id, path) for run_id, path in named])
    if size > limit:  # before any is read: a hundred large ones would not fit into memory
        raise RequestRefused(
            f"`inputs` come to {size:,} bytes; at most {limit:,} are taken.",
            next_step="Have the earlier run leave less, or ask the person to raise `input_limit`.",
        )
    return tuple([(path, await _content(record, run_id, path)) for run_id, path in named])


def given_files(files: Mapping[str, str]) -> tuple[tuple[str, bytes], ...]:
    """Return path and content of files that a call brings along as text, or as base64 in a data URL.

    Raises:
        RequestRefused: A content is no text, or no base64.
    """
    return tuple((path, _decoded(path, content)) for path, content in files.items())


def _decoded(path: str, content: str) -> bytes:
    head, comma, _ = content[:200].partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return encoded("files", content)
    try:
        return base64.b64decode(content[len(head) + 1 :], validate=True)
    except binascii.Error:
        raise RequestRefused(f"the base64 of the file {clean(path)[:100]} is broken.") from None


def encoded(name: str, text: str) -> bytes:
    """Return text as UTF-8.

    Raises:
        RequestRefused: It holds a lone surrogate.
    """
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestRefused(f"`{name}` holds a lone surrogate, which is no text.") from None


async def _content(
    record: Recorder, run_id: str, path: str, offset: int = 0, limit: int | None = None
) -> bytes:
    data = await record.content(run_id, _role(path), offset, limit)
    if data is None:
        raise _no_such(path)
    return data


async def _size(record: Recorder, run_id: str, path: str) -> int:
    await record.open()  # before the first run there is none to read
    size = await record.size(run_id, _role(path))
    if size is None:
        raise _no_such(path)
    return size


def _role(path: str) -> str:
    return _STREAMS.get(path, f"artifact:{path}")


def _no_such(path: str) -> RequestRefused:
    return RequestRefused(f"that run left no file {clean(path)[:100]}.", next_step=_NO_SUCH_FILE)


def _is_media(kind: str) -> bool:
    return kind.startswith(("image/", "audio/", "video/")) and kind != "image/svg+xml"
