"""`mcp-sandbox run`: one program, its output as it comes, its exit status as ours."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcp_sandbox.cli import FAILED
from mcp_sandbox.cli.options import config_option, current_folder, workspace_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_sandbox.cli.screen import Screen
    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.model import ExecutionRequest, ExecutionResult, Language, Network

TIMED_OUT = 124
"""Exit status of a program that was stopped at its deadline, as of timeout(1)."""
OUT_OF_MEMORY = 137
MAX_NAMED = 20
"""Files that are named one by one."""


@click.command(no_args_is_help=True)
@config_option
@workspace_option
@click.option("-c", "code", metavar="CODE", help="Run this Python program.")
@click.option("--shell", "command", metavar="COMMAND", help="Run this shell command.")
@click.argument("file", required=False, metavar="[FILE|-]")
@click.option("--timeout", metavar="SECONDS", type=float, help="Wall-clock limit.")
@click.option(
    "--network",
    type=click.Choice(["none", "allowlist"]),
    help="What it may reach: no host, or those that the workspace allows (the default).",
)
@click.option(
    "--out",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Copy the files that it makes to this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of the output.")
@click.pass_context
def run(
    ctx: click.Context,
    config_file: Path | None,
    workspace: str | None,
    code: str | None,
    command: str | None,
    file: str | None,
    timeout: float | None,
    network: Network | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run one program in a sandbox and show what it prints, as it prints it.

    The program is CODE, or a FILE (`-` reads it from stdin; *.sh is a shell script), or a shell COMMAND. The exit
    status is the program's own; 124 when it was stopped at its deadline, 137 when it ran out of memory, 125 when
    the sandbox failed.

    \b
    mcp-sandbox run -c 'print(6 * 7)'
    mcp-sandbox run --workspace ~/data --shell 'wc -l *.csv'
    mcp-sandbox run --timeout 60 --out results simulate.py
    """  # noqa: D301 - click reads the \b
    from mcp_sandbox.cli.interrupts import run_to_its_end
    from mcp_sandbox.model import ExecutionRequest
    from mcp_sandbox.workspace import load_configuration

    language, source = _program(code, command, file)
    configuration = load_configuration(
        config_file=config_file, workspace=workspace, environ=os.environ, cwd=current_folder()
    )
    request = ExecutionRequest(language=language, code=source, timeout_seconds=timeout, network=network)
    terminal = None if as_json else Terminal()
    try:
        result, problems = run_to_its_end(partial(_execute, configuration, request, terminal, out))
    finally:
        if terminal:
            terminal.give_back()
    if isinstance(result, signal.Signals):
        ctx.exit(128 + result)
    if terminal:
        _say_what_is_missing(result, terminal)
        say_how_it_ended(result, terminal.say)
    else:
        click.echo(result.model_dump_json(indent=2))
    for problem in problems:
        click.echo(f"mcp-sandbox: not copied: {problem}", err=True)
    ctx.exit(exit_status(result) or (FAILED if problems else 0))


def _program(code: str | None, command: str | None, file: str | None) -> tuple[Language, str]:
    given = [source for source in (code, command, file) if source is not None]
    if len(given) != 1:
        raise click.UsageError("give one program: -c CODE, --shell COMMAND, or FILE")
    if code is not None:
        return "python", code
    if command is not None:
        return "shell", command
    name = given[0]
    try:
        text = (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode("utf-8")
    except OSError as error:
        raise click.UsageError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{name} is not UTF-8") from None
    return ("shell" if name.endswith(".sh") else "python"), text


async def _execute(
    configuration: Configuration, request: ExecutionRequest, terminal: Terminal | None, out: Path | None
) -> tuple[ExecutionResult | signal.Signals, list[str]]:
    """Run it and copy its files out; return the result, or the signal where one came first, and what failed."""
    from mcp_sandbox.app import running
    from mcp_sandbox.cli.interrupts import unless_interrupted
    from mcp_sandbox.cli.out import copy_out
    from mcp_sandbox.cli.transfers import follow, transfers
    from mcp_sandbox.run import Run

    run = Run(terminal, terminal.installs) if terminal else Run()
    problems: list[str] = []

    async def work() -> ExecutionResult | signal.Signals:
        async with running(configuration, os.environ, origin="cli") as executor:
            try:
                with transfers(terminal.begin_line) if terminal else nullcontext() as shown:
                    if shown:
                        follow(run.progress, shown)
                    result = await executor.execute(request, run)
                    problems.extend(await copy_out(result, executor.record, out, shown) if out else [])
            except BrokenPipeError:
                return signal.SIGPIPE  # as of any program whose reader has seen enough
            return result

    return await unless_interrupted(work), problems


class Terminal:
    """Passes a program's output on to our own: byte for byte, but to a terminal only what stays on its screen."""

    def __init__(self) -> None:
        self.written = {"stdout": 0, "stderr": 0}
        self._screens: dict[str, Screen] = {}
        self._drew: set[str] = set()
        self._line_is_open = False
        self._said = False

    def write(self, stream: str, data: bytes) -> None:
        """Pass on the next bytes."""
        self.written[stream] += len(data)
        target = sys.stdout if stream == "stdout" else sys.stderr
        if target.isatty():
            data = self._screen(stream, target.encoding).feed(data)
            self._line_is_open = not data.endswith(b"\n")
            if b"\x1b" in data or b"\x0e" in data:  # else there is nothing to undo
                self._drew.add(stream)
        target.buffer.write(data)
        target.buffer.flush()

    write_tail = write

    def give_back(self) -> None:
        """Leave a terminal in the colours and modes that it was in before the program."""
        for stream in self._drew:
            target = sys.stdout if stream == "stdout" else sys.stderr
            with suppress(OSError):  # the window is gone
                target.buffer.write(self._screens[stream].end())
                target.buffer.flush()
        self._drew.clear()

    def _screen(self, stream: str, encoding: str) -> Screen:
        from mcp_sandbox.cli.screen import Screen

        if stream not in self._screens:
            self._screens[stream] = Screen(encoding, keys=False)
        return self._screens[stream]

    def begin_line(self) -> None:
        """Leave the line that the program began: what we say there would be taken for its own, or go over it."""
        if self._line_is_open:
            click.echo(err=True)
        self._line_is_open = False

    def say(self, words: str) -> None:
        """Say something of our own."""
        self.begin_line()
        click.echo(f"mcp-sandbox: {words}", err=True)

    def installs(self, _: object) -> None:
        """Say, once, what the run waits for."""
        if not self._said:
            self.say("installing packages, for the first run that needs them")
        self._said = True


def _say_what_is_missing(result: ExecutionResult, terminal: Terminal) -> None:
    for stream, total in (("stdout", result.stdout_bytes), ("stderr", result.stderr_bytes)):
        if total is not None and total > terminal.written[stream]:
            terminal.say(
                f"{total - terminal.written[stream]:,} bytes in the middle of {stream} are left out; "
                "output_limit in the configuration says how much is kept."
            )


def say_how_it_ended(result: ExecutionResult, say: Callable[[str], None]) -> None:
    """Tell a person which files came out, and what else there is to say of the end."""
    from mcp_sandbox.hints import FOR_MODELS
    from mcp_sandbox.server.render import headline

    for line in (*_files(result), *(f"blocked: {refused.reason}" for refused in result.blocked)):
        say(line)
    hint = "" if result.hint in FOR_MODELS else result.hint
    if result.status != "exited" or result.signal or hint:
        say(headline(result))
    if hint:
        say(hint)


def _files(result: ExecutionResult) -> Iterator[str]:
    """Yield what to say of the files that came out, and of those that did not."""
    for artifact in result.artifacts[:MAX_NAMED]:
        yield f"made {artifact.path} ({artifact.mime_type}, {artifact.size:,} bytes)"
    if len(result.artifacts) > MAX_NAMED:
        yield f"and {len(result.artifacts) - MAX_NAMED:,} more files"
    for skipped in result.artifacts_skipped[:MAX_NAMED]:
        yield f"not kept: {skipped.path}: {skipped.reason}"
    unnamed = result.artifacts_skipped_unnamed + max(0, len(result.artifacts_skipped) - MAX_NAMED)
    if unnamed:
        yield f"and {unnamed:,} more files that were not kept"


def exit_status(result: ExecutionResult) -> int:
    """Return the exit status that tells a shell how a run ended."""
    if result.status == "timed_out":
        return TIMED_OUT
    if result.status == "out_of_memory":
        return OUT_OF_MEMORY
    if result.signal:
        return 128 + signal.Signals[result.signal].value
    return FAILED if result.exit_code is None else result.exit_code
