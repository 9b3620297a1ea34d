"""Every command explains itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from mcp_sandbox.cli import cli

if TYPE_CHECKING:
    from collections.abc import Iterator


def every_command(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner
            yield from every_command(inner, *words, name)


@pytest.mark.parametrize("words", list(every_command(cli)), ids=" ".join)
def test_help_is_whole_sentences_and_nothing_of_how_it_is_written(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"])
    assert shown.exit_code == 0
    assert "\\" not in shown.output
    assert "\b" not in shown.output
    assert "." in shown.output.split("\n\n")[1]
