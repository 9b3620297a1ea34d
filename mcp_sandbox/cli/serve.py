"""`mcp-sandbox serve`: the MCP server over stdio, or over HTTP on the loopback."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli.options import config_option, workspace_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_sandbox.config.policy import Configuration

    Server = Callable[[Configuration], Awaitable[int]]

DEFAULT_PORT = 8765


@click.command()
@config_option
@workspace_option
@click.option("--http", is_flag=True, help="Serve over HTTP, to clients on this machine that have the token.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help=f"Port for --http; {DEFAULT_PORT} by default, 0 for any."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token for --http; else MCP_SANDBOX_HTTP_TOKEN is read.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    config_file: Path | None = None,
    workspace: str | None = None,
    http: bool = False,
    port: int | None = None,
    token_file: Path | None = None,
) -> None:
    """Serve an MCP client over stdin and stdout until it goes away.

    Clients start this themselves. To see what they would see, run `mcp-sandbox run -c 'print(1)'`.

    With --http any number of clients are served, at http://127.0.0.1:PORT/mcp.
    """
    if not http and (port is not None or token_file is not None):
        raise click.UsageError("--port and --token-file are for --http")
    if sys.stderr is None:
        # Takes number 2, which the next socket would have, and with it what is logged and printed.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    server = _http(port, token_file) if http else _stdio()

    import anyio

    from mcp_sandbox.cli.options import current_folder
    from mcp_sandbox.workspace import load_configuration

    configuration = load_configuration(
        config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
    )
    ctx.exit(anyio.run(server, configuration))


def _stdio() -> Server:
    if sys.stdin is None or sys.stdout is None:
        raise click.UsageError("stdin and stdout must be open: an MCP client starts this and speaks there")
    if sys.stdin.isatty():
        click.echo(
            "mcp-sandbox: waiting for an MCP client on stdin; `mcp-sandbox --help` says more.", err=True
        )
    from mcp_sandbox.server import serve_stdio

    return serve_stdio


def _http(port: int | None, token_file: Path | None) -> Server:
    from mcp_sandbox.cli.token import TOKEN_VARIABLE, read_token

    token = read_token(token_file, os.environ)
    # What is started from here, such as the command of a secret, has no use for it.
    os.environ.pop(TOKEN_VARIABLE, None)
    from mcp_sandbox.server.http import serve_http

    return partial(serve_http, port=DEFAULT_PORT if port is None else port, token=token, announce=_announce)


def _announce(address: str) -> None:
    with suppress(OSError):  # whoever started it need not read that
        click.echo(address)
