"""`pylock.toml` (PEP 751), read by the library of the standard's own authors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mcp_sandbox.locks.lock import Lock, LockUnusable, locked, pinned
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from packaging.pylock import Package

_OF_A_SET = re.compile(
    r"""(["'])(?P<name>[\w.-]+)\1\s+(?P<not>not\s+)?in\s+(?P<set>extras|dependency_groups)"""
)
_ALWAYS, _NEVER = 'python_version >= "0"', 'python_version < "0"'


def read_pylock(table: Mapping[str, Any], *, sources: bool) -> Lock:
    """Return the lock that a `pylock.toml` is, without extras and with its default groups.

    Raises:
        LockUnusable: It is none, or something in it does not come from an index.
    """
    from packaging.pylock import Pylock, PylockValidationError

    try:
        lock = Pylock.from_dict(table)
    except PylockValidationError as error:
        raise LockUnusable(f"is no valid pylock.toml: {visible(str(error), limit=200)}") from None
    groups = lock.default_groups or ()
    return locked(
        (
            pinned(
                package.name,
                _version(package),
                _hashes(package, sources=sources),
                marker=_marker(str(package.marker or ""), groups),
            )
            for package in lock.packages
        ),
        whole=True,
    )


def _version(package: Package) -> str:
    if package.vcs or package.directory or package.archive or package.version is None:
        raise LockUnusable(
            f"takes {visible(package.name, limit=60)} from a folder, an archive or a repository; only packages of an "
            "index can be installed"
        )
    return str(package.version)


def _hashes(package: Package, *, sources: bool) -> Iterator[str]:
    files = [*(package.wheels or ()), *([package.sdist] if sources and package.sdist else ())]
    if not files:
        raise LockUnusable(without_wheels(package.name))
    for file in files:
        yield from (f"{algorithm}:{digest}" for algorithm, digest in file.hashes.items())


def without_wheels(name: str) -> str:
    """Say that a package would have to be built."""
    return (
        f"has no wheel of {visible(name, limit=60)}, only its source, and to build that runs code of its author's "
        '(`source_builds = "allow"` lets it, in the sandbox that installs)'
    )


def _marker(marker: str, groups: Sequence[str]) -> str:
    """Return a marker that pip understands outside of such a lock: which set is wanted is settled here."""

    def settled(match: re.Match[str]) -> str:
        wanted = match["set"] == "dependency_groups" and match["name"] in groups
        return _ALWAYS if wanted != bool(match["not"]) else _NEVER

    return _OF_A_SET.sub(settled, marker)
