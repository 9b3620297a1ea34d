"""One run from the outside, while it goes on.

Above: `executor`, which fills it in, and whoever watches. Below: `streams`, `guest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.guest.progress import Progress
from mcp_sandbox.guest.session import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_sandbox.dependencies.progress import Installing
    from mcp_sandbox.egress.record import EgressRecord
    from mcp_sandbox.guest.session import OutputSink
    from mcp_sandbox.guest.terminal import AtTerminal
    from mcp_sandbox.streams import Streams


class Run:
    """One run while it goes on: what is known of it so far, and the means to stop it."""

    def __init__(
        self, watcher: OutputSink | None = None, told: Callable[[Installing], None] = lambda now: None
    ) -> None:
        self.run_id = ""
        """Its name in the record; empty until it is there."""
        self.streams: Streams | None = None
        """Its output so far; None until it is planned."""
        self.watcher = watcher
        self.at_terminal: AtTerminal | None = None
        """Who sits at its terminal, where it has one."""
        self._told = told
        self.stop = Stop()
        self.progress = Progress()
        self.connections: list[EgressRecord] = []
        """Connections to the outside, allowed and refused, as they ended."""

    def install_goes_on(self, now: Installing) -> None:
        """Learn how far the installation is that this run waits for."""
        if self.progress.phase != "installing":
            self.progress.enter("installing")
        self.progress.line = now.line
        self._told(now)
