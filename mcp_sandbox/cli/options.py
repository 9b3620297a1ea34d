"""Options that several commands take, and what they stand for."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mcp_sandbox.audit.folder import Folder

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

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
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Read a point in time, said as an age (`90m`, `2h`, `30d`) or as a date."""
    if value is None:
        return None
    age = re.fullmatch(r"([0-9]{1,6})([smhdw])", value)
    try:
        if age:
            return datetime.now(UTC) - timedelta(seconds=int(age[1]) * _UNITS[age[2]])
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        message = f"{value!r} is no age such as 90m, 2h, 30d, and no date such as 2026-01-31."
        raise click.BadParameter(message, ctx, param) from None


def current_folder() -> Path:
    """Return the working directory, or the root where it no longer exists."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")


def record_folder(config_file: Path | None) -> Folder:
    """Return the folder of the record that the configuration names."""
    from mcp_sandbox.audit.folder import Folder
    from mcp_sandbox.workspace import load_configuration

    configuration = load_configuration(
        config_file=config_file, workspace=None, environ=os.environ, cwd=current_folder()
    )
    return Folder(Path(configuration.audit.path))
