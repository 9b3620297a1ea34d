"""Change one table of a TOML file, and leave its comments and the order of its keys."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from mcp_sandbox.clients.jsonc import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse(text: str) -> dict[str, Any]:
    """Return what a TOML text says.

    Raises:
        Malformed: It is no TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Malformed(f"not valid TOML: {error}") from None
    except (ValueError, RecursionError):
        raise Malformed("a value is too long or too deep to read") from None


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a table at a key path; what else stands in a table that is there already stays.

    A new one goes to the end, where it comes between no comment and what that is about.

    Raises:
        Malformed: Something on the way is no table.
    """
    document = _read(text)
    table: Any = document
    for key in path[:-1]:
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise Malformed(f"`{key}` is not a table")
    if isinstance(table, InlineTable) or path[-1] in table:
        _put(table, path[-1], value)
        return _in_line_ends_of(text, tomlkit.dumps(document))
    for key in reversed(path):
        value = {key: value}
    gap = "\n" if text.endswith("\n") or not text else "\n\n"
    return text + _in_line_ends_of(text, (gap if text else "") + tomlkit.dumps(value))


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without the table at a key path, which is there.

    Raises:
        Malformed: Comments that are not the table's would go with it.
    """
    document = _read(text)
    table: Any = document
    for key in path[:-1]:
        table = table[key]
    del table[path[-1]]
    before, written = text.replace("\r\n", "\n"), tomlkit.dumps(document)
    return _in_line_ends_of(text, _with_comments_after(before, written))


def _put(table: Any, key: str, value: Any) -> None:
    if not isinstance(value, dict):
        if table.get(key) != value:
            table[key] = value
    elif isinstance(table.get(key), dict):
        for inner, each in value.items():
            _put(table[key], inner, each)
    else:
        table[key] = value


def _read(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text.replace("\r\n", "\n"))
    except TOMLKitError as error:
        raise Malformed(f"not valid TOML: {error}") from None


def _in_line_ends_of(text: str, written: str) -> str:
    return written.replace("\n", "\r\n") if "\r\n" in text else written


def _with_comments_after(before: str, written: str) -> str:
    """Put back the comments behind a table: to tomlkit they are the table's, to a person of what follows."""
    found = _block(before, written)
    if found is None:
        if before.count("#") - written.count("#"):
            raise Malformed("comments would be lost with the entry")
        return written
    head, block, rest = found
    lines = block.splitlines(keepends=True)
    kept = len(lines)
    while kept and lines[kept - 1].lstrip(" \t").startswith(("#", "\n")):
        kept -= 1
    comments = "".join(lines[kept:]).lstrip("\n")
    if not comments and not rest and head.endswith("\n\n"):
        head = head[:-1]  # the blank line that stood before the table
    return head + comments + rest


def _block(longer: str, shorter: str) -> tuple[str, str, str] | None:
    """Return what stands before, in and after the whole lines that one text has more; None where it is no one block."""
    more, less = longer.splitlines(keepends=True), shorter.splitlines(keepends=True)
    same = next(
        (n for n, (one, other) in enumerate(zip(more, less, strict=False)) if one != other), len(less)
    )
    rest = more[same + len(more) - len(less) :]
    if len(more) <= len(less) or rest != less[same:]:
        return None
    return "".join(more[:same]), "".join(more[same : len(more) - len(rest)]), "".join(rest)
