"""The one sentence of a result that says what to do next: ours alone, never made from program output."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from mcp_sandbox.config.sizes import format_size

if TYPE_CHECKING:
    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.guest.session import Report
    from mcp_sandbox.model import Status
    from mcp_sandbox.plan import Plan
    from mcp_sandbox.sandbox import Ending

OUTPUT_CUT = "Output was cut: print less, or only the part that matters."


def hint_for(
    status: Status, report: Report, ending: Ending, planned: Plan, policy: Policy, *, truncated: bool
) -> str:
    """Return the most useful next step after a run that ended like this; empty where there is none."""
    if status == "timed_out":
        seconds = planned.program.timeout_seconds
        more = (
            f"ask for up to {policy.max_timeout_seconds:g} s with timeout_seconds, or do less in one call"
            if seconds < policy.max_timeout_seconds
            else "that is the most this workspace allows; do less in one call"
        )
        return f"Stopped after {seconds:g} s: {more}."
    if status == "out_of_memory":
        return f"The sandbox has {format_size(policy.memory)} of memory: work on the data in smaller pieces."
    if status == "lost" and ending.out_of_memory is None and ending.exit_code == 128 + signal.SIGKILL:
        return (
            f"The sandbox was killed, possibly for lack of memory: it has {format_size(policy.memory)}. "
            "Output so far is kept."
        )
    if status == "lost":
        return (
            f"The sandbox ended early ({report.lost_because}); output so far is kept. "
            "Other calls are unaffected."
        )
    if report.end and report.end.oom_kills:
        return f"A child process was killed for memory: the sandbox has {format_size(policy.memory)}."
    if truncated:
        return OUTPUT_CUT
    return ""
