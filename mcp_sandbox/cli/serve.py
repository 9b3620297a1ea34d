"""`mcp-sandbox serve`: the MCP server over stdio."""

from __future__ import annotations

import os
import sys
from pathlib import Path  # noqa: TC003 - click reads it

import click

from mcp_sandbox.cli.options import config_option, workspace_option


@click.command()
@config_option
@workspace_option
@click.pass_context
def serve(ctx: click.Context, config_file: Path | None = None, workspace: str | None = None) -> None:
    """Serve an MCP client over stdin and stdout until it goes away.

    Clients start this themselves. To see what they would see, run `mcp-sandbox run -c 'print(1)'`.
    """
    if sys.stdin is None or sys.stdout is None:
        raise click.UsageError("stdin and stdout must be open: an MCP client starts this and speaks there")
    if sys.stderr is None:
        # Takes number 2, which the next socket would have, and with it what is logged and printed.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stdin.isatty():
        click.echo(
            "mcp-sandbox: waiting for an MCP client on stdin; `mcp-sandbox --help` says more.", err=True
        )

    import anyio

    from mcp_sandbox.cli.options import current_folder
    from mcp_sandbox.server import serve_stdio
    from mcp_sandbox.workspace import load_configuration

    configuration = load_configuration(
        config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
    )
    ctx.exit(anyio.run(serve_stdio, configuration))
