"""The one sentence of a result that says what to do next: ours alone, never made from program output."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from mcp_sandbox.config.sizes import format_size
from mcp_sandbox.guest.session import ARTIFACTS_SECONDS

if TYPE_CHECKING:
    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.guest.session import Report
    from mcp_sandbox.model import Status
    from mcp_sandbox.plan import Plan
    from mcp_sandbox.sandbox import Ending

OUTPUT_CUT = "Output was cut: print less, or only the part that matters."
NOTHING_SHOWN = "Nothing was printed and no file was left: a value is seen only where the program prints it."
FOR_MODELS = (OUTPUT_CUT, NOTHING_SHOWN)
"""Hints that say nothing to a person at a terminal."""

_UNREACHABLE = (
    "Network is unreachable",
    "ENETUNREACH",
    "No route to host",  # gVisor
    "EHOSTUNREACH",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Could not resolve host",
    "unable to resolve host",
    "EAI_AGAIN",  # Node
    "ENOTFOUND",
)
"""How programs say that they went for a network, or a name, past the proxy."""
_READ_ONLY = "Read-only file system"
_OF_A_NOTEBOOK = re.compile(rb"^[ \t]*(?:%%?|!)[ \t]*[a-zA-Z]", re.MULTILINE)


def hint_for(
    status: Status,
    report: Report,
    ending: Ending,
    planned: Plan,
    policy: Policy,
    *,
    network: str,
    program: str,
    files_missing: bool,
    truncated: bool,
) -> str:
    """Return the most useful next step after a run that ended like this; empty where there is none.

    `network` is what there is to say of hosts that it did not reach, `program` of how it is written.
    """
    if status == "timed_out":
        seconds = planned.program.timeout_seconds
        more = (
            f"ask for a longer timeout, up to {policy.max_timeout_seconds:g} s, or do less in one call"
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
    if files_missing:
        return (
            f"Not all files came out: the sandbox ended first, {ARTIFACTS_SECONDS:g} s after the program at most. "
            "Leave fewer or smaller ones."
        )
    return network or program or (OUTPUT_CUT if truncated else "")


def program_hint(planned: Plan, report: Report, said: str, *, left_files: bool) -> str:
    """Return what a program seems to expect that it cannot, such as a notebook; empty where nothing.

    `said` chooses among sentences of ours, as in `network_hint`.
    """
    end, program = report.end, planned.program
    if end is None:
        return ""
    if end.exit_code and _READ_ONLY in said:
        return (
            "Only the working folder and /tmp can be written to, and the person's files in it cannot be changed: "
            "write under a name that is not theirs."
        )
    if program.language != "python":
        return ""
    if end.exit_code == 0 and not (end.stdout or end.stderr or left_files):
        return NOTHING_SHOWN
    if end.exit_code == 1 and "SyntaxError" in said and _OF_A_NOTEBOOK.search(program.code):
        return (
            "Lines that begin with % or ! are a notebook's; this is plain Python. Leave them out, and call "
            "execute_shell for commands."
        )
    return ""


def network_hint(planned: Plan, policy: Policy, said: str, *, blocked: bool) -> str:
    """Return what to do about hosts that were not reached; empty where none was missed.

    `said` is what the program wrote: it chooses among sentences of ours, and no word of it gets into them.
    """
    if not blocked and not any(sign in said for sign in _UNREACHABLE):
        return ""
    if not policy.egress.allow:
        return (
            "There is no network in here, and no DNS. The person can allow hosts: `mcp-sandbox policy check HOST` "
            "says which line of the configuration does."
        )
    if planned.network == "none":
        return (
            'This call asked for network "none": without that it reaches the hosts that the workspace allows.'
        )
    if blocked:
        return (
            "Not all that it asked for is allowed: `blocked` says why and, for the person, which line of the "
            "configuration would allow it, where one would."
        )
    return (
        "There is no network in here but the proxy that HTTP_PROXY and HTTPS_PROXY name, and no DNS: what does not "
        "use it fails at once. Let the program use it (aiohttp: `trust_env=True`)."
    )
