"""Tables and JSON on stdout, for every command that lists what a record holds.

That was written by models and programs: all of it passes through `visible`, and nowhere is it read as markup.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import Console
    from rich.table import Table


def console() -> Console:
    """Return a console for tables on stdout."""
    from rich.console import Console

    # In a pipe there is no width to fit: nothing may be cut off for lack of it.
    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 10_000)


def print_json(value: object) -> None:
    """Print a value as JSON, all ASCII."""
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, whole: int) -> Table:
    """Return a table; its first `whole` columns are never cut to the terminal's width, others may be.

    A heading that starts with `>` is of a column of numbers.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[visible(cell) for cell in row] for row in rows]
    made = Table(box=None, pad_edge=False, show_header=any(headings), padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        name = heading.lstrip(">")
        widest = max((len(row[number]) for row in cells), default=0)
        width = max(widest, len(name)) if number < whole else len(name)
        made.add_column(
            name, justify="right" if heading != name else "left", no_wrap=any(headings), min_width=width
        )
    for row in cells:
        made.add_row(*map(Text, row))
    return made


def when(moment: datetime) -> str:
    """Write a point in time as a person here does."""
    return moment.astimezone().isoformat(" ", "seconds")[:19]


def duration(milliseconds: int | None) -> str:
    """Write a time in milliseconds; nothing where it is unknown."""
    if milliseconds is None:
        return ""
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"
