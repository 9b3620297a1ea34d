"""Sizes as people write them ("512MiB") and as the kernel counts them (bytes)."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "TiB": 2**40,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
_FACTORS = {unit.lower(): factor for unit, factor in _UNITS.items()}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,6})?) ?([A-Za-z]*)")


def parse_size(size: object) -> int:
    """Return a size in bytes; a bare number counts bytes.

    Raises:
        ValueError: It is no size, in words for the person who wrote it.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is None:
        raise ValueError('must be a size with its unit, in quotes, such as "512MiB"')
    number, unit = match.groups()
    if unit.lower() not in _FACTORS:
        # Docker reads "512m" as 1024-based, others as 1000-based: a limit must mean one thing.
        raise ValueError("must end in KiB, MiB, GiB or TiB (1024-based), or in kB, MB, GB or TB")
    size_in_bytes = Decimal(number) * _FACTORS[unit.lower()]
    if size_in_bytes != int(size_in_bytes):
        raise ValueError("must come to whole bytes")
    return int(size_in_bytes)


def format_size(size: int) -> str:
    """Write a size of so many bytes, exactly, in the unit that makes it shortest."""
    exact = [f"{size // factor}{unit}" for unit, factor in _UNITS.items() if size % factor == 0]
    return min(exact, key=len) if size else "0B"
