"""Whether a server that a client will start can do its work: the image, the doctor's verdict, a first call."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from mcp_sandbox.errors import SandboxError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcp_sandbox.clients.launch import Launch
    from mcp_sandbox.clients.table import Client
    from mcp_sandbox.config.policy import Configuration


def is_ready(configurations: Sequence[Configuration], config_file: Path | None, *, yes: bool) -> bool:
    """Offer to build images that are missing, say what the doctor thinks, and return whether all is well.

    Raises:
        SandboxError: An image could not be built.
    """
    different = {
        configuration.policy.policy_hash(): configuration for configuration in configurations
    }.values()
    for image in dict.fromkeys(configuration.policy.image for configuration in different):
        _offer(image, different, config_file, yes=yes)
    # Each has its say, also after one that is not well.
    verdicts = [anyio.run(_is_healthy, configuration) for configuration in different]
    return all(verdicts)


def _offer(
    image: str, configurations: Iterable[Configuration], config_file: Path | None, *, yes: bool
) -> None:
    from mcp_sandbox.app import image_now
    from mcp_sandbox.cli.image import build
    from mcp_sandbox.engines.docker.images import MINIMAL, STANDARD

    full_name = image if ":" in image else f"{image}:latest"
    if full_name not in (MINIMAL, STANDARD):
        return
    try:
        if anyio.run(image_now, next(iter(configurations)), os.environ, image):
            return
    except SandboxError:
        return  # the doctor says why
    question = f"The image {image} is missing. Build it now? It takes some minutes."
    if not yes and not (sys.stdin.isatty() and click.confirm(question, default=True, err=True)):
        return
    arguments = ["--minimal"] if full_name == MINIMAL else []
    if config_file is not None:
        arguments += ["--config", str(config_file)]
    # As if it had been typed: what the environment says of certificates is read there.
    build.main(arguments, prog_name="mcp-sandbox image build", standalone_mode=False)


async def _is_healthy(configuration: Configuration) -> bool:
    from rich.console import Console

    from mcp_sandbox.cli.doctor import print_finding
    from mcp_sandbox.doctor.checks import examine

    findings = [finding async for finding in examine(configuration, os.environ)]
    failed = [finding for finding in findings if finding.state == "failed"]
    for finding in failed:
        print_finding(Console(highlight=False), finding)
    warnings = sum(finding.state == "warning" for finding in findings)
    verdict = (
        f"{len(failed)} of {len(findings)} checks failed" if failed else f"{len(findings)} checks, all well"
    )
    noted = f"; {warnings} notes, which `mcp-sandbox doctor` shows" if warnings else ""
    click.echo(f"Doctor, workspace {configuration.policy.workspace}: {verdict}{noted}")
    return not failed


def answers(clients: Iterable[Client]) -> bool:
    """Start every server of ours that clients would start, say whether it answers a call, and return whether all do."""
    from mcp_sandbox.clients.file import client_file

    well = True
    for client in clients:
        try:
            launches = client_file(client, Path.home(), os.environ).ours
        except SandboxError as error:
            click.echo(f"mcp-sandbox: {client.title}: {error}", err=True)
            well = False
            continue
        for name, launch in launches.items():
            well = _answers(f"{client.title}: `{visible(name, limit=64)}`", launch) and well
    return well


def _answers(entry: str, launch: Launch) -> bool:
    from mcp_sandbox.server.first_call import first_call

    problem = anyio.run(first_call, launch)
    if problem:
        click.echo(f"{entry} does not work: {problem}", err=True)
        return False
    click.echo(f"{entry} was started as the client does it, and answered a call")
    return True
