"""Programs for the sandbox to run; what each should do is what `python3 main.py` does with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Case:
    """One program, as text: the only form in which a client can send one."""

    name: str
    path: Path
    source: str

    @property
    def topic(self) -> str:
        """The first word of the name."""
        return self.name.partition("_")[0]


def _load(path: Path) -> Case:
    # Not read_text: it would turn CR and CRLF, which are the point of some of them, into LF.
    return Case(path.stem, path, path.read_bytes().decode("utf-8"))


CASES = tuple(_load(path) for path in sorted(_FOLDER.glob("*.py")) if path != Path(__file__))
