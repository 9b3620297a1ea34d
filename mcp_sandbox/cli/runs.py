"""`mcp-sandbox runs`: what ran, with what, and what came of it.

What a record holds was written by models and programs: all of it that is printed for people passes through
`visible`, and nowhere is it read as markup.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from mcp_sandbox.cli import FAILED
from mcp_sandbox.cli.options import config_option, json_option, moment, record_folder
from mcp_sandbox.cli.printing import console, duration, print_json, table, when
from mcp_sandbox.cli.replay import diff, replay
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from rich.table import Table

    from mcp_sandbox.audit.findings import Verification
    from mcp_sandbox.audit.query import RunRecord, RunSummary, WorkspaceStats

FOUND_FAULTS = 1
"""Exit status of `verify` where something is not as it was recorded."""

SHOWN_CHARACTERS = 4000
"""How much of a program's output `show` prints of each stream."""

SHOWN_CONNECTIONS = 20
"""How many of a run's connections `show` lists; `policy log` lists all."""

BAR_WIDTH = 16


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Read a size with its unit."""
    from mcp_sandbox.config.sizes import parse_size

    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}", ctx, param) from None


run_argument = click.argument("run_id", metavar="RUN|last")


@click.group()
def runs() -> None:
    """Look at the record of what ran.

    RUN is a run's name or its first letters; `last` is the newest.
    """


@runs.command("list")
@config_option
@click.option("--workspace", metavar="NAME", help="Only runs of this workspace.")
@click.option("--status", metavar="STATUS", help="Only exited, timed_out, refused, ...")
@click.option(
    "--since", metavar="AGE|DATE", callback=moment, help="Only runs opened since: 90m, 2h, 30d, or a date."
)
@click.option("--code", metavar="TEXT", help="Only programs that hold this text.")
@click.option("--artifact", metavar="FILE", help="Only runs that made this file: its name, path or SHA-256.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@json_option
def list_(
    config_file: Path | None,
    workspace: str | None,
    status: str | None,
    since: datetime | None,
    code: str | None,
    artifact: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    from mcp_sandbox.audit.query import reading

    with reading(record_folder(config_file)) as reader:
        found = reader.list(
            workspace=workspace,
            status=status,
            since=since,
            code_contains=code,
            artifact=artifact,
            limit=limit,
        )
    if as_json:
        print_json([run.model_dump(mode="json") for run in found])
    elif found:
        console().print(_table_of_runs(found))
    else:
        click.echo("No run on the record fits.", err=True)


@runs.command()
@config_option
@run_argument
@json_option
def show(config_file: Path | None, run_id: str, as_json: bool) -> None:
    """Show one run: who asked, the program, what came of it."""
    from mcp_sandbox.audit.query import reading

    with reading(record_folder(config_file)) as reader:
        run = reader.get(run_id)
        result = reader.result(run.summary.run_id)
    shown = {} if result is None else {"stdout": result.stdout, "stderr": result.stderr}
    if as_json:
        print_json({**run.model_dump(mode="json"), **shown})
    else:
        _print_run(run, shown)


@runs.command()
@config_option
@run_argument
@click.option("--stderr", is_flag=True, help="What it wrote to stderr instead of stdout.")
def output(config_file: Path | None, run_id: str, stderr: bool) -> None:
    """Print what a run wrote, as far as it was kept.

    Byte for byte into a file or a pipe; on a terminal, with what does not print escaped.
    """
    from mcp_sandbox.audit.query import reading

    with reading(record_folder(config_file)) as reader:
        written = reader.output(run_id, "stderr" if stderr else "stdout")
    if sys.stdout.isatty():
        click.echo(visible(written.decode("utf-8", "backslashreplace"), lines=True), nl=False)
    else:
        sys.stdout.buffer.write(written)


@runs.command()
@config_option
@run_argument
@click.option(
    "--out",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Copy them to this folder; nothing there is replaced.",
)
@json_option
def artifacts(config_file: Path | None, run_id: str, out: Path | None, as_json: bool) -> None:
    """List the files that came out of a run, and those that did not; or copy them out."""
    import anyio

    from mcp_sandbox.audit.store import AuditStore
    from mcp_sandbox.cli.out import copy_out
    from mcp_sandbox.cli.transfers import transfers

    store = AuditStore(record_folder(config_file).path)
    result = anyio.run(store.result, run_id)
    made, kept_back = (result.artifacts, result.artifacts_skipped) if result else ((), ())
    if as_json:
        print_json({"artifacts": [file.model_dump() for file in made],
                     "artifacts_skipped": [file.model_dump() for file in kept_back]})  # fmt: skip
    elif made:
        headings = ("path", ">bytes", "type", "sha256")
        rows = [(file.path, f"{file.size:,}", file.mime_type, file.sha256) for file in made]
        console().print(table(headings, rows, whole=4))
    for file in () if as_json else kept_back:
        click.echo(visible(f"not kept: {file.path}: {file.reason}"), err=True)
    if out is not None and result:
        with transfers() as shown:
            problems = anyio.run(copy_out, result, store, out, shown)
        for problem in problems:
            click.echo(visible(f"mcp-sandbox: not copied: {problem}"), err=True)
        if problems:
            raise SystemExit(FAILED)


@runs.command()
@config_option
@click.argument("run_id", metavar="[RUN|last]", required=False)
@click.option(
    "-o", "--output", "target", type=click.File("wb"), default="-", help="File to write, not stdout."
)
@click.option("--since", metavar="AGE|DATE", callback=moment, help="Without RUN: only runs opened since.")
@click.option("--no-contents", is_flag=True, help="Without RUN: leave out programs and outputs.")
def export(
    config_file: Path | None, run_id: str | None, target: IO[bytes], since: datetime | None, no_contents: bool
) -> None:
    """Write the record as JSON Lines, or one RUN as a tar file.

    A line is a record with its hash, chain by chain. The tar file holds all that is kept of the run, and sums to
    check it by.
    """
    from mcp_sandbox.audit.export import archive, json_lines
    from mcp_sandbox.audit.query import reading

    if run_id is not None and target.isatty():
        raise click.UsageError("a tar file is no text: give -o FILE, or a pipe")
    try:
        with reading(record_folder(config_file)) as reader:
            if run_id is not None:
                archive(reader, run_id, target)
            else:
                for line in json_lines(reader, since=since, contents=not no_contents):
                    target.write(line.encode("ascii") + b"\n")
        target.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"cannot write: {error.strerror}") from error


@runs.command()
@config_option
@click.option(
    "--expect-head", metavar="HEAD", default="", help="The head that an earlier verification printed."
)
@json_option
@click.pass_context
def verify(ctx: click.Context, config_file: Path | None, expect_head: str, as_json: bool) -> None:
    """Find what was altered or removed since it was recorded.

    Exit status 1 when something was. Keep the head that is printed somewhere else: with it, a later verification
    also finds a record that was cut short, or replaced as a whole.
    """
    from mcp_sandbox.audit import verify as verification

    folder = record_folder(config_file)
    with _progress("verifying", "records") as advance:
        found = verification.verify(folder, expect_head=expect_head, progress=advance)
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        _print_verification(found)
    ctx.exit(0 if found.ok else FOUND_FAULTS)


@runs.command()
@config_option
@click.option(
    "--older-than", metavar="AGE|DATE", callback=moment, help="Remove runs opened before: 90d, or a date."
)
@click.option(
    "--keep-size",
    metavar="SIZE",
    callback=_size,
    help="Remove the oldest until the record fits in so much: 5GB.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    config_file: Path | None, older_than: datetime | None, keep_size: int | None, dry_run: bool, yes: bool
) -> None:
    """Remove old runs, and put that on the record.

    What is left can still be verified. A head printed before may name what is gone: keep a new one.
    """
    from rich.filesize import decimal

    from mcp_sandbox.audit import prune as pruning

    if older_than is None and keep_size is None:
        raise click.UsageError("say what to remove: --older-than, --keep-size, or both")
    folder = record_folder(config_file)
    planned = pruning.prune(folder, older_than=older_than, keep_bytes=keep_size, dry_run=True)
    if dry_run:
        click.echo(
            f"{planned.runs:,} runs would be removed ({decimal(planned.bytes)} of records and contents)."
        )
        return
    if planned.runs and not yes:
        click.confirm(f"Remove {planned.runs:,} runs ({decimal(planned.bytes)})?", abort=True)
    with _progress("removing", "runs", planned.runs) as advance:
        removed = pruning.prune(folder, older_than=older_than, keep_bytes=keep_size, progress=advance)
    click.echo(f"{removed.runs:,} runs and {removed.files:,} files removed ({decimal(removed.bytes)}).")


@runs.command()
@config_option
@json_option
def stats(config_file: Path | None, as_json: bool) -> None:
    """Count runs, failures and durations for each workspace."""
    from mcp_sandbox.audit.query import reading

    with reading(record_folder(config_file)) as reader:
        found = reader.stats()
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
    elif found:
        console().print(_table_of_stats(found))
    else:
        click.echo("No run is on the record.", err=True)


runs.add_command(replay)
runs.add_command(diff)


# Printing


def _outcome(run: RunSummary) -> str:
    status = f"exit {run.exit_code}" if run.status == "exited" and run.exit_code is not None else run.status
    return status if run.error in {"", status} else f"{status}: {run.error}"


def _table_of_runs(found: Sequence[RunSummary]) -> Table:
    headings = ("run", "opened", "outcome", ">duration", "language", "workspace", "client")
    rows = [
        (
            run.run_id,
            when(run.opened_at)[:16],
            _outcome(run),
            duration(run.duration_ms),
            run.language,
            run.workspace,
            run.client,
        )
        for run in found
    ]
    return table(headings, rows, whole=4)


def _table_of_stats(found: Sequence[WorkspaceStats]) -> Table:
    headings = ("", ">runs", ">failed", ">median", ">95 %", ">longest", "workspace", "statuses")
    most = max(one.runs for one in found)
    rows = [
        (
            _bar(one.runs - one.failed, one.failed, most),
            f"{one.runs:,}",
            f"{one.failed:,} ({one.failed / one.runs:.0%})",
            *map(duration, (one.median_ms, one.p95_ms, one.longest_ms)),
            one.workspace or "-",
            ", ".join(f"{status} {count:,}" for status, count in sorted(one.statuses.items(), key=_by_count)),
        )
        for one in found
    ]
    return table(headings, rows, whole=7)


def _by_count(item: tuple[str, int]) -> int:
    return -item[1]


def _bar(fine: int, failed: int, most: int) -> str:
    """Return a bar, full for what went well, light for what failed; none is too short to be seen."""
    full, light = (max(round(BAR_WIDTH * count / most), 1 if count else 0) for count in (fine, failed))
    return "█" * full + "░" * light


def _facts(run: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield what is known of a run, by what it is called here."""
    opening, closing = run.opening["data"], run.closing["data"] if run.closing else {}
    result, error = closing.get("result") or {}, closing.get("error") or opening.get("error") or {}
    client = opening.get("client") or {}
    summary = run.summary
    yield "run", summary.run_id
    yield "opened", when(summary.opened_at)
    yield "status", ", ".join(filter(None, (_outcome(summary), result.get("signal"))))
    yield "error", error.get("message", "")
    yield "duration", duration(summary.duration_ms)
    for key, unit in (("cpu_ms", "ms"), ("peak_memory_bytes", "bytes")):
        yield key.rpartition("_")[0].replace("_", " "), f"{result[key]:,} {unit}" if result.get(key) else ""
    yield "workspace", summary.workspace
    yield (
        "asked by",
        " ".join(filter(None, (client.get("name"), client.get("version"), f"({summary.origin})"))),
    )
    yield "language", summary.language
    yield "timeout asked", f"{opening['timeout_seconds']} s" if opening.get("timeout_seconds") else ""
    yield "network asked", opening.get("network") or ""
    yield "environment", ", ".join(opening.get("environment", ()))
    yield "hint", result.get("hint", "")
    facts = dict(closing.get("facts") or {})
    for made in facts.pop("egress", ())[:SHOWN_CONNECTIONS]:
        sizes = f"{made['bytes_up']:,} bytes up, {made['bytes_down']:,} down"
        sizes += "".join(f", with {name}" for name in made.get("secrets", ()))
        yield "egress", f"{made['verdict']} {made['host']}:{made['port']}, {sizes}, {made['duration_ms']} ms"
    for fact, value in facts.items():
        yield fact.replace("_", " "), str(value)
    for artifact in result.get("artifacts", ()):
        yield "artifact", f"{artifact['path']} ({artifact['size']:,} bytes, {artifact['mime_type']})"
    for blocked in result.get("blocked", ()):
        yield "blocked", blocked["reason"]
    yield (
        "record",
        f"{run.opening['seq']} of {run.server}" + (f", {run.closing['seq']}" if run.closing else ""),
    )


def _print_run(run: RunRecord, shown: dict[str, str]) -> None:
    facts = [(name, value) for name, value in _facts(run) if value]
    console().print(table(("", ""), facts, whole=1))
    for title, text in (("program", run.code), *shown.items()):
        if text:
            click.echo(f"\n─── {title}")
            click.echo(visible(text[:SHOWN_CHARACTERS], lines=True).rstrip("\n"))
        if len(text) > SHOWN_CHARACTERS:
            click.echo(f"… {len(text) - SHOWN_CHARACTERS:,} characters more: see `output` and `export`")


def _print_verification(found: Verification) -> None:
    click.echo(
        f"{found.records:,} records of {found.runs:,} runs in {found.chains:,} chains, "
        f"{found.contents:,} contents, {found.pruned:,} records pruned."
    )
    for problem in found.problems:
        where = f"record {problem.seq} of {problem.server}: " if problem.seq is not None else ""
        run = f" (run {problem.run_id})" if problem.run_id else ""
        click.echo(f"{problem.fault:>10}  {visible(where + problem.message + run)}")
    for note in found.incomplete:
        click.echo(f"incomplete  {visible(note)}")
    click.echo("All is as it was recorded." if found.ok else f"{len(found.problems):,} faults.")
    click.echo(f"head: {found.head}")


@contextmanager
def _progress(title: str, unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show on stderr, where that is a terminal, how far a long command is; yield what counts."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.completed:,} " + unit), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
