"""`mcp-sandbox policy`: what egress was decided, and what would be."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli.options import (
    config_option,
    current_folder,
    json_option,
    moment,
    record_folder,
    workspace_option,
)
from mcp_sandbox.cli.printing import console, duration, print_json, table, when
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from mcp_sandbox.audit.decisions import EgressDecision
    from mcp_sandbox.egress.policy import Scheme
    from mcp_sandbox.policy_check import PolicyCheck

NOT_ALLOWED = 1
"""Exit status of `check` where no connection would be tried."""


@click.group()
def policy() -> None:
    """Tell which hosts runs may reach, and which they went for."""


@policy.command()
@config_option
@click.option("--run", metavar="RUN|last", help="Only of this run.")
@click.option("--workspace", metavar="NAME", help="Only of runs of this workspace.")
@click.option("--host", metavar="HOST", help="Only for this host; *.example.com for all below it.")
@click.option("--verdict", type=click.Choice(["allowed", "refused", "failed"]), help="Only those.")
@click.option(
    "--since", metavar="AGE|DATE", callback=moment, help="Only of runs opened since: 90m, 2h, 30d, or a date."
)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@json_option
def log(
    config_file: Path | None,
    run: str | None,
    workspace: str | None,
    host: str | None,
    verdict: str | None,
    since: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List egress decisions, the newest run's first: host, port, rule, bytes up and down, duration.

    A connection is listed once its run has ended.
    """
    from mcp_sandbox.audit.decisions import decisions
    from mcp_sandbox.audit.query import reading

    with reading(record_folder(config_file)) as reader:
        found = (
            made
            for made in decisions(reader, run=run, workspace=workspace, since=since)
            if (verdict is None or made.verdict == verdict) and (host is None or _is_about(made, host))
        )
        shown = list(islice(found, limit))
    if as_json:
        print_json([made.model_dump(mode="json") for made in shown])
    elif shown:
        _print_decisions(shown)
    else:
        click.echo("No egress decision on the record fits.", err=True)


def _is_about(made: EgressDecision, host: str) -> bool:
    wanted = host.lower().removesuffix(".")
    if wanted.startswith("*."):
        return (made.host or "").endswith(wanted[1:])
    return made.host == wanted


def _print_decisions(shown: Sequence[EgressDecision]) -> None:
    headings = ("time", "run", "verdict", "host", ">port", ">up", ">down", ">duration", "rule or reason")
    rows = [
        (
            when(made.time),
            made.run_id,
            made.verdict,
            made.host or "-",
            "-" if made.port is None else str(made.port),
            f"{made.bytes_up:,}",
            f"{made.bytes_down:,}",
            duration(made.duration_ms),
            ", with ".join(
                [made.rule if made.verdict == "allowed" and made.rule else made.reason, *made.secrets]
            ),
        )
        for made in shown
    ]
    console().print(table(headings, rows, whole=8))


@policy.command()
@config_option
@workspace_option
@click.argument("target", metavar="HOST[:PORT]")
@json_option
@click.pass_context
def check(
    ctx: click.Context, config_file: Path | None, workspace: str | None, target: str, as_json: bool
) -> None:
    """Tell whether runs may reach a host, and which line of which file decides; nothing is connected.

    Without PORT it is 443, for TLS. `http://HOST[:PORT]` and `https://HOST[:PORT]` ask for that alone. The exit status
    is 0 where a connection would be tried, 1 where it would be refused or has no address.
    """
    import anyio

    from mcp_sandbox.config.places import Places
    from mcp_sandbox.egress.dial import SystemResolver
    from mcp_sandbox.policy_check import check
    from mcp_sandbox.workspace import Invocation, find

    host, port, scheme = _target(target)
    places = Places.of_user()
    found = find(Invocation(config_file, workspace, os.environ, current_folder(), places))

    async def ask() -> PolicyCheck:
        return await check(found, host, port, scheme, resolve=SystemResolver())

    answer = anyio.run(ask)
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        _print_check(answer, places.config_file)
    ctx.exit(0 if answer.allowed else NOT_ALLOWED)


def _target(text: str) -> tuple[str, int, Scheme | None]:
    """Read what is asked for; the host is not canonical yet."""
    from mcp_sandbox.egress.policy import InvalidHost, split_authority

    said, separator, rest = text.partition("://")
    scheme: Scheme | None = None
    if separator:
        if said not in ("http", "https"):
            raise click.UsageError("only http and https can be allowed")
        scheme = "http" if said == "http" else "https"
        text = rest.removesuffix("/")
    try:
        host, port = split_authority(text)
    except InvalidHost as error:
        raise click.UsageError(f"{visible(text, limit=200)}: {error}") from None
    if port is None:
        scheme = scheme or "https"
        port = 443 if scheme == "https" else 80
    return host, port, scheme


def _print_check(answer: PolicyCheck, usual_file: Path) -> None:
    from mcp_sandbox.egress.policy import authority

    verdict = "allowed" if answer.allowed else "refused"
    click.echo(f"{verdict}: {authority(answer.host, answer.port)} in the workspace {answer.workspace}")
    click.echo(f"  {visible(answer.why)}")
    if answer.file is None:
        click.echo(f"  there is no configuration file; it would be {visible(str(usual_file), limit=4096)}")
    else:
        line = f" line {answer.line}" if answer.line else ": no line of it is about hosts of this workspace"
        click.echo(f"  {visible(answer.file, limit=4096)}{line}")
    if answer.addresses:
        click.echo(f"  resolves to {', '.join(answer.addresses)}")
    if answer.toml:
        click.echo("What would allow it:\n")
        click.echo(visible(answer.toml, lines=True))
