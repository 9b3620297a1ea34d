"""Which servers are alive: each holds a lock on a file of its own for as long as its process lives.

A process id would lie: it is used again after a crash, and means nothing to a container that shares the
folder. The kernel drops a lock with its last holder, whatever killed that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Lease:
    """A held lock on one server's lease file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def remove(self) -> None:
        """Delete the file, then let go: in this order nobody can lock it and find a server alive."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self.release()

    def release(self) -> None:
        """Let go of the lock, and leave the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(path: Path) -> bool:
    """Tell whether a living process holds the lease.

    Raises:
        OSError: The file cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def take(path: Path) -> Lease | None:
    """Lock the lease file, made if need be, and return the lease, or None where a living process holds it.

    Raises:
        OSError: The file cannot be made or opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(path, descriptor)
