"""One run's egress decisions on their way into its closing record: on disk at once, whoever dies before that one is.

Above: `executor`, which adds them as they are made, and `journal`, which closes the runs of dead servers.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from mcp_sandbox.audit.record import canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_sandbox.audit.store import Entry
    from mcp_sandbox.egress.record import EgressRecord

FILE = "egress"
"""Its name in the folder that the store stages a run's files in, where these are numbers."""


class ConnectionLog:
    """Takes decisions as they are made, redacted."""

    def __init__(self, entry: Entry, staging: Path | None, redact: Callable[[object], object]) -> None:
        self._entry = entry
        self._staging = staging
        self._redact = redact
        self._made: list[object] = []

    def add(self, made: EgressRecord) -> None:
        """Put a decision where neither a cancelled run nor a dead server can lose it.

        Raises:
            OSError: It cannot be written.
        """
        said = self._redact(made.model_dump(mode="json"))
        self._made.append(said)
        self._entry.note(egress=self._made)  # however the run ends, its closing record has them
        if self._staging:
            self._staging.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = os.open(self._staging / FILE, flags, 0o600)
            try:
                os.write(file, canonical(said).encode("ascii") + b"\n")
            finally:
                os.close(file)


def left_behind(staging: Path) -> list[object]:
    """Return the decisions of a run whose server died: all but a line that was not written to its end."""
    try:
        lines = (staging / FILE).read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    return [json.loads(line) for line in lines]
