"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration file to use.",
)
workspace_option = click.option(
    "--workspace",
    metavar="NAME|FOLDER",
    help="Workspace of the configuration, or a folder that programs may read.",
)


def current_folder() -> Path:
    """Return the working directory, or the root where it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")
