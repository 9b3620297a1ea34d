"""Change one table of a TOML file, and leave its comments and the order of its keys."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from mcp_sandbox.clients.jsonc import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONE_LINE_FEED = re.compile(r"(?<!\r)\n")


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
    if path[-1] in table:
        head, block, rest = _parts(text, path) or ("", text, "")
        return head + _changed(block, path, value) + rest
    if isinstance(table, InlineTable):
        return _changed(text, path, value)
    for key in reversed(path):
        value = {key: value}
    gap = "\n" if text.endswith("\n") or not text else "\n\n"
    return text + _in_line_ends_of(text, (gap if text else "") + tomlkit.dumps(value))


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without the table at a key path, which is there.

    Raises:
        Malformed: Comments that are not the table's would go with it.
    """
    parts = _parts(text, path)
    if parts is None:
        left = _without(text, path)
        if _comment_lines(left) < _comment_lines(text):
            raise Malformed("comments would be lost with the entry")
        return left
    head, _, rest = parts
    if head.endswith(("\n\n", "\r\n\r\n")) or not head:  # the blank line that stands before a table
        if not rest.strip():
            return head.removesuffix("\n").removesuffix("\r")
        rest = rest.removeprefix("\r").removeprefix("\n")
    return head + rest


def _parts(text: str, path: Sequence[str]) -> tuple[str, str, str] | None:
    """Return what stands before a table, the table, and what stands after it; None where it is no one block of lines.

    Comments behind the table are of what follows, as people write them; to tomlkit they are the table's.
    """
    more, less = text.splitlines(keepends=True), _without(text, path).splitlines(keepends=True)
    begin = next(
        (n for n, (one, other) in enumerate(zip(more, less, strict=False)) if one != other), len(less)
    )
    end = begin + len(more) - len(less)
    if more[end:] != less[begin:]:
        return None
    while end > begin and more[end - 1].lstrip(" \t").startswith(("#", "\n", "\r\n")):
        end -= 1
    return "".join(more[:begin]), "".join(more[begin:end]), "".join(more[end:])


def _without(text: str, path: Sequence[str]) -> str:
    document = _read(text)
    table: Any = document
    for key in path[:-1]:
        table = table[key]
    del table[path[-1]]
    return tomlkit.dumps(document)


def _changed(text: str, path: Sequence[str], value: Any) -> str:
    document = _read(text)
    table: Any = document
    for key in path[:-1]:
        table = table[key]
    _put(table, path[-1], value)
    return _in_line_ends_of(text, tomlkit.dumps(document))


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
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise Malformed(f"not valid TOML: {error}") from None


def _in_line_ends_of(text: str, written: str) -> str:
    """Return what was written with the line ends of a text, where they are all of one kind."""
    if "\r\n" in text and not _LONE_LINE_FEED.search(text):
        return _LONE_LINE_FEED.sub("\r\n", written)
    return written


def _comment_lines(text: str) -> int:
    return sum(line.lstrip(" \t").startswith("#") for line in text.splitlines())
