"""`mcp-sandbox shell`: a terminal in a sandbox, under the restrictions of every run."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from mcp_sandbox.cli.options import config_option, workspace_option

if TYPE_CHECKING:
    from mcp_sandbox.config.policy import Configuration, Policy
    from mcp_sandbox.model import ExecutionRequest, ExecutionResult
    from mcp_sandbox.replay import Recorded

INTERACTIVE = 'exec "${BASH:-sh}"'
"""What runs at the terminal: bash where the image has it, for that is what reads this then."""


@click.command()
@config_option
@workspace_option
@click.option(
    "--run", "run_id", metavar="ID|last", help="Open it where that run ran: its image, files and limits."
)
@click.option(
    "--timeout", metavar="SECONDS", type=float, help="Wall-clock limit; the longest one without it."
)
@click.pass_context
def shell(
    ctx: click.Context,
    config_file: Path | None,
    workspace: str | None,
    run_id: str | None,
    timeout: float | None,
) -> None:
    """Open a terminal in a sandbox, to look at what programs see.

    It is a run like any other: the same image, limits, files, hosts and secrets, the same end at its deadline, and what
    it showed is on the record. With --run it has the image, files and limits of a recorded run, whose program stands
    there as main.py or main.sh, and its standard input as `stdin`. The exit status is the shell's.

    Ctrl-D or `exit` leaves. Ctrl-] three times leaves whatever the sandbox does.
    """
    from mcp_sandbox.cli import terminal
    from mcp_sandbox.cli.interrupts import run_to_its_end
    from mcp_sandbox.cli.run import Terminal, exit_status, say_how_it_ended

    if not terminal.is_there():
        raise click.UsageError(
            "stdin and stdout must be a terminal; `mcp-sandbox run --shell COMMAND` needs none"
        )
    configuration, request = anyio.run(_prepare, config_file, workspace, run_id)
    seconds = configuration.policy.max_timeout_seconds if timeout is None else timeout
    request = request.model_copy(update={"timeout_seconds": seconds})
    click.echo(
        f"mcp-sandbox: a sandbox of the workspace {configuration.policy.workspace}, for {seconds:g} s at most; "
        "`exit` leaves, Ctrl-] three times does so whatever happens.",
        err=True,
    )
    result = run_to_its_end(partial(_execute, configuration, request))
    if isinstance(result, signal.Signals):
        ctx.exit(128 + result)
    say_how_it_ended(result, Terminal().say)
    ctx.exit(exit_status(result))


async def _prepare(
    config_file: Path | None, workspace: str | None, run_id: str | None
) -> tuple[Configuration, ExecutionRequest]:
    """Return under which configuration to open it, and with what in it."""
    from mcp_sandbox.cli import terminal
    from mcp_sandbox.cli.replay import configuration_of
    from mcp_sandbox.model import ExecutionRequest, Terminal

    rows, columns = terminal.size()
    there = Terminal(rows=rows, columns=columns, kind=terminal.kind())
    files: tuple[tuple[str, bytes], ...] = ()
    if run_id is None:
        configuration = configuration_of(config_file, workspace)
    else:
        configuration, original = await _place_of(config_file, workspace, run_id)
        there = there.model_copy(update={"of_run": original.run.summary.run_id})
        files = tuple(files_of(original, configuration.policy).items())
    return configuration, ExecutionRequest(language="shell", code=INTERACTIVE, files=files, terminal=there)


async def _place_of(
    config_file: Path | None, workspace: str | None, run_id: str
) -> tuple[Configuration, Recorded]:
    """Return where a recorded run ran, as far as the configuration allows that now, and the run."""
    from mcp_sandbox.audit.store import AuditStore
    from mcp_sandbox.cli.replay import configuration_of, resolve
    from mcp_sandbox.config.settings import NO_FOLDER
    from mcp_sandbox.replay import policy_now, recorded, taken_out, workspace_changes
    from mcp_sandbox.visible import visible

    store = AuditStore(Path(configuration_of(config_file, NO_FOLDER).audit.path))
    original = await recorded(store, await resolve(store, run_id))
    # A folder, by its path; what has none, by its name.
    then = original.run.policy.get("path") or original.run.summary.workspace
    configuration = configuration_of(config_file, workspace or then)
    policy, differences = policy_now(original, configuration)
    differences += taken_out(original)
    differences += await workspace_changes(original, policy, configuration)
    for difference in differences:
        click.echo(f"not as then: {visible(difference)}", err=True)
    return configuration.model_copy(update={"policy": policy}), original


def files_of(original: Recorded, policy: Policy) -> dict[str, bytes]:
    """Return the files that a recorded run found, and beside them its program and its standard input."""
    files = dict(original.files)
    if original.run.summary.origin != "shell":  # there, what ran was such a terminal
        program = "main.py" if original.run.summary.language == "python" else "main.sh"
        # A workspace's own file of that name stays what it is, as it did then.
        while program in files or (policy.path and os.path.lexists(Path(policy.path, program))):
            program = f"_{program}"
        files[program] = original.run.code.encode("utf-8", "surrogatepass")
    if original.stdin:
        files.setdefault("stdin", original.stdin)
    return files


async def _execute(
    configuration: Configuration, request: ExecutionRequest
) -> ExecutionResult | signal.Signals:
    """Run it at this terminal; return the result, or the signal that came before it had begun."""
    from mcp_sandbox.app import running
    from mcp_sandbox.cli.interrupts import unless_interrupted
    from mcp_sandbox.cli.terminal import LentTerminal
    from mcp_sandbox.run import Run

    run = Run()
    run.at_terminal = LentTerminal(run)

    async def work() -> ExecutionResult:
        async with running(configuration, os.environ, origin="shell") as executor:
            return await executor.execute(request, run)

    def stop() -> bool:
        run.stop.request()  # in order: what it showed is recorded
        return run.stop.has_begun

    return await unless_interrupted(work, stop)
