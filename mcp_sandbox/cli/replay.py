"""`mcp-sandbox runs replay` and `diff`: run a record again, or hold two of them side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from mcp_sandbox.cli.options import config_option, current_folder, workspace_option
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from mcp_sandbox.audit.store import AuditStore
    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.replay import Comparison

DIFFERENT = 1


@click.command()
@config_option
@workspace_option
@click.option("--force", is_flag=True, help="Run it though the workspace or the policy is not what it was.")
@click.option(
    "--from-export",
    "export",
    type=click.File("rb"),
    metavar="FILE",
    help="A run from another machine, instead of ID: a tar file as `export` writes it.",
)
@click.argument("run_id", metavar="[ID|last]", required=False)
@click.pass_context
def replay(
    ctx: click.Context,
    config_file: Path | None,
    workspace: str | None,
    force: bool,
    export: BinaryIO | None,
    run_id: str | None,
) -> None:
    """Run a recorded program again and compare.

    The same image, code, files, stdin and limits, in a fresh sandbox, and never with more than the configuration
    allows now. What differs beforehand is said; then it runs only with --force. The exit status is 0 where all is the
    same, 1 where something differs, 125 where it could not be run. The workspace is the one of then, unless
    --workspace says another.
    """
    import anyio

    if (export is None) == (run_id is None):
        raise click.UsageError("give one run: ID, or --from-export FILE")
    comparison = anyio.run(_replay, config_file, workspace, run_id or "", export, force)
    _tell(comparison)
    ctx.exit(0 if comparison.same else DIFFERENT)


@click.command()
@config_option
@click.argument("one")
@click.argument("other")
@click.pass_context
def diff(ctx: click.Context, config_file: Path | None, one: str, other: str) -> None:
    """Tell what differs between the ends, outputs and files of two runs."""
    import anyio

    comparison = anyio.run(_diff, config_file, one, other)
    _tell(comparison)
    ctx.exit(0 if comparison.same else DIFFERENT)


async def _replay(
    config_file: Path | None, workspace: str | None, run_id: str, export: BinaryIO | None, force: bool
) -> Comparison:
    from mcp_sandbox.audit.store import AuditStore
    from mcp_sandbox.config.settings import NO_FOLDER
    from mcp_sandbox.errors import RequestRefused
    from mcp_sandbox.replay import (
        image_changes,
        policy_now,
        recorded,
        recorded_elsewhere,
        replay,
        taken_out,
        workspace_changes,
    )

    if export is not None:
        original = recorded_elsewhere(export)
    else:
        store = AuditStore(Path(configuration_of(config_file, NO_FOLDER).audit.path))
        original = await recorded(store, await resolve(store, run_id))
    # A folder, by its path; what has none, by its name.
    then = original.run.policy.get("path") or original.run.summary.workspace
    configuration = configuration_of(config_file, workspace or then)
    policy, differences = policy_now(original, configuration)
    differences += await image_changes(original, policy, configuration)
    differences += taken_out(original)
    differences += await workspace_changes(original, policy, configuration)
    for difference in differences:
        click.echo(f"not as then: {visible(difference)}", err=True)
    if differences and not force:
        raise RequestRefused(
            "this is not what it was then, so it was not run.", next_step="Run it all the same with --force."
        )
    return await replay(original, policy, configuration)


async def _diff(config_file: Path | None, one: str, other: str) -> Comparison:
    from mcp_sandbox.audit.store import AuditStore
    from mcp_sandbox.replay import compare, recorded

    store = AuditStore(Path(configuration_of(config_file, None).audit.path))
    first = await recorded(store, await resolve(store, one))
    second = await recorded(store, await resolve(store, other))
    return compare(first.result, (first.stdout, first.stderr), second.result, (second.stdout, second.stderr))


async def resolve(store: AuditStore, run_id: str) -> str:
    """Return the name of a run, `last` being the newest one's."""
    if run_id != "last":
        return run_id
    recent = await store.recent(1)
    return recent[0].run_id if recent else run_id


def configuration_of(config_file: Path | None, workspace: str | None) -> Configuration:
    """Return the configuration for a command that was started here.

    Raises:
        ConfigError: It cannot be used.
    """
    from mcp_sandbox.workspace import load_configuration

    return load_configuration(
        config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
    )


def _tell(comparison: Comparison) -> None:
    for difference in comparison.differences:
        click.echo(visible(difference, lines=True))
    word = "the same" if comparison.same else "different"
    click.echo(f"{comparison.original} and {comparison.replay}: {word}")
