"""The command line: a table of commands, each imported when it is called."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from contextlib import suppress
from typing import Any

import click

from mcp_sandbox import __version__
from mcp_sandbox.errors import SandboxError

COMMANDS = {
    "init": ("mcp_sandbox.cli.init:init", "Configure a workspace: a folder that programs may read."),
    "install": ("mcp_sandbox.cli.install:install", "Tell MCP clients to start this server."),
    "uninstall": ("mcp_sandbox.cli.install:uninstall", "Take this server out of MCP clients again."),
    "serve": ("mcp_sandbox.cli.serve:serve", "Serve an MCP client over stdin and stdout (the default)."),
    "run": ("mcp_sandbox.cli.run:run", "Run one program in a sandbox and show what it prints."),
    "shell": ("mcp_sandbox.cli.shell:shell", "Open a terminal in a sandbox, to look at what programs see."),
    "runs": ("mcp_sandbox.cli.runs:runs", "Look at the record of what ran."),
    "policy": ("mcp_sandbox.cli.policy:policy", "Tell which hosts runs may reach, and which they went for."),
    "config": ("mcp_sandbox.cli.config:config", "Show, check and trust configuration."),
    "doctor": ("mcp_sandbox.cli.doctor:doctor", "Check this machine, and prove the promises on its engine."),
    "deps": ("mcp_sandbox.cli.deps:deps", "Install packages from a lock, and look after them."),
    "image": ("mcp_sandbox.cli.image:image", "Build and list the images that programs run in."),
}
"""Command to the place of its implementation and its one-line help: `--help` imports none of them."""

FAILED = 125
"""Exit status where the sandbox failed, as of `docker run`."""


class LazyGroup(click.Group):
    """Commands by name; their modules, and all that those import, only when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a failure of ours is one sentence with a next step, not a traceback."""
        try:
            return super().invoke(ctx)
        except SandboxError as error:
            click.echo(f"mcp-sandbox: {error}", err=True)
            ctx.exit(FAILED)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Without a command it serves, which is what MCP clients start.",
)
@click.version_option(__version__, prog_name="mcp-sandbox")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run model-written code, each program in a fresh, locked-down, single-use container."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(LazyGroup.get_command(cli, ctx, "serve"))  # type: ignore[arg-type]  # it is in the table


def main() -> None:
    """Run the command line, and end the process with it."""
    status: str | int | None = 0
    try:
        cli(prog_name="mcp-sandbox")
    except SystemExit as end:
        status = end.code
    if not isinstance(status, int):
        sys.exit(status)
    # At once: a thread that still waits for an engine which does not answer would hold the process.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            if stream:  # None where it was closed before we came
                stream.flush()
    os._exit(status)
