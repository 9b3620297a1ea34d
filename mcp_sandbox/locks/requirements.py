"""pip's requirements with hashes, as `pip-compile --generate-hashes` and `uv pip compile --generate-hashes` write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from mcp_sandbox.locks.lock import Lock, LockUnusable, Pinned, locked, pinned
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMENT = re.compile(r"(^|\s)#.*$")
_HASHES = re.compile(r"(?P<requirement>.*?)(?P<hashes>(\s+--hash[=\s]\s*\S+)+)\s*")
_HASH = re.compile(r"--hash[=\s]\s*(\S+)")


def read_requirements(text: str, *, whole: bool = False) -> Lock:
    """Return the lock that requirements with hashes are; `whole` where nothing can be missing from them.

    Raises:
        LockUnusable: They hold anything else, or a package without version or hash.
    """
    return locked((_pinned(number, line) for number, line in _lines(text)), whole=whole)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each requirement, joined where it goes on over several lines, with the number of its first line."""
    begun, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        first = first or number
        line = _COMMENT.sub("", raw)
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        if (begun + line).strip():
            yield first, (begun + line).strip()
        begun, first = "", 0
    if begun.strip():
        yield first, begun.strip()


def _pinned(number: int, line: str) -> Pinned:
    if line.startswith("-"):
        option = visible(re.split(r"[=\s]", line)[0], limit=40)
        raise LockUnusable(
            f"has the option {option} in line {number}, and only packages are taken from it: indexes stand in the "
            "configuration"
        )
    match = _HASHES.fullmatch(line)
    if match is None:
        name = visible(re.split(r"[=<>~!;\s\[]", line)[0], limit=60)
        raise LockUnusable(f"has no hash for {name} (line {number}), so what is installed could be anything")
    try:
        requirement = Requirement(match["requirement"])
    except InvalidRequirement:
        raise LockUnusable(f"has no package that pip would understand in line {number}") from None
    version = exact_version(requirement)
    if version is None:
        raise LockUnusable(
            f"names {visible(requirement.name, limit=60)} without an exact version, as in name==1.2.3 (line {number})"
        )
    return pinned(
        requirement.name,
        version,
        _HASH.findall(match["hashes"]),
        extras=requirement.extras,
        marker=str(requirement.marker or ""),
    )


def exact_version(requirement: Requirement) -> str | None:
    """Return the one version that a requirement allows; None where that is not one."""
    specifiers = list(requirement.specifier)
    if requirement.url or len(specifiers) != 1 or specifiers[0].operator != "==":
        return None
    version = specifiers[0].version
    return None if version.endswith("*") else version
