"""`uv.lock`: what the project itself needs, for every platform at once, without its extras and groups."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from mcp_sandbox.locks.lock import Lock, LockUnusable, Pinned, locked, pinned
from mcp_sandbox.locks.pylock import without_wheels
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Table = Mapping[str, Any]
    Conditions = frozenset[str]
    Extras = tuple[str, ...]

MAX_WAYS = 64
"""Ways to one package whose conditions differ: more would make a marker that nobody can follow."""


def read_uv_lock(table: Table, *, sources: bool) -> Lock:
    """Return the lock that a `uv.lock` is.

    Raises:
        LockUnusable: It is none, or something that is needed does not come from an index.
    """
    try:
        entries = [_Entry(package) for package in table["package"]]
        ways = _ways(entries)
        return locked(
            (
                _pinned(entry, ways[entry], sources=sources)
                for entry in entries
                if entry in ways and not entry.own
            ),
            whole=True,
        )
    except (KeyError, TypeError, AttributeError):
        raise LockUnusable("is no uv.lock of a form that is known here") from None


class _Entry:
    """One `[[package]]`."""

    def __init__(self, package: Table) -> None:
        self.package = package
        self.name: str = package["name"]
        self.version: str = package.get("version", "")
        self.source: Table = package["source"]
        self.own = "virtual" in self.source or "editable" in self.source
        """Whether it is the project itself, or one beside it in the same workspace: nothing is installed of those."""

    def edges(self, extras: Iterable[str]) -> Iterator[Table]:
        """Yield what it depends on, with these of its extras."""
        yield from self.package.get("dependencies", ())
        for extra in extras:
            yield from self.package.get("optional-dependencies", {}).get(extra, ())

    def is_meant_by(self, edge: Table) -> bool:
        """Tell whether a dependency means this one: it says more than a name where there are several."""
        return bool(
            edge["name"] == self.name
            and edge.get("version", self.version) == self.version
            and edge.get("source", self.source) == self.source
        )


def _ways(entries: list[_Entry]) -> dict[_Entry, set[Conditions]]:
    """Return for all that the project needs the conditions under which it does: any one of these sets of markers."""
    roots = [entry for entry in entries if "." in (entry.source.get("virtual"), entry.source.get("editable"))]
    roots = roots or [entry for entry in entries if entry.own]
    if not roots:
        raise LockUnusable("names no project that its packages are for")
    named: dict[str, list[_Entry]] = {}
    for entry in entries:
        named.setdefault(entry.name, []).append(entry)
    found: dict[_Entry, set[Conditions]] = {}
    ways: dict[tuple[_Entry, Extras], set[Conditions]] = {}
    waiting: deque[tuple[_Entry, Extras, Conditions]] = deque((root, (), frozenset()) for root in roots)
    while waiting:
        entry, extras, conditions = waiting.popleft()
        if not _is_new(ways.setdefault((entry, extras), set()), conditions, entry.name):
            continue
        _is_new(found.setdefault(entry, set()), conditions, entry.name)
        for edge in entry.edges(extras):
            further = conditions | {edge["marker"]} if edge.get("marker") else conditions
            inner = tuple(sorted(edge.get("extra", ())))
            waiting += [
                (other, inner, further) for other in named.get(edge["name"], ()) if other.is_meant_by(edge)
            ]
    return found


def _is_new(ways: set[Conditions], conditions: Conditions, name: str) -> bool:
    """Add a way unless whoever takes it could take one of these, and tell whether it was added."""
    if any(known <= conditions for known in ways):
        return False
    ways -= {known for known in ways if conditions < known}
    ways.add(conditions)
    if len(ways) > MAX_WAYS:
        raise LockUnusable(
            f"needs {visible(name, limit=60)} under too many conditions; `uv export --format pylock.toml` makes a lock "
            "that is simpler"
        )
    return True


def _pinned(entry: _Entry, ways: set[Conditions], *, sources: bool) -> Pinned:
    if "registry" not in entry.source:
        raise LockUnusable(
            f"takes {visible(entry.name, limit=60)} from a folder, an archive or a repository; only packages of an "
            "index can be installed"
        )
    files = [*entry.package.get("wheels", ())]
    if sources and "sdist" in entry.package:
        files.append(entry.package["sdist"])
    if not files:
        raise LockUnusable(without_wheels(entry.name))
    return pinned(entry.name, entry.version, [file.get("hash", "") for file in files], marker=_marker(ways))


def _marker(ways: set[Conditions]) -> str:
    if frozenset() in ways:
        return ""
    return " or ".join(
        sorted(
            "(" + " and ".join(f"({marker})" for marker in sorted(conditions)) + ")" for conditions in ways
        )
    )
