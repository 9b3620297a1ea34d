"""Change one member of an object in JSON with comments, and not a byte around it.

What is valid is for the standard library's parser to say: comments and trailing commas are blanked out first, so that
every offset stays what it was. Offsets are in characters.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|[\[{{,]\s*,|,(?=\s*[\]}}])")
"""The second part is what a comma may not follow; left as it is, it is an error."""
_REST_OF_LINE = re.compile(r"(?:[ \t]|/\*[^\n\r]*?\*/)*(?://[^\n\r]*)?")
_NOT_BLANK = re.compile(r"[^\s]")


class Malformed(ValueError):
    """It is no JSON, or not what can be changed: words for the middle of a sentence, and the line, from 1."""

    def __init__(self, words: str, line: int | None = None) -> None:
        super().__init__(words)
        self.words, self.line = words, line


def parse(text: str, *, comments: bool = True) -> dict[str, Any]:
    """Return the object that a text is; an empty text is an empty object.

    Args:
        text: The text.
        comments: Whether comments and trailing commas may stand in it.

    Raises:
        Malformed: It is no object, or not JSON.
    """
    if not text.strip():
        return {}
    return _loads(_blank(text)[1] if comments else text)


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with `value` at a key path; objects on the way are made where they are missing.

    An object that is there already is changed key by key: what else stands in it stays.

    Raises:
        Malformed: The text is no object, or something on the way is none.
    """
    if not text.strip():
        text = "{}\n"
    found = _descend(text, path)
    member = found.member
    if member is None:
        for key in reversed(path[found.depth + 1 :]):
            value = {key: value}
        return _insert(found, path[found.depth], value)
    if isinstance(value, dict) and isinstance(member.value, dict):
        for key, inner in value.items():
            text = put(text, [*path, key], inner)
        return text
    if member.value == value:
        return text
    written = _written(value, _indent_at(text, member.key), text)
    return text[: member.start] + written + text[member.end :]


def drop(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a key path, which is there.

    Raises:
        Malformed: It is not there.
    """
    found = _descend(text, path)
    if found.member is None:
        raise Malformed(f"`{path[-1]}` is not there")
    return _remove(found, found.member)


# Finding


@dataclass(frozen=True)
class _Member:
    key: int
    """Where its key begins."""
    name: str
    start: int
    """Where its value begins."""
    end: int
    """One past its value."""
    value: Any


@dataclass(frozen=True)
class _Object:
    start: int
    """Where its brace stands."""
    end: int
    """Where its closing brace stands."""
    members: tuple[_Member, ...]


@dataclass(frozen=True)
class _Found:
    text: str
    bare: str
    """The text without its comments: between a value and what comes next stands a comma, or nothing."""
    object: _Object
    """The innermost object on the way that is there."""
    depth: int
    """How many keys lead to it."""
    member: _Member | None
    """What the whole path leads to; None where it ends before."""


def _blank(text: str) -> tuple[str, str]:
    """Return the text with its comments blanked out, and with its trailing commas too."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else _NOT_BLANK.sub(" ", match[0])

    bare = _COMMENT.sub(blank, text)
    return bare, _TRAILING_COMMA.sub(lambda match: " " if match[0] == "," else match[0], bare)


def _loads(plain: str) -> dict[str, Any]:
    def constant(name: str) -> NoReturn:
        raise Malformed(f"{name} is no JSON")

    try:
        value = json.loads(plain, parse_constant=constant)
    except json.JSONDecodeError as error:
        words = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise Malformed(f"column {error.colno}: not valid JSON: {words}", error.lineno) from None
    except Malformed:
        raise
    except (ValueError, RecursionError):  # thousands of digits; thousands of brackets
        raise Malformed("a value is too long or too deep to read") from None
    if not isinstance(value, dict):
        raise Malformed("not an object in braces")
    return value


def _descend(text: str, path: Sequence[str]) -> _Found:
    bare, plain = _blank(text)
    _loads(plain)
    start = plain.index("{")
    for depth, key in enumerate(path):
        here = _object(plain, start)
        named = [member for member in here.members if member.name == key]
        if len(named) > 1:
            raise Malformed(f"`{key}` is there twice", text.count("\n", 0, named[1].key) + 1)
        if not named:
            return _Found(text, bare, here, depth, None)
        if depth == len(path) - 1:
            return _Found(text, bare, here, depth, named[0])
        start = named[0].start
        if plain[start] != "{":
            raise Malformed(f"`{key}` is not an object in braces", text.count("\n", 0, start) + 1)
    raise ValueError("a path has at least one key")


def _object(plain: str, start: int) -> _Object:
    """Read the object whose brace stands at `start`, in a text that is known to be valid."""
    decode = json.JSONDecoder().raw_decode
    members: list[_Member] = []
    at = _next(plain, start + 1)
    while plain[at] != "}":
        name, after = decode(plain, at)
        begin = _next(plain, plain.index(":", after) + 1)
        value, end = decode(plain, begin)
        members.append(_Member(at, name, begin, end, value))
        at = _next(plain, end)
        if plain[at] == ",":
            at = _next(plain, at + 1)
    return _Object(start, at, tuple(members))


def _next(plain: str, at: int) -> int:
    """Return where the next character is that is no white space; in a valid object there is one."""
    match = _NOT_BLANK.search(plain, at)
    return match.start() if match else len(plain)


# Changing


def _insert(found: _Found, name: str, value: Any) -> str:
    text, into = found.text, found.object
    if not into.members:
        outer = _indent_at(text, into.start)
        indent = outer + _unit(text)
        at = _end_of_line(text, into.start + 1)
        rest = text[at : into.end]
        if "\n" not in rest:
            rest = _newline(text) + outer
        member = f"{_newline(text)}{indent}{_one_line(name)}: {_written(value, indent, text)}"
        return text[:at] + member + rest + text[into.end :]
    last = into.members[-1]
    comma = found.bare.find(",", last.end, into.end)
    if "\n" in text[into.start : into.end]:
        indent = _indent_at(text, last.key)
        member = f"{_newline(text)}{indent}{_one_line(name)}: {_written(value, indent, text)}"
    else:
        member = f" {_one_line(name)}: {_one_line(value)}"
    if comma < 0:
        text, after = f"{text[: last.end]},{text[last.end :]}", last.end + 1
    else:
        member, after = f"{member},", comma + 1
    # A comment on the same line is about what stands there.
    at = _end_of_line(text, after)
    return text[:at] + member + text[at:]


def _remove(found: _Found, member: _Member) -> str:
    text, members = found.text, found.object.members
    index = members.index(member)
    is_last = index == len(members) - 1
    comma = found.bare.find(",", member.end, found.object.end if is_last else members[index + 1].key)
    end = member.end if comma < 0 else comma + 1
    start = _beginning(text, member.key, end)
    if (
        len(members) == 1
        and not text[found.object.start + 1 : start].strip()
        and not text[end : found.object.end].strip()
    ):
        return text[: found.object.start + 1] + text[found.object.end :]
    if is_last and index and comma < 0:
        orphan = found.bare.index(",", members[index - 1].end)
        return text[:orphan] + text[orphan + 1 : start] + text[end:]
    return text[:start] + text[end:]


def _beginning(text: str, key: int, end: int) -> int:
    """Return where to cut before a member: its indentation goes with it, its line too where nothing else is on it."""
    before = text[:key].rstrip(" \t")
    rest = text[end:].lstrip(" \t")
    if before.endswith("\n") and rest.startswith(("\n", "\r\n")):
        return len(before.removesuffix("\n").removesuffix("\r"))
    return len(before) if not before.endswith("\n") else key


# Writing


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _written(value: Any, indent: str, text: str) -> str:
    """Return a value as it is written in a text, at an indentation."""
    return json.dumps(value, ensure_ascii=False, indent=_unit(text)).replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Return what one level is indented by: as much as the first member that has a line to itself."""
    match = re.search(r'\n([ \t]+)"', text)
    return match[1] if match else "  "


def _indent_at(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _end_of_line(text: str, at: int) -> int:
    """Return where a line ends for what stands on it, comments included; white space at its end is left out."""
    match = _REST_OF_LINE.match(text, at)
    return at + len(match[0].rstrip()) if match else at
