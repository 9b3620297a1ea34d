"""`mcp-sandbox doctor`: whether sandboxes can run here, and whether they hold."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli.options import config_option, current_folder, workspace_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.doctor.finding import Finding
    from mcp_sandbox.doctor.prove import Verdict


@click.command()
@config_option
@workspace_option
@click.option("--prove", "proves", is_flag=True, help="Attack sandboxes on your engine, and see what holds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(
    ctx: click.Context, config_file: Path | None, workspace: str | None, proves: bool, as_json: bool
) -> None:
    """Tell whether sandboxes can run here, and what would make them safer.

    With --prove, 30 programs attack sandboxes of your workspace's own policy on your own engine. None of them
    does harm where it succeeds. The exit status is 0 when no check and no claim failed, else 1.
    """
    import anyio

    findings, verdicts = anyio.run(_doctor, config_file, workspace, proves, as_json)
    if as_json:
        click.echo(json.dumps(_as_data(findings, verdicts), indent=2, ensure_ascii=False))
    held = verdicts is None or (bool(verdicts) and all(verdict.held for verdict in verdicts))
    ctx.exit(0 if held and not any(finding.state == "failed" for finding in findings) else 1)


async def _doctor(
    config_file: Path | None, workspace: str | None, proves: bool, as_json: bool
) -> tuple[list[Finding], list[Verdict] | None]:
    from rich.console import Console

    from mcp_sandbox.doctor.checks import examine, failed
    from mcp_sandbox.errors import ConfigError
    from mcp_sandbox.workspace import load_configuration

    console = Console(highlight=False, quiet=as_json)
    findings: list[Finding] = []
    try:
        configuration = load_configuration(
            config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
        )
    except ConfigError as error:
        findings.append(failed("configuration", error))
        print_finding(console, findings[0])
        return findings, [] if proves else None
    async for finding in examine(configuration, os.environ):
        findings.append(finding)
        print_finding(console, finding)
    if not proves:
        return findings, None
    if not any(finding.check == "sandbox" and finding.state == "ok" for finding in findings):
        console.print("\nNo sandbox starts, so there is nothing to attack.")
        return findings, []
    return findings, await _prove(console, configuration)


async def _prove(console: Console, configuration: Configuration) -> list[Verdict]:
    from mcp_sandbox.doctor.checks import survey_of
    from mcp_sandbox.doctor.engine import is_gvisor
    from mcp_sandbox.doctor.prove import chosen, prove
    from mcp_sandbox.doctor.trial import trial

    surveyed = await survey_of(configuration, os.environ)
    runtime = "runsc" if is_gvisor(surveyed, configuration.policy) else "runc"
    attacks = chosen(runtime)
    shows_bait = configuration.policy.workspace_transfer != "copy" and surveyed.address.local
    async with trial(configuration, os.environ, shows_bait=shows_bait) as executor:
        with _progress(len(attacks), quiet=console.quiet) as progress:
            variables = surveyed.image.variables if surveyed.image else ()
            verdicts = await prove(
                executor,
                attacks,
                runtime,
                product=surveyed.facts.product,
                variables=variables,
                progress=progress,
            )
    _print_verdicts(console, verdicts)
    return verdicts


_MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]"}


def print_finding(console: Console, finding: Finding) -> None:
    """Show what one check found, and what to do about it."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 1))
    row.add_column(width=1)
    row.add_column(width=16)
    row.add_column(overflow="fold")
    row.add_row(_MARKS[finding.state], Text(finding.check), Text(finding.says))
    if finding.remedy:
        row.add_row("", "", Text(f"→ {finding.remedy}", style="bold"))
    console.print(Padding(row, 0))


def _print_verdicts(console: Console, verdicts: list[Verdict]) -> None:
    from rich.table import Table
    from rich.text import Text

    from mcp_sandbox.doctor.claims import CLAIMS

    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(width=1)
    table.add_column(ratio=3, overflow="fold")
    table.add_column(ratio=2, overflow="fold")
    for claim, sentence in CLAIMS.items():
        tried = [verdict for verdict in verdicts if verdict.claim == claim]
        if not tried:
            continue
        held = all(verdict.held for verdict in tried)
        table.add_row(_MARKS["ok" if held else "failed"], Text(sentence, style="bold"), "")
        for verdict in tried:
            happened = Text(verdict.happened, style="" if verdict.held else "red")
            if verdict.note:
                happened.append(f"\n{verdict.note}", style="dim")
            table.add_row(
                "" if verdict.held else _MARKS["failed"], Text(f"a program that {verdict.does}"), happened
            )
    console.print()
    console.print(table)
    claims = {verdict.claim for verdict in verdicts}
    broken = {verdict.claim for verdict in verdicts if not verdict.held}
    console.print(f"\n{len(verdicts)} attacks: {len(claims) - len(broken)} of {len(claims)} claims held.")


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Show how far it is, where somebody watches."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("attacking", total=total)
        yield lambda: bar.advance(task)


def _as_data(findings: list[Finding], verdicts: list[Verdict] | None) -> dict[str, object]:
    from mcp_sandbox.doctor.claims import CLAIMS

    data: dict[str, object] = {"checks": [finding.model_dump() for finding in findings]}
    if verdicts is not None:
        data["proof"] = [{**verdict.model_dump(), "sentence": CLAIMS[verdict.claim]} for verdict in verdicts]
    return data
