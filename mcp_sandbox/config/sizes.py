"""Sizes as people write them ("512MiB") and as the kernel counts them (bytes)."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([A-Za-z]*)")


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
    if unit.lower() not in _UNITS:
        # Docker reads "512m" as 1024-based, others as 1000-based: a limit must mean one thing.
        raise ValueError(
            'must end in one of KiB, MiB, GiB, TiB (1024-based) or kB, MB, GB, TB, such as "512MiB"'
        )
    size_in_bytes = Decimal(number) * _UNITS[unit.lower()]
    if size_in_bytes != int(size_in_bytes):
        raise ValueError("must come to whole bytes")
    return int(size_in_bytes)


def format_size(size: int) -> str:
    """Write a size of so many bytes in the largest unit that keeps it exact; `parse_size` reads it back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit.lower()] == 0:
            return f"{size // _UNITS[unit.lower()]}{unit}"
    return f"{size}B"
