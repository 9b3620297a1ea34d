"""What a person is shown of bytes on their way: a bar on a terminal, plain lines elsewhere, nothing of a few."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from mcp_sandbox.guest.progress import IN_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress as Bars

    from mcp_sandbox.guest.progress import Progress

LARGE_BYTES = 4 << 20
"""Fewer are there before anybody could read of them."""
LINE_SECONDS = 10.0
"""Time between two lines of one transfer."""


class Transfers(Protocol):
    """Shows one transfer after the other."""

    def show(self, words: str, done: int, total: int | None) -> None:
        """Show how far it is, in bytes; the total is None where it is not known."""
        ...

    def clear(self) -> None:
        """Show nothing: it is over."""
        ...


@contextmanager
def transfers(on_new_line: Callable[[], None] = lambda: None) -> Iterator[Transfers]:
    """Yield what shows transfers on stderr; `on_new_line` is called before a bar is drawn there."""
    shown = Bar(on_new_line) if sys.stderr.isatty() else Lines(lambda line: click.echo(line, err=True))
    try:
        yield shown
    finally:
        shown.clear()


def follow(progress: Progress, shown: Transfers) -> None:
    """Show a run's copies in and files out, while they are on their way."""

    def on_change() -> None:
        if progress.phase not in ("copying", "collecting"):
            shown.clear()
        elif max(progress.done, progress.total or 0) >= LARGE_BYTES:
            shown.show(IN_WORDS[progress.phase], progress.done, progress.total)

    progress.on_change = on_change


class Bar:
    """A bar that goes when the transfer is over."""

    def __init__(self, on_new_line: Callable[[], None]) -> None:
        self._on_new_line = on_new_line
        self._words = ""
        self._bars: Bars | None = None

    def show(self, words: str, done: int, total: int | None) -> None:
        """Draw it."""
        if self._words != words:
            self.clear()
            self._words = words
            self._on_new_line()
            self._bars = _bars()
            self._bars.start()
            self._bars.add_task(words, total=total)
        if self._bars:
            self._bars.update(self._bars.task_ids[0], completed=done)

    def clear(self) -> None:
        """Take it off the screen."""
        if self._bars:
            self._bars.stop()
        self._words, self._bars = "", None


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


class Lines:
    """A line when the transfer begins, and another now and then."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._words = ""
        self._said_at = 0.0

    def show(self, words: str, done: int, total: int | None) -> None:
        """Say it, if it is time."""
        from rich.filesize import decimal

        now = self._clock()
        if self._words != words:
            self._say(f"mcp-sandbox: {words}" + (f", {decimal(total)}" if total else ""))
        elif now - self._said_at >= LINE_SECONDS:
            self._say(f"mcp-sandbox: {words}, {decimal(done)}" + (f" of {decimal(total)}" if total else ""))
        else:
            return
        self._words, self._said_at = words, now

    def clear(self) -> None:
        """Begin anew."""
        self._words = ""
