"""`mcp-sandbox init`: a workspace in your own configuration, asked for in three questions."""

from __future__ import annotations

import codecs
import os
import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli.options import config_option, current_folder
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Container

    from tomlkit.items import Comment, Table

    from mcp_sandbox.workspace import Found


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="What the workspace is called; else as the folder.")
@click.option(
    "--yes", is_flag=True, help="Do not ask: take FOLDER, or the current one, its name and usual limits."
)
@config_option
def init(folder: Path | None, name: str | None, yes: bool, config_file: Path | None) -> None:
    """Configure a workspace: FOLDER, which programs may read and cannot change.

    The entry is written into your configuration file, which is made where there is none; what is in it stays.
    """
    suggested = folder or current_folder()
    chosen = (
        str(suggested) if yes else click.prompt("Which folder may programs read?", default=str(suggested))
    )
    found = _look(Path(chosen), config_file)
    taken = {*found.user_file.settings.workspaces, "default"}
    name = _name_of(found.folder or Path(chosen), taken) if name is None else name
    profile = "standard"
    if not yes:
        name = click.prompt("What is it to be called?", default=name)
        question = "How strict? `untrusted` needs gVisor."
        profile = click.prompt(question, type=click.Choice(["standard", "untrusted"]), default="standard")
    if name in taken:
        raise ConfigError(
            f"there is a workspace `{visible(name, limit=64)}` already.", next_step="Choose another name."
        )
    path = _write(found, name, profile)
    click.echo(
        f"Workspace `{name}` is {visible(str(found.folder), limit=4096)}, by {visible(str(path), limit=4096)}"
    )
    click.echo("Next: `mcp-sandbox install` lists your MCP clients.")


def _look(folder: Path, config_file: Path | None) -> Found:
    """Return what the configuration says now of a folder that has no entry in it yet.

    Raises:
        ConfigError: The folder may not be shown, or has an entry; or the configuration cannot be used.
    """
    from mcp_sandbox.config.places import Places
    from mcp_sandbox.workspace import Invocation, find

    places = Places.of_user()
    absolute = current_folder() / places.expand(str(folder))
    try:
        found = find(Invocation(config_file, str(absolute), os.environ, current_folder(), places))
    except ConfigError as error:
        # Nobody typed that option here.
        raise ConfigError(error.message.removeprefix("--workspace: "), next_step=error.next_step) from None
    if found.name in found.user_file.settings.workspaces:
        raise ConfigError(
            f"{visible(str(absolute), limit=4096)} is the folder of workspace `{found.name}` already.",
            next_step=f"`mcp-sandbox config show --workspace {found.name}` prints what holds there.",
        )
    return found


def _name_of(folder: Path, taken: Container[str]) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-_")[:48] or "workspace"
    return next(
        each for number in count(1) if (each := name if number == 1 else f"{name}-{number}") not in taken
    )


def _write(found: Found, name: str, profile: str) -> Path:
    """Write the entry, and return the file that it is in.

    Raises:
        ConfigError: The file cannot be changed or written, or could not be used with it. Nothing is changed then.
    """
    from mcp_sandbox.clients import toml
    from mcp_sandbox.clients.jsonc import Malformed
    from mcp_sandbox.config.files import user_file
    from mcp_sandbox.config.places import Places
    from mcp_sandbox.config.problems import Problem, refusal
    from mcp_sandbox.config.toml import read_bytes
    from mcp_sandbox.rewrite import rewrite

    path = found.file or Places.of_user().config_file
    try:
        was = read_bytes(path)
    except FileNotFoundError:
        was = None
    text = (was or b"").decode("utf-8-sig")
    try:
        text = toml.put(text, ["workspaces", name], _entry(str(found.folder), profile))
    except Malformed as error:
        raise refusal(str(path), [Problem(error.words)]) from None
    mark = codecs.BOM_UTF8 if (was or b"").startswith(codecs.BOM_UTF8) else b""
    content = mark + text.encode()
    new = user_file(content, str(path)).settings
    others = {each: entry for each, entry in new.workspaces.items() if each != name}
    if new.model_copy(update={"workspaces": others}) != found.user_file.settings:
        raise refusal(str(path), [Problem("it is written in a way that cannot be added to without harm")])
    rewrite(path, content, was=was)
    return path


def _entry(folder: str, profile: str) -> Table:
    import tomlkit

    table = tomlkit.table()
    table.add(
        tomlkit.comment(
            "Programs see this folder read-only; files that usually hold keys or passwords are hidden."
        )
    )
    table.add("path", folder)
    table.add(tomlkit.comment("`untrusted` has tighter limits and needs gVisor."))
    table.add("profile", profile)
    table.add(
        tomlkit.comment("What a run may use; `mcp-sandbox config example` prints every key with its default.")
    )
    for line in ("timeout_seconds = 30", 'memory = "1GiB"', "cpus = 1"):
        table.add(_as_comment(line))
    table.add(tomlkit.comment("Hosts that programs may reach; without it, none."))
    table.add(_as_comment('egress = { allow = ["api.example.com"] }'))
    return table


def _as_comment(line: str) -> Comment:
    """Return a line that holds once its `#` is taken off."""
    from tomlkit.items import Comment, Trivia

    return Comment(Trivia(comment=f"#{line}"))
