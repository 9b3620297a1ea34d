"""A person's own terminal, lent to a program in a sandbox and given back however that ends.

Above: `cli.shell`. Below: `cli.screen`, which decides what the program may do to it. While it is lent it is raw: keys
are bytes that go to the program's terminal, which makes of Ctrl-C, Ctrl-Z and Ctrl-D what a terminal makes of them.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import termios
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcp_sandbox.cli.screen import Screen
from mcp_sandbox.guest.terminal import Size
from mcp_sandbox.redact import RedactedStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_sandbox.guest.terminal import TerminalStream
    from mcp_sandbox.run import Run

WAY_OUT = 0x1D
"""Ctrl-]: three times within `WAY_OUT_SECONDS` leaves, whatever the program makes of it."""
WAY_OUT_SECONDS = 1.0
QUIET_SECONDS = 0.05
"""What may be the beginning of a secret is shown this long after it, where nothing follows: else letters that a person
types would not appear until the next."""
RESET_SECONDS = 1.0
"""For the last bytes to a terminal that may be stuck."""

_KEYS, _SCREEN = 0, 1
_KNOWN = ("xterm", "screen", "tmux", "linux", "vt100", "vt220", "rxvt", "dumb", "ansi")
_USUAL = Size(24, 80)


def is_there() -> bool:
    """Tell whether there is a terminal to lend: stdin and stdout are both one."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def size() -> Size:
    """Return how large it is."""
    try:
        columns, rows = os.get_terminal_size(_SCREEN)
    except OSError:
        return _USUAL
    # A serial line says 0.
    return Size(min(rows, 0xFFFF) or _USUAL.rows, min(columns, 0xFFFF) or _USUAL.columns)


def kind() -> str:
    """Return what programs inside are told of it: a name that images know."""
    name = os.environ.get("TERM", "")
    return (
        name if name.partition("-")[0] in _KNOWN and name.isascii() and len(name) < 32 else "xterm-256color"
    )


class LentTerminal:
    """Sits at a run's terminal for a person."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pressed: list[float] = []

    async def __call__(self, program: TerminalStream) -> None:
        """Pass keys and output on until the program's terminal ends, or the person's does."""
        screen = Screen(sys.stdout.encoding)
        with raw():
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._type, program)
                    tasks.start_soon(self._follow_size, program)
                    await self._show(program, screen)
                    tasks.cancel_scope.cancel()
            finally:
                with anyio.move_on_after(RESET_SECONDS, shield=True):
                    await _write(screen.end())

    async def _type(self, program: TerminalStream) -> None:
        try:
            while True:
                await anyio.wait_readable(_KEYS)
                if not (keys := os.read(_KEYS, 4096)) or self._wants_out(keys):
                    break
                await program.send(keys)
        except OSError:
            pass  # the window is gone
        except anyio.BrokenResourceError:
            return
        self._run.stop.request()

    def _wants_out(self, keys: bytes) -> bool:
        now = time.monotonic()
        for key in keys:
            self._pressed = [*self._pressed[-2:], now] if key == WAY_OUT else []
            if len(self._pressed) == 3 and now - self._pressed[0] <= WAY_OUT_SECONDS:
                return True
        return False

    async def _follow_size(self, program: TerminalStream) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH, signal.SIGCONT) as signals:
            program.resize(size())  # it may have changed before anybody listened
            async for number in signals:
                if number == signal.SIGCONT:
                    tty.setraw(_KEYS, termios.TCSANOW)  # who had it meanwhile made it their own
                program.resize(size())

    async def _show(self, program: TerminalStream, screen: Screen) -> None:
        assert self._run.streams is not None  # noqa: S101  # it has begun
        redacted = RedactedStream(self._run.streams.redactor)
        shown = True
        try:
            while True:
                with anyio.move_on_after(None if shown else QUIET_SECONDS) as quiet:
                    data = redacted.feed(await program.receive())
                    shown = False
                if quiet.cancelled_caught:
                    data = redacted.end(cut=False)
                    shown = True
                if data:
                    await _write(screen.feed(data))
        except anyio.EndOfStream:
            await _write(screen.feed(redacted.end(cut=True)))


async def _write(data: bytes) -> None:
    """Write to the screen, in a thread: a terminal may be slow, or stuck. One that is gone takes all."""
    await anyio.to_thread.run_sync(_write_all, data, abandon_on_cancel=True)


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(_SCREEN, view) :]
    except OSError as error:
        if error.errno != errno.EIO:
            raise


@contextmanager
def raw() -> Iterator[None]:
    """Let keys come as bytes, and end that in every case."""
    before = termios.tcgetattr(_KEYS)
    tty.setraw(_KEYS, termios.TCSANOW)
    try:
        yield
    finally:
        # Not after what is still to be written: that would wait for a terminal that is stuck. What was typed for the
        # program, or came as the terminal's answer to it, is not for the person's own prompt.
        termios.tcflush(_KEYS, termios.TCIFLUSH)
        termios.tcsetattr(_KEYS, termios.TCSANOW, before)
