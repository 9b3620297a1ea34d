"""A person at a terminal: a real pseudo-terminal, the controlling one of the command that runs on it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.clients.raw import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SECONDS = 30.0 * PATIENCE


class Person:
    """Types keys and looks at the screen."""

    def __init__(self, terminal: int, theirs: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.screen = b""
        """All bytes that the terminal was given."""
        self._seen = 0
        self._terminal = terminal
        self._theirs = theirs
        self.before = termios.tcgetattr(theirs)

    def type(self, keys: str | bytes) -> None:
        """Press keys."""
        left = keys.encode() if isinstance(keys, str) else keys
        while left:
            left = left[os.write(self._terminal, left) :]

    def sees(self, pattern: str | bytes, seconds: float = SECONDS) -> re.Match[bytes]:
        """Wait until that stands behind what was seen before."""
        wanted = re.compile(pattern.encode() if isinstance(pattern, str) else pattern, re.DOTALL)
        give_up = time.monotonic() + seconds
        while not (found := wanted.search(self.screen, self._seen)):
            assert self._look(give_up - time.monotonic()), f"{wanted.pattern!r} not in {self.unseen!r}"
        self._seen = found.end()
        return found

    def leaves(self, seconds: float = SECONDS) -> int:
        """Wait until the command ends, and return its exit status."""
        give_up = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < give_up, f"it goes on: {self.unseen!r}"
            self._look(0.05)
        while self._look(0):
            pass
        return self.process.returncode

    @property
    def unseen(self) -> bytes:
        """What stands on the screen behind what was seen."""
        return self.screen[self._seen :]

    @property
    def is_as_before(self) -> bool:
        """Tell whether the terminal's settings are what they were before the command."""
        return termios.tcgetattr(self._theirs) == self.before

    @property
    def is_raw(self) -> bool:
        """Tell whether keys are passed on as they are."""
        return not termios.tcgetattr(self._theirs)[3] & (termios.ICANON | termios.ISIG | termios.ECHO)

    def resizes(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def closes_the_window(self) -> None:
        """Hang up."""
        os.close(self._terminal)
        self._terminal = -1

    def _look(self, seconds: float) -> bool:
        """Take what there is, waiting so long for it; tell whether there was something."""
        if not select.select([self._terminal], [], [], max(0, seconds))[0]:
            return False
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self.screen += data
        return bool(data)


@contextmanager
def at_a_terminal(
    command: Sequence[str], environ: Mapping[str, str], *, rows: int = 24, columns: int = 80
) -> Iterator[Person]:
    """Yield a person at a terminal on which a command runs; it is killed where it has not ended by the end."""
    terminal, theirs = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    person = Person(terminal, theirs, process)
    try:
        yield person
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)
        for descriptor in (person._terminal, theirs):
            if descriptor >= 0:
                os.close(descriptor)
