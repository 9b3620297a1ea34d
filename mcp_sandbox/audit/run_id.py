"""Names of runs: ordered by time, 13 letters, any unambiguous prefix will do.

A name is a 63-bit number (42 bits of milliseconds since 1970, 21 random bits) in Crockford's base 32, so the
number is the row, its order is the order of the list, and a prefix or a time is a range of rows.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
LENGTH = 13
RANDOM_BITS = 21
LARGEST = (1 << 63) - 1

_LOOKALIKES = str.maketrans({"o": "0", "i": "1", "l": "1"})
"""What people type for a letter that the alphabet leaves out."""


def name_of(number: int) -> str:
    """Return the run's name."""
    return "".join(ALPHABET[(number >> shift) & 31] for shift in range(5 * (LENGTH - 1), -1, -5))


def range_of(prefix: str) -> tuple[int, int] | None:
    """Return the first and last number whose name starts with `prefix`, or None where no name can."""
    typed = prefix.lower().translate(_LOOKALIKES)
    if not 0 < len(typed) <= LENGTH or any(letter not in ALPHABET for letter in typed):
        return None
    first = last = 0
    for letter in typed.ljust(LENGTH):
        digit = ALPHABET.find(letter)
        first = first << 5 | max(digit, 0)
        last = last << 5 | (digit if digit >= 0 else 31)
    return (first, min(last, LARGEST)) if first <= LARGEST else None


def first_at(milliseconds: int) -> int:
    """Return the smallest number that a run opened at this time since 1970 can have."""
    return min(max(milliseconds, 0) << RANDOM_BITS, LARGEST)


class RunIds:
    """Numbers for new runs, each larger than the one before it, also when the clock is set back."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last = 0

    def next(self) -> int:
        """Return a number that this object has not returned before."""
        number = first_at(int(self._clock() * 1000)) | secrets.randbits(RANDOM_BITS)
        self._last = min(max(number, self._last + 1), LARGEST)
        return self._last
