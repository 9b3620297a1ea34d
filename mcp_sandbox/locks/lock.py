"""Exactly these packages, each with the hashes of the files that may be installed: what every format comes to."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.markers import InvalidMarker, Marker
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PACKAGES = 2000

_HASH = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")


class LockUnusable(ValueError):
    """A lock does not say exactly what to install; in words that follow its name."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One package of a lock."""

    name: str
    """Canonical."""
    version: str
    hashes: tuple[str, ...]
    """`algorithm:hex` of each file that may be installed, sorted."""
    extras: tuple[str, ...] = ()
    marker: str = ""
    """Where it is wanted at all, as pip understands it; empty for everywhere."""

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        marker = f" ; {self.marker}" if self.marker else ""
        return f"{self.name}{extras}=={self.version}{marker} " + " ".join(
            f"--hash={each}" for each in self.hashes
        )


@dataclass(frozen=True, slots=True)
class Lock:
    """All packages of one lock."""

    packages: tuple[Pinned, ...]
    whole: bool
    """Whether the format promises that nothing is missing: then pip need not look for dependencies."""

    @property
    def text(self) -> str:
        """The lock as pip's requirements, in one fixed order: equal locks have equal texts."""
        return "".join(f"{package}\n" for package in self.packages)

    @property
    def count(self) -> int:
        """How many packages there are; one can have several lines, each for another platform."""
        return len({package.name for package in self.packages})

    @property
    def sha256(self) -> str:
        """Lower-case hex of the text, and of what pip is to make of it."""
        return hashlib.sha256(f"{self.whole}\n{self.text}".encode()).hexdigest()


def locked(packages: Iterable[Pinned], *, whole: bool) -> Lock:
    """Return the lock of these packages.

    Raises:
        LockUnusable: There are none, or too many.
    """
    ordered = sorted(packages, key=str)
    if not ordered:
        raise LockUnusable("names no package")
    if len(ordered) > MAX_PACKAGES:
        raise LockUnusable(f"names {len(ordered):,} packages; at most {MAX_PACKAGES:,} are taken")
    return Lock(tuple(ordered), whole)


def pinned(
    name: str, version: str, hashes: Iterable[str], *, extras: Iterable[str] = (), marker: str = ""
) -> Pinned:
    """Return one package, all that is said of it in the one form that pip reads as nothing else.

    Raises:
        LockUnusable: It has no hash that pip can check, or is no package.
    """
    usable = sorted({each.lower() for each in hashes if _HASH.fullmatch(each.lower())})
    if not usable:
        shown = visible(name, limit=60)
        raise LockUnusable(f"has no hash for {shown}, so what comes from the index could be anything")
    try:
        return Pinned(
            name=canonicalize_name(name, validate=True),
            version=str(Version(version)),
            hashes=tuple(usable),
            extras=tuple(sorted(canonicalize_name(extra, validate=True) for extra in extras)),
            marker=str(Marker(marker)) if marker else "",
        )
    except (InvalidName, InvalidVersion, InvalidMarker):
        raise LockUnusable(
            f"says of {visible(name, limit=60)} what is no name, version or marker of a package"
        ) from None
