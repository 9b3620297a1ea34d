"""How far a run has come, for whoever waits for it.

Above: `run`, `executor`, `guest.session`, which tell it. Below: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

Phase = Literal["preparing", "installing", "queued", "starting", "copying", "running", "collecting"]

IN_WORDS: dict[Phase, str] = {
    "preparing": "preparing",
    "installing": "installing packages, which is done once",
    "queued": "waiting for other runs to end",
    "starting": "starting a sandbox",
    "copying": "copying the workspace in",
    "running": "running",
    "collecting": "taking files out",
}


class Progress:
    """The phase that a run is in, and how much of it is done."""

    def __init__(self) -> None:
        self.phase: Phase = "preparing"
        self.done = 0
        """Bytes that were copied in, or taken out, in this phase."""
        self.total: int | None = None
        """Bytes that there are to copy or take; None where that is not known beforehand."""
        self.line = ""
        """What is being done, in the words of what does it; empty where there are none."""
        self.running_since: float | None = None
        """When the program started, by the clock of `anyio.current_time`; None before."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a phase begins and when more of it is done."""

    def enter(self, phase: Phase, total: int | None = None) -> None:
        """Begin a phase."""
        self.phase, self.done, self.total, self.line = phase, 0, total, ""
        if phase == "running":
            self.running_since = anyio.current_time()
        self.on_change()

    def advance(self, size: int) -> None:
        """Count bytes as done."""
        self.done += size
        self.on_change()
