"""Which servers of one state folder are alive: what a dead one left on the engine may be removed.

Above: `app`. Below: `audit.lease`, a lock that the kernel drops with its holder, whatever killed that.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING

from mcp_sandbox.audit import lease

if TYPE_CHECKING:
    from pathlib import Path

FORGOTTEN_AFTER_SECONDS = 3600.0
"""How long a dead server's sign is kept: an engine may still be making what that server asked for as it died."""

_log = logging.getLogger(__name__)


class Presence:
    """One server's own sign of life, and the others'.

    Without a folder that can be written nobody can see this server, so no sign of it may be looked for
    either: it then has no name, and what has no name is never taken for dead.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lease: lease.Lease | None = None
        self.server = secrets.token_hex(8)
        """Name of this server on the labels of its sandboxes; empty where nobody could see that it lives."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lease = lease.take(folder / self.server)
        except OSError as error:
            _log.warning("no sign of life can be left in %s: %s", folder, error)
            self.server = ""

    def is_dead(self, server: str) -> bool:
        """Tell whether that server has left a sign and no process holds it any more."""
        if not server.isalnum() or server == self.server:
            return False
        path = self._folder / server
        try:
            return path.exists() and not lease.is_held(path)
        except OSError:
            return False

    def forget_the_dead(self) -> None:
        """Remove the signs of servers that have been dead for long: without a sign, nothing of theirs is removed."""
        for path in self._folder.glob("*"):
            if self.is_dead(path.name):
                with contextlib.suppress(OSError):
                    _forget(path)

    def leave(self) -> None:
        """Let go; the sign stays, in case something of ours could not be removed."""
        if self._lease:
            with contextlib.suppress(OSError):
                self._lease.release()


def _forget(path: Path) -> None:
    """Mark a dead server's sign the first time, and remove it when the mark is old."""
    status = path.stat()
    if not status.st_size:
        path.write_text("dead\n", encoding="ascii")
    elif time.time() - status.st_mtime > FORGOTTEN_AFTER_SECONDS:
        path.unlink(missing_ok=True)
