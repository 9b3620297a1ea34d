"""`mcp-sandbox image`: the images that programs run in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli.options import config_option, current_folder
from mcp_sandbox.cli.progress import build_progress

if TYPE_CHECKING:
    from mcp_sandbox.engines.docker.connection import Connection


@click.group()
def image() -> None:
    """Build and list the images that programs run in."""


@image.command()
@click.option(
    "--base",
    metavar="IMAGE",
    help="Debian or Ubuntu with python3 3.11 or newer. Default: python:3.13-slim; where no registry can be "
    "reached, one made of Debian's packages.",
)
@click.option("--minimal", is_flag=True, help="Python and a shell alone, as mcp-sandbox/minimal.")
@click.option(
    "--ca-bundle",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar=["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"],
    show_envvar=True,
    help="Certificates to trust while packages are fetched; they do not stay in the image.",
)
@config_option
def build(base: str | None, minimal: bool, ca_bundle: Path | None, config_file: Path | None) -> None:
    """Build mcp-sandbox/standard: Python, a shell, and what people expect of a code interpreter.

    Packages come from the indexes of Debian and PyPI. PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST,
    HTTP_PROXY, HTTPS_PROXY and NO_PROXY are passed on.
    """
    from mcp_sandbox.engines.docker.images import build_image

    with _connection(config_file).client() as client, build_progress() as progress:
        built = build_image(client, base=base, minimal=minimal, ca_bundle=ca_bundle, progress=progress)
    click.echo(f"Built {built.name} on {built.base}: {built.size_bytes / 1e6:.0f} MB, {built.id}")


@image.command("list")
@config_option
def list_(config_file: Path | None) -> None:
    """List the images on the engine; a stale one is not what this version would build."""
    from datetime import UTC, datetime

    from rich import box
    from rich.console import Console
    from rich.table import Table

    from mcp_sandbox.engines.docker.images import list_images

    with _connection(config_file).client() as client:
        images = list_images(client)
    if not images:
        click.echo("No images yet. Run `mcp-sandbox image build` once.")
        return
    table = Table("image", "built", "by version", "size", "", box=box.SIMPLE)
    for found in images:
        table.add_row(
            found.name,
            f"{datetime.fromtimestamp(found.created, UTC):%Y-%m-%d}",
            found.version,
            f"{found.size_bytes / 1e6:.0f} MB",
            "current" if found.current else "stale",
        )
    Console().print(table)


def _connection(config_file: Path | None) -> Connection:
    from mcp_sandbox.engines.docker.connection import connect
    from mcp_sandbox.workspace import load_configuration

    configuration = load_configuration(
        config_file=config_file, workspace=None, environ=os.environ, cwd=current_folder()
    )
    return connect(configuration.engine.host, os.environ)
