"""`mcp-sandbox deps`: packages from locks, each lock one layer over an image."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli import FAILED
from mcp_sandbox.cli.options import config_option, current_folder, workspace_option
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.engines.docker.connection import Connection
    from mcp_sandbox.engines.docker.layers import KeptLayer
    from mcp_sandbox.model import ExecutionResult

INSTALLED = """\
# Lists what is installed here, which shows that it can be run.
import importlib.metadata

found = {(each.name, each.version) for each in importlib.metadata.distributions(path=[
    path for path in __import__("sys").path if path.startswith("/opt/mcp-sandbox/")
])}
print(*sorted(f"{name} {version}" for name, version in found), sep="\\n")
"""


@click.group()
def deps() -> None:
    """Install the packages of a workspace's lock, and look after what was installed.

    Runs do this by themselves the first time that they need it.
    """


@deps.command()
@config_option
@workspace_option
@click.pass_context
def build(ctx: click.Context, config_file: Path | None, workspace: str | None) -> None:
    """Install the packages of a workspace's lock, where that is not done yet.

    They are installed in a sandbox that reaches the index alone, and kept as one layer over the workspace's image. Then
    a program is run on them that lists them; it is on the record, as every run.
    """
    import anyio

    from mcp_sandbox.errors import RequestRefused

    configuration = _configuration(config_file, workspace)
    if not configuration.policy.dependencies.lock:
        name = configuration.policy.workspace
        raise RequestRefused(
            f"the workspace {name} has no lock.",
            next_step=f'Name one, under [workspaces.{name}.dependencies]: lock = "requirements.lock"',
        )
    ctx.exit(anyio.run(_build, configuration))


async def _build(configuration: Configuration) -> int:
    from mcp_sandbox.app import running
    from mcp_sandbox.cli.progress import build_progress
    from mcp_sandbox.errors import SandboxError
    from mcp_sandbox.model import ExecutionRequest
    from mcp_sandbox.run import Run

    request = ExecutionRequest(language="python", code=INSTALLED)
    result: ExecutionResult | SandboxError
    async with running(configuration, os.environ, origin="cli") as executor:
        with build_progress() as progress:
            try:
                result = await executor.execute(request, Run(told=progress))
            except SandboxError as error:
                result = error  # raised below, where nothing wraps it
    if isinstance(result, SandboxError):
        raise result
    click.echo(result.stdout or result.stderr, nl=False)
    return 0 if result.exit_code == 0 else FAILED


@deps.command("list")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(config_file: Path | None, as_json: bool) -> None:
    """List the layers on the engine."""
    import json

    from rich import box
    from rich.console import Console
    from rich.table import Table

    configuration = _configuration(config_file, None)
    found = _layers(configuration)
    if as_json:
        click.echo(json.dumps([_as_json(layer, used) for layer, used in found], indent=2))
        return
    if not found:
        click.echo(
            "No layers. The first run of a workspace with a lock makes one; `mcp-sandbox deps build` does, too."
        )
        return
    table = Table(
        "layer", "workspace", "packages", "lock", "base", "made", "last used", "size", box=box.SIMPLE
    )
    for layer, used in found:
        of = layer.labels
        table.add_row(
            layer.key[:12],
            *(visible(of.get(name, ""), limit=60) for name in ("workspace", "packages")),
            of.get("lock", "")[:12],
            visible(of.get("base-name", ""), limit=60),
            f"{datetime.fromtimestamp(layer.created, UTC):%Y-%m-%d}",
            f"{used:%Y-%m-%d}",
            f"{layer.size_bytes / 1e6:.0f} MB",
        )
    Console(width=None if sys.stdout.isatty() else 10_000, markup=False).print(table)


@deps.command()
@config_option
@click.option(
    "--unused-for",
    metavar="DAYS",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Remove layers that no run has used for so long; 0 removes all.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def prune(config_file: Path | None, unused_for: int, dry_run: bool) -> None:
    """Remove layers that are no longer used; a run that needs one makes it again."""
    from mcp_sandbox.dependencies.kept import forget
    from mcp_sandbox.engines.docker.layers import remove_layer

    configuration = _configuration(config_file, None)
    since = datetime.now(UTC) - timedelta(days=unused_for)
    old = [layer for layer, used in _layers(configuration) if used <= since]
    if dry_run:
        click.echo(f"{len(old)} layers would be removed.")
        return
    kept = 0
    with _connection(configuration).client() as client:
        for layer in old:
            if remove_layer(client, layer):
                forget(_folder(configuration), layer.key)
                click.echo(
                    f"removed {layer.key[:12]} ({visible(layer.labels.get('workspace', ''), limit=60)})"
                )
            else:
                kept += 1
                click.echo(f"kept {layer.key[:12]}: a sandbox runs on it", err=True)
    forget(_folder(configuration), before=since)
    click.echo(f"{len(old) - kept} layers removed.")


def _layers(configuration: Configuration) -> list[tuple[KeptLayer, datetime]]:
    """Return the layers on the engine, each with the time of its last use on this machine, or when it was made."""
    from mcp_sandbox.dependencies.kept import last_use
    from mcp_sandbox.engines.docker.layers import list_layers

    with _connection(configuration).client() as client:
        return [
            (layer, last_use(_folder(configuration), layer.key) or datetime.fromtimestamp(layer.created, UTC))
            for layer in list_layers(client)
        ]


def _as_json(layer: KeptLayer, used: datetime) -> dict[str, object]:
    return {
        "key": layer.key,
        "image": layer.id,
        "created": datetime.fromtimestamp(layer.created, UTC).isoformat(),
        "last_used": used.isoformat(),
        "bytes": layer.size_bytes,
        **layer.labels,
    }


def _folder(configuration: Configuration) -> Path:
    return Path(configuration.audit.path, "packages")


def _configuration(config_file: Path | None, workspace: str | None) -> Configuration:
    from mcp_sandbox.workspace import load_configuration

    return load_configuration(
        config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
    )


def _connection(configuration: Configuration) -> Connection:
    from mcp_sandbox.engines.docker.connection import connect

    return connect(configuration.engine.host, os.environ)
