"""`mcp-sandbox config`: what is in force, what is wrong, what is trusted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcp_sandbox.cli.options import config_option, current_folder, workspace_option
from mcp_sandbox.errors import ConfigError

if TYPE_CHECKING:
    from mcp_sandbox.config.files import FolderFile
    from mcp_sandbox.config.layers import Resolved
    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.workspace import Invocation


@click.group()
def config() -> None:
    """Show, check and trust configuration."""


@config.command()
@config_option
@workspace_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON; sizes are in bytes.")
def show(config_file: Path | None, workspace: str | None, as_json: bool) -> None:
    """Show the policy in force, and where each value was said."""
    from mcp_sandbox.workspace import load_configuration

    configuration = load_configuration(
        config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
    )
    if as_json:
        _print_json(configuration)
    else:
        _print_table(configuration)


def _values(configuration: Configuration) -> dict[str, tuple[Any, str]]:
    """Return every key with its value, and the value as a person writes it."""
    from mcp_sandbox.config.settings import written

    policy, engine = configuration.policy, configuration.engine
    parts = {"": policy, "engine.": engine, "server.": configuration.server, "audit.": configuration.audit}
    values = {
        prefix + key: (value, "" if value is None else written(type(part), key, value))
        for prefix, part in parts.items()
        for key, value in part
    }
    first = {key: values[key] for key in ("workspace", "path")}
    return first | values


def _print_json(configuration: Configuration) -> None:
    import json

    values = {
        key: {"value": value, "source": configuration.sources.get(key, "built in")}
        for key, (value, _) in _values(configuration).items()
    }
    click.echo(
        json.dumps(
            {
                "file": None if configuration.file is None else str(configuration.file),
                "policy_hash": configuration.policy.policy_hash(),
                "values": values,
            },
            indent=2,
            default=lambda part: part.model_dump(mode="json"),
        )
    )


def _print_table(configuration: Configuration) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source", overflow="fold")
    for key, (value, text) in _values(configuration).items():
        unsafe = key.rpartition(".")[2].startswith("unsafe_") and value
        # Text, not markup: a name such as [bold] must show as it is.
        table.add_row(
            Text(key),
            Text(f"{text}  UNSAFE" if unsafe else text or "-", style="bold red" if unsafe else ""),
            Text(configuration.sources.get(key, "built in")),
        )
    console = Console()
    console.print(Text(f"file: {configuration.file or 'none'}\n"), soft_wrap=True)
    console.print(table)


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def check(file: Path | None) -> None:
    """Tell what is wrong with FILE: a configuration file, or a folder's own mcp-sandbox.toml."""
    from mcp_sandbox.config.files import FOLDER_FILE
    from mcp_sandbox.workspace import check_file, load_configuration

    invocation = _invocation(file, None)
    if file is None or file.name != FOLDER_FILE:
        checked = check_file(invocation)
        click.echo(
            "There is no configuration file; the defaults hold."
            if checked is None
            else f"{checked} is valid."
        )
        return
    folder = (current_folder() / file).parent
    if not (folder / FOLDER_FILE).exists():
        raise ConfigError(f"{folder / FOLDER_FILE} does not exist.", next_step="Name a file that does.")
    load_configuration(config_file=None, workspace=str(folder), environ=os.environ, cwd=current_folder())
    click.echo(f"{folder / FOLDER_FILE} is valid.")


@config.command()
def example() -> None:
    """Print a configuration file that names every key with its default."""
    from mcp_sandbox.config.reference import example_toml

    click.echo(example_toml(), nl=False)


@config.command()
@config_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.argument("folder", type=click.Path(path_type=Path))
def trust(config_file: Path | None, yes: bool, folder: Path) -> None:
    """Let the mcp-sandbox.toml in FOLDER loosen your configuration, as long as it stays as it is now."""
    from mcp_sandbox.config.files import FOLDER_FILE, loosenings, read_folder_file
    from mcp_sandbox.config.layers import resolve
    from mcp_sandbox.config.problems import refusal
    from mcp_sandbox.config.trust import Trust
    from mcp_sandbox.workspace import find, own_policy

    invocation = _invocation(config_file, str(current_folder() / folder))
    found = find(invocation)
    folder_file = None if found.folder is None else read_folder_file(found.folder)
    if folder_file is None:
        raise ConfigError(f"{found.folder} has no {FOLDER_FILE}.", next_step="There is nothing to trust.")
    allowed, wanted = own_policy(found), resolve((*found.layers, folder_file.layer))
    if wanted.problems:
        raise refusal(folder_file.layer.document.file, wanted.problems)
    _print_wanted(folder_file, allowed, wanted)
    if not loosenings(folder_file, allowed, wanted):
        click.echo("It loosens nothing, and so holds without being trusted.")
        return
    if not yes:
        click.confirm("Let it?", abort=True)
    # What was shown is what is recorded: the file is not read again.
    Trust(invocation.places.state).record(folder_file)
    click.echo("Trusted, until it changes.")


def _print_wanted(folder_file: FolderFile, allowed: Resolved, wanted: Resolved) -> None:
    from mcp_sandbox.config.profiles import looser
    from mcp_sandbox.config.settings import PolicySettings, written
    from mcp_sandbox.visible import visible

    click.echo(f"{visible(folder_file.layer.document.file, limit=4096)}:")
    for number, line in enumerate(folder_file.content.decode("utf-8-sig").split("\n"), 1):
        click.echo(f"{number:4}  {visible(line.expandtabs().removesuffix(chr(13)), limit=4096)}")
    for key, value in wanted.values.items():
        was = allowed.values[key]
        if value != was:
            direction = "LOOSER" if looser(key, value, was) else "tighter"
            before, after = (
                visible(written(PolicySettings, key, each), limit=200) or '""' for each in (was, value)
            )
            click.echo(f"{direction:>8}  {key}: {before} becomes {after}")


def _invocation(config_file: Path | None, workspace: str | None) -> Invocation:
    from mcp_sandbox.config.places import Places
    from mcp_sandbox.workspace import Invocation

    return Invocation(config_file, workspace, os.environ, current_folder(), Places.of_user())
