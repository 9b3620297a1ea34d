"""A long command's progress: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Step(Protocol):
    """Where a command is."""

    @property
    def step(self) -> int:
        """Counts from 1; 0 before the first."""
        ...

    @property
    def steps(self) -> int:
        """0 while unknown."""
        ...

    @property
    def line(self) -> str:
        """What was said last, one line."""
        ...


@contextmanager
def build_progress() -> Iterator[Callable[[Step], None]]:
    """Show on stderr how far something is that is built, and what was said last."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    if not sys.stderr.isatty():
        yield lambda now: click.echo(now.line, err=True)
        return
    columns = (
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        # Lines of a build hold brackets of their own: no markup.
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
    )
    with Progress(*columns, console=Console(stderr=True), expand=True, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda now: bar.update(task, completed=now.step, total=now.steps or 1, description=now.line)
