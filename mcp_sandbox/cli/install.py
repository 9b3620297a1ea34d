"""`mcp-sandbox install` and `uninstall`: the entry that makes an MCP client start this server."""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli import FAILED
from mcp_sandbox.cli.options import config_option
from mcp_sandbox.clients.table import CLIENTS
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mcp_sandbox.cli.launch import Entry
    from mcp_sandbox.clients.file import ClientFile
    from mcp_sandbox.clients.table import Client

clients_argument = click.argument("names", metavar="[CLIENT]...", nargs=-1, type=click.Choice(list(CLIENTS)))
all_option = click.option("--all", "everywhere", is_flag=True, help="Every client that is found here.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and write nothing.")
KNOWN = f"CLIENT is one of {', '.join(CLIENTS)}."


def _usable_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,48}", value):
        raise click.BadParameter("1 to 48 letters, digits, - and _ are what every client takes")
    return value


@click.command(epilog=KNOWN)
@clients_argument
@all_option
@click.option(
    "--workspace",
    "workspaces",
    metavar="NAME|FOLDER",
    multiple=True,
    help="Workspace that the server gets; given more than once, each has an entry of its own.",
)
@click.option(
    "--name",
    metavar="NAME",
    callback=_usable_name,
    help="What the entry is called; else sandbox, or sandbox-WORKSPACE.",
)
@config_option
@dry_run_option
@click.option(
    "--print", "prints", is_flag=True, help="Print what belongs into the client's file, and write nothing."
)
@click.option(
    "--check", "checks", is_flag=True, help="Then start the server as the client would, and call a tool."
)
@click.option("--yes", is_flag=True, help="Do not ask: build the image where it is missing.")
@click.pass_context
def install(
    ctx: click.Context,
    names: tuple[str, ...],
    everywhere: bool,
    workspaces: tuple[str, ...],
    name: str | None,
    config_file: Path | None,
    dry_run: bool,
    prints: bool,
    checks: bool,
    yes: bool,
) -> None:
    """Tell MCP clients to start this server; without CLIENT, list those found and what they have.

    The entry has absolute paths, the workspace, and the address of the engine that is found now. What else is in the
    client's file stays as it is; the file as it was is kept beside it, with .mcp-sandbox.bak added to its name.

    \b
    mcp-sandbox install claude-desktop
    mcp-sandbox install --all --check
    mcp-sandbox install cursor --workspace reports --workspace ~/data
    """  # noqa: D301 - click reads the \b
    if name is not None and len(workspaces) > 1:
        raise click.UsageError("--name is for one entry: give one --workspace")
    clients = _clients(names, everywhere)
    if not clients:
        _print_overview()
        if checks:
            from mcp_sandbox.cli.readiness import answers

            ctx.exit(0 if answers(CLIENTS.values()) else 1)
        return

    from mcp_sandbox.cli.launch import entries

    wanted = entries(workspaces, name=name, config_file=config_file)
    if prints:
        for client in clients:
            for entry in wanted:
                click.echo(client.snippet(entry.name, entry.launch), nl=False)
        return
    failed = _change(clients, lambda file: _with_entries(file, wanted), dry_run=dry_run)
    if not dry_run:
        from mcp_sandbox.cli.readiness import answers, is_ready

        ready = is_ready([entry.configuration for entry in wanted], config_file, yes=yes)
        ready = (not checks or answers(clients)) and ready
        ctx.exit(FAILED if failed else 0 if ready else 1)
    ctx.exit(FAILED if failed else 0)


@click.command(epilog=KNOWN)
@clients_argument
@all_option
@click.option(
    "--workspace",
    "workspaces",
    metavar="NAME|FOLDER",
    multiple=True,
    help="Only the entry that `install --workspace` made.",
)
@click.option("--name", metavar="NAME", help="Only the entry of this name.")
@dry_run_option
@click.pass_context
def uninstall(
    ctx: click.Context,
    names: tuple[str, ...],
    everywhere: bool,
    workspaces: tuple[str, ...],
    name: str | None,
    dry_run: bool,
) -> None:
    """Take this server out of MCP clients: every entry that starts it, or those of --workspace or --name.

    A file in which nothing else has changed since is again what it was, to the byte.
    """
    clients = _clients(names, everywhere)
    if not clients:
        raise click.UsageError(f"say which client, or --all: {', '.join(CLIENTS)}")

    from mcp_sandbox.cli.launch import entry_name

    chosen = {name} if name else {entry_name(workspace) for workspace in workspaces}
    failed = _change(clients, lambda file: _without_entries(file, chosen), dry_run=dry_run)
    ctx.exit(FAILED if failed else 0)


def _clients(names: Sequence[str], everywhere: bool) -> list[Client]:
    if names and everywhere:
        raise click.UsageError("name clients, or give --all")
    if not everywhere:
        return [CLIENTS[name] for name in dict.fromkeys(names)]
    found = [client for client in CLIENTS.values() if client.is_here(Path.home(), os.environ)]
    if not found:
        raise click.UsageError("no client is found here: name one")
    return found


def _with_entries(file: ClientFile, wanted: Iterable[Entry]) -> tuple[ClientFile, list[str]]:
    new = file
    for entry in wanted:
        new = new.having(entry.name, entry.launch)
    return new, [entry.name for entry in wanted]


def _without_entries(file: ClientFile, chosen: set[str]) -> tuple[ClientFile, list[str]]:
    going = [name for name in file.ours if not chosen or name in chosen]
    return (file.without(going) if going else file), going


def _change(
    clients: Iterable[Client], change: Callable[[ClientFile], tuple[ClientFile, list[str]]], *, dry_run: bool
) -> bool:
    """Change each client's file, or show how it would be; tell whether one could not be, which keeps back no other."""
    from mcp_sandbox.clients.file import client_file

    failed = False
    for client in clients:
        try:
            file = client_file(client, Path.home(), os.environ)
            new, names = change(file)
            if new.content == file.content:
                click.echo(f"{client.title}: nothing to change in {_shown(file.path)}")
            elif dry_run:
                _print_difference(file, new)
            else:
                is_here = client.is_here(Path.home(), os.environ)
                file.write(new)
                if not is_here:
                    click.echo(f"{client.title} was not found here: its file is new.")
                _say_what_was_done(file, new, names)
        except SandboxError as error:
            click.echo(f"mcp-sandbox: {client.title}: {error}", err=True)
            failed = True
    return failed


def _say_what_was_done(file: ClientFile, new: ClientFile, names: list[str]) -> None:
    client, entries = file.client, " and ".join(f"`{visible(name, limit=64)}`" for name in names)
    entries += " is" if len(names) == 1 else " are"
    if len(new.ours) < len(file.ours):
        gone = ", which held nothing else and is gone" if new.content is None else ""
        click.echo(f"{client.title}: {entries} out of {_shown(file.path)}{gone}")
        return
    kept = f"; as it was: {file.backup.name}" if file.content else ""
    click.echo(f"{client.title}: {entries} in {_shown(file.path)}{kept}")
    click.echo(f"  {client.reload}")


def _print_difference(file: ClientFile, new: ClientFile) -> None:
    was, would_be = ("/dev/null" if each.content is None else str(each.path) for each in (file, new))
    lines = difflib.unified_diff(file.text.splitlines(), new.text.splitlines(), was, would_be, lineterm="")
    for line in lines:
        click.echo(visible(line.expandtabs(4), limit=1000))


def _shown(path: Path) -> str:
    """Return a path as a person writes it."""
    text = visible(str(path), limit=4096)
    home = f"{Path.home()}/"
    return f"~/{text.removeprefix(home)}" if text.startswith(home) else text


# What there is


def _print_overview() -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("client", "", "found", "entries"):
        table.add_column(heading, no_wrap=heading != "entries", overflow="fold")
    for client in CLIENTS.values():
        here = client.is_here(Path.home(), os.environ)
        table.add_row(client.name, client.title, "yes" if here else "no", Text(_state(client)))
    # In a pipe there is no width to fit: nothing may be cut off for lack of it.
    Console(highlight=False, width=None if sys.stdout.isatty() else 10_000).print(table)
    click.echo("\n`mcp-sandbox install CLIENT...` adds an entry, `--all` one to each that is found.")


def _state(client: Client) -> str:
    from mcp_sandbox.clients.file import client_file

    try:
        file = client_file(client, Path.home(), os.environ)
        return visible(", ".join(f"{name} in {_shown(file.path)}" for name in file.ours)) or "-"
    except SandboxError as error:
        return error.message
