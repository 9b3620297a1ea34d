"""What is said of a run that has ended: one consistent account, from what the agent, the engine and we know.

Above: `executor`. Below: `run`, `streams`, `hints`.
"""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

from mcp_sandbox.capture import share
from mcp_sandbox.hints import hint_for, network_hint, program_hint
from mcp_sandbox.model import Blocked, ExecutionResult, Status
from mcp_sandbox.streams import Streams

if TYPE_CHECKING:
    from mcp_sandbox.artifacts import ArtifactCollector
    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.guest.protocol import End
    from mcp_sandbox.guest.session import Report, Stream
    from mcp_sandbox.plan import Plan
    from mcp_sandbox.redact import Redactor
    from mcp_sandbox.run import Run
    from mcp_sandbox.sandbox import Ending

MAX_BLOCKED = 20
"""Refused connections that a result names; the record has all."""


def settle(
    run: Run,
    planned: Plan,
    report: Report,
    ending: Ending,
    files: ArtifactCollector | None,
    policy: Policy,
) -> ExecutionResult:
    """Return the one consistent account of a run."""
    streams = run.streams or Streams(planned.program, None)
    redactor = streams.redactor
    end = report.end
    streams.settle(end)
    status: Status = "cancelled" if run.stop.requested and report.deadline_passed else _status(report, ending)
    budgets = share(policy.reply_limit, streams.stdout.wanted(), streams.stderr.wanted())
    stdout = streams.stdout.show(budgets[0], partial(read_on, run.run_id, "stdout"))
    stderr = streams.stderr.show(budgets[1], partial(read_on, run.run_id, "stderr"))
    truncated = bool(stdout.dropped or stderr.dropped)
    blocked = _blocked(run, redactor)
    # What a program prints that fares well may be about anything.
    failed = end is None or end.exit_code != 0
    said = stderr.text + (stdout.text if failed else "")
    hint = hint_for(
        status,
        report,
        ending,
        planned,
        policy,
        network=network_hint(planned, policy, said, blocked=bool(blocked)),
        program=program_hint(
            planned, report, said, left_files=bool(files and (files.artifacts or files.skipped))
        ),
        files_missing=files is not None
        and planned.program.artifacts.files > 0
        and report.artifacts_refused is None,
        truncated=truncated,
    )
    own_end = end is not None and end.reason == "exited"
    return ExecutionResult(
        run_id=run.run_id,
        status=status,
        exit_code=end.exit_code if end and own_end else None,
        signal=_signal_name(end) if own_end else None,
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_bytes=end.stdout if end else None,
        stderr_bytes=end.stderr if end else None,
        truncated=truncated,
        duration_ms=end.duration_ns // 1_000_000 if end else None,
        cpu_ms=end.cpu_us // 1000 if end else None,
        peak_memory_bytes=end.peak_bytes if end else None,
        artifacts=tuple(files.artifacts) if files else (),
        artifacts_skipped=tuple(files.skipped) if files else (),
        artifacts_skipped_unnamed=files.count_skipped(report.artifacts_refused) - len(files.skipped)
        if files
        else 0,
        blocked=blocked,
        hint=redactor.text(hint),
    )


def _blocked(run: Run, redactor: Redactor) -> tuple[Blocked, ...]:
    """Return what the egress policy refused, each once: programs try again."""
    refused = (
        Blocked(host=redactor.text(made.host or ""), port=made.port or 0, reason=redactor.text(made.reason))
        for made in run.connections
        if made.verdict == "refused"
    )
    return tuple(dict.fromkeys(refused))[:MAX_BLOCKED]


def read_on(run_id: str, stream: Stream, offset: int) -> str:
    """Say how the rest of a stream is to be had, once the run has ended."""
    return f'read_artifact(run_id="{run_id}", path="{stream}.txt", offset={offset}) has the rest'


def _status(report: Report, ending: Ending) -> Status:
    end = report.end
    if report.deadline_passed or (end and end.reason == "deadline"):
        return "timed_out"
    if end is None:
        return "out_of_memory" if ending.out_of_memory else "lost"
    # A shell that runs a program which is killed for memory ends with 128 + 9, by its own choice.
    if end.oom_kills and (end.signal == signal.SIGKILL or end.exit_code == 128 + signal.SIGKILL):
        return "out_of_memory"
    return "exited"


def _signal_name(end: End | None) -> str | None:
    if end is None or end.signal is None:
        return None
    try:
        return signal.Signals(end.signal).name
    except ValueError:
        return f"SIG{end.signal}"
