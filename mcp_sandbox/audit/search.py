"""Programs by a part of their text: an index of triples of characters says which may hold it, their text which do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.audit import rows
from mcp_sandbox.errors import RequestRefused

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

SHORTEST = 3
"""Characters; the index is of triples."""

CODE_FITS = (
    "EXISTS (SELECT 1 FROM contents WHERE contents.run = {} AND contents.role = 'code'"
    " AND CAST(contents.body AS TEXT) LIKE ? ESCAPE '\\')"
)
"""Condition on the run with a number: its program has the text that `Sought.like` is of."""

_INTERSECTED = 4
"""Triples that are looked up, the rarest. One that is in nearly every program takes the index through all runs, 15 ms
of a million, and leaves out hardly any: the forty of two ordinary lines took half a second, their rarest four 23 ms."""

_WEIGHED = 100
"""Triples of a long text that are weighed, evenly spread over it, so that this takes milliseconds too."""

_SAMPLED = 200
"""Programs, spread over the whole record, that show which triples are rare."""

_SAMPLED_BYTES = 16 * 1024
"""Size of the largest program that is a sample."""


class Sought:
    """A part of a program; upper and lower case are alike.

    Raises:
        RequestRefused: It is too short.
    """

    def __init__(self, text: str) -> None:
        # Past a NUL neither the index nor LIKE sees anything.
        self._text = rows.text(text).partition("\0")[0]
        if len(self._text) < SHORTEST:
            raise RequestRefused(
                f"A search needs {SHORTEST} characters or more.", next_step="Give more of the code."
            )

    @property
    def like(self) -> str:
        """The pattern of LIKE for programs that hold it."""
        escaped = self._text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return f"%{escaped}%"

    def match(self, connection: sqlite3.Connection) -> str:
        """Return the index query for programs that may hold it."""
        triples = list(dict.fromkeys(self._text[start : start + 3] for start in range(len(self._text) - 2)))
        some = triples[:: len(triples) // _WEIGHED + 1]
        return " AND ".join(
            '"' + triple.replace('"', '""') + '"' for triple in _rarest(some, _sample(connection))
        )


def _rarest(triples: Sequence[str], programs: Sequence[str]) -> Sequence[str]:
    """Return the few triples that the fewest of some programs have."""
    having = {triple: sum(triple.lower() in program for program in programs) for triple in triples}
    return sorted(triples, key=lambda triple: having[triple])[:_INTERSECTED]


def _sample(connection: sqlite3.Connection) -> Sequence[str]:
    """Return programs in small letters, evenly spread over the time of the record."""
    first, last = connection.execute(
        "SELECT (SELECT min(id) FROM runs), (SELECT max(id) FROM runs)"
    ).fetchone()
    programs = []
    for step in range(_SAMPLED):
        found = connection.execute(
            "SELECT CAST(body AS TEXT) FROM contents WHERE run >= ? AND role = 'code' AND size <= ? LIMIT 1",
            (first + (last - first) * step // _SAMPLED, _SAMPLED_BYTES),
        ).fetchone()
        if found:
            programs.append(found[0].lower())
    return programs
