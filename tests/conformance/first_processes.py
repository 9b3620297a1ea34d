"""First processes for a sandbox, each told twice: as a program for a real one, and as a script for the fake.

They are started as the agent is, but are not the agent: an engine knows nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from mcp_sandbox.sandbox import Ending

if TYPE_CHECKING:
    from tests.fakes import Process, Script

WRITE = """
import os, sys, time
def write(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
"""


class FirstProcess(NamedTuple):
    """What a sandbox runs."""

    program: str
    script: Script

    @property
    def command(self) -> tuple[str, ...]:
        """The argument vector that starts it."""
        return ("python3", "-I", "-S", "-c", WRITE + self.program)


async def _echo(process: Process) -> None:
    while data := await process.read():
        await process.write(data)


ECHO = FirstProcess(
    """
while data := os.read(0, 1 << 16):
    write(1, data)
""",
    _echo,
)
"""Gives back what it is sent, until its stdin ends."""


async def _exit_7(process: Process) -> None:
    await process.write(b"last words")
    process.ending = Ending(out_of_memory=False, exit_code=7)


EXIT_7 = FirstProcess(
    """
write(1, b"last words")
os._exit(7)
""",
    _exit_7,
)
"""Says its last words and exits with 7."""


async def _complain(process: Process) -> None:
    process.complain(b"first complaint\n" + b"x" * (1 << 20))
    await process.write(b"done")
    await process.read()


COMPLAIN = FirstProcess(
    """
write(2, b"first complaint\\n" + b"x" * (1 << 20))
write(1, b"done")
os.read(0, 1)
""",
    _complain,
)
"""Writes a megabyte to stderr, says that it is done, and waits."""


async def _hoard(process: Process) -> None:
    await process.write(b"hoarding")
    process.ending = Ending(out_of_memory=True, exit_code=137)


HOARD = FirstProcess(
    """
write(1, b"hoarding")
hoard = []
while True:
    hoard.append(b"x" * (8 << 20))
""",
    _hoard,
)
"""Takes memory until it is killed."""


async def _ignore_everything(process: Process) -> None:
    await process.write(b"ready")
    await anyio.sleep_forever()


IGNORE_EVERYTHING = FirstProcess(
    """
import signal
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
if os.fork():
    write(1, b"ready")
else:
    os.setsid()
while True:
    time.sleep(60)
""",
    _ignore_everything,
)
"""Heeds neither the end of its stdin nor any signal, and has a child that heeds none either."""

ALL = (ECHO, EXIT_7, COMPLAIN, HOARD, IGNORE_EVERYTHING)


async def play(process: Process) -> None:
    """Play whichever of them the sandbox was launched for."""
    (script,) = [first.script for first in ALL if first.command == process.spec.command]
    await script(process)
