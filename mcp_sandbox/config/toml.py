"""Read a TOML file, and know on which line each key stands."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp_sandbox.config.problems import Problem, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mcp_sandbox.errors import ConfigError

KeyPath = tuple[str, ...]

MAX_FILE_SIZE = 64 * 2**10
"""Bytes."""
MAX_LINE_LENGTH = 1024
"""Characters. One key of 30 000 dotted parts keeps tomllib busy for 16 s."""
MAX_STATEMENT_LINES = 32
MAX_DEPTH = 3
"""Parts of the longest key that means anything: `workspaces.NAME.memory`."""


@dataclass(frozen=True)
class Document:
    """A TOML file that is well formed; what its keys mean is not looked at here."""

    file: str
    table: Mapping[str, Any]
    lines: Mapping[KeyPath, int]
    text: str = field(default="", repr=False)

    def line(self, *key_path: str) -> int | None:
        """Return the line where a key stands, or else the table that it is missing from."""
        while key_path and key_path not in self.lines:
            key_path = key_path[:-1]
        return self.lines.get(key_path)

    def line_of_item(self, item: str, *key_path: str) -> int | None:
        """Return the line where a text stands in a list; that of the list where it is written in another way."""
        start = self.line(*key_path)
        for number, line in enumerate(self.text.split("\n")[start - 1 :] if start else (), start or 0):
            if number != start and line.lstrip().startswith("["):
                break  # the next table
            if not line.lstrip().startswith("#") and (f'"{item}"' in line or f"'{item}'" in line):
                return number
        return start


def read_bytes(path: Path, *, max_size: int = MAX_FILE_SIZE, follow_symlink: bool = True) -> bytes:
    """Return the content of a regular file of at most `max_size` bytes.

    Raises:
        FileNotFoundError: Nothing is there.
        ConfigError: What is there cannot be read, is no regular file, or is too large.
    """
    # O_NONBLOCK: opening a FIFO that nobody writes to would wait for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_symlink else os.O_NOFOLLOW)
    try:
        if not follow_symlink and path.is_symlink():
            raise refusal(str(path), [Problem("a symbolic link, which is not followed here")])
        descriptor = os.open(path, flags)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise refusal(str(path), [Problem("not a regular file")])
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(max_size + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        if path.is_symlink():
            raise refusal(str(path), [Problem("a symbolic link to nothing")]) from None
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise refusal(str(path), [Problem(f"cannot be read: {reason}")]) from error
    if len(content) > max_size:
        raise refusal(str(path), [Problem(f"larger than {max_size // 2**10} KiB")])
    return content


def parse(content: bytes, file: str) -> Document:
    """Return the document that `content` is.

    Raises:
        ConfigError: It is not TOML: file, line and column are named.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise refusal(file, [Problem("not valid UTF-8", line)]) from error
    text = text.replace("\r\n", "\n")
    for number, line_text in enumerate(text.split("\n"), 1):
        if len(line_text) > MAX_LINE_LENGTH:
            raise refusal(file, [Problem(f"longer than {MAX_LINE_LENGTH} characters", number)])
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(error, text, file) from error
    except (ValueError, RecursionError) as error:  # thousands of digits; thousands of brackets
        raise refusal(file, [Problem("a value is too long or too deep to read")]) from error
    return Document(file=file, table=table, lines=dict(_lines(text)), text=text)


def _not_toml(error: tomllib.TOMLDecodeError, text: str, file: str) -> ConfigError:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", str(error), re.DOTALL)
    if match is None:
        return refusal(file, [Problem("not valid TOML")])
    words, line, column = match.groups()
    if line is None:
        lines = text.rstrip("\n").split("\n")
        line, column = len(lines), len(lines[-1]) + 1
    return refusal(file, [Problem(f"column {column}: not valid TOML: {_plain(words)}", int(line))])


def _plain(words: str) -> str:
    """Return tomllib's words, safe to print, as the middle of a sentence."""
    return words[:1].lower() + words[1:].encode("unicode_escape").decode()


def _lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield each key path with the line on which it is first set, last line first.

    tomllib tells no positions, so the text, known to be valid, is read again one statement at a time. A
    statement ends with the first line that makes a valid document of what began it: no line before that can,
    for a string or an array is still open there. After an absurdly long statement, lines go untold.
    """
    found: list[tuple[KeyPath, int]] = []
    table: KeyPath = ()
    for number, statement, header in _statements(text):
        paths = list(_key_paths(statement))
        if header:
            table = paths[-1]
            paths = [table[: i + 1] for i in range(len(table))]
        else:
            paths = [(*table, *path) for path in paths]
        found += [(path, number) for path in paths]
    return reversed(found)


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Yield each statement: its first line, what it sets on its own, and whether it is a table's header."""
    lines = text.split("\n")
    start = 0
    while start < len(lines):
        for end in range(start + 1, min(start + MAX_STATEMENT_LINES, len(lines)) + 1):
            try:
                statement = tomllib.loads("\n".join(lines[start:end]))
            except (ValueError, RecursionError):
                continue
            break
        else:
            return
        if statement:
            yield start + 1, statement, lines[start].lstrip(" \t").startswith("[")
        start = end


def _key_paths(table: Mapping[str, Any], depth: int = MAX_DEPTH) -> Iterator[KeyPath]:
    for key, value in table.items():
        yield (key,)
        inner = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(inner, dict) and depth > 1:
            for path in _key_paths(inner, depth - 1):
                yield (key, *path)
