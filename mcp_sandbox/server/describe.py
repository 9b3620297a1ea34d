"""What the model is told of its tools: made from the effective policy, so that what is said is what is enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.config.sizes import format_size

if TYPE_CHECKING:
    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.model import Language

MAX_CHARS = 2000
"""Claude Code cuts descriptions at 2 kB."""

_WHAT = {
    "python": "Run a Python program, as `python3 main.py`, in a fresh sandbox and return what it printed.",
    "shell": "Run a shell command (bash where the image has it) in a fresh sandbox and return what it printed.",
}


def describe(language: Language, policy: Policy) -> str:
    """Return the tool's description: what it does, what holds, what is there."""
    lines = [
        _WHAT[language],
        "Every call starts from nothing: no variable, file or process of an earlier call is left. "
        "Print only what you need.",
        _files(policy),
        _network(policy),
        _installed(policy),
        f"Limits: {policy.timeout_seconds:g} s unless you ask for up to {policy.max_timeout_seconds:g} s, "
        f"{format_size(policy.memory)} memory, {policy.cpus:g} CPU, {policy.pids_limit} processes, "
        f"{format_size(policy.scratch_size)} in /scratch; {format_size(policy.reply_limit)} of output is shown "
        "(head and tail).",
    ]
    if policy.unsafe:
        lines.append(f"Weakened by configuration: {', '.join(policy.unsafe)}.")
    return "\n".join(line for line in lines if line)[:MAX_CHARS]


def instructions(policy: Policy) -> str:
    """Return what the server as a whole says of itself."""
    return (
        "Runs Python and shell programs, each call in a fresh, locked-down container without network that is "
        "thrown away afterwards. Use it to compute, to check, and to read the person's files. "
        + _files(policy)
    )


def _files(policy: Policy) -> str:
    if policy.path:
        return (
            "The working directory is /scratch (writable, gone afterwards); the person's files appear in it, "
            'read-only, under their own names (and in /workspace), so `open("data.csv")` works.'
        )
    return "The working directory is /scratch (writable, gone afterwards); none of the person's files are visible."


def _network(policy: Policy) -> str:
    hosts = policy.egress.allow
    if not hosts:
        return "There is no network."
    named = ", ".join(hosts[:10]) + (f" and {len(hosts) - 10} more" if len(hosts) > 10 else "")
    return f"There is no network but these hosts, over HTTP(S) through the proxy that is set: {named}."


def _installed(policy: Policy) -> str:
    if policy.image.startswith("mcp-sandbox/standard"):
        return (
            "Installed: numpy, pandas, matplotlib, scipy, scikit-learn, pillow, openpyxl, requests and more; "
            "bash, coreutils, git, jq, ripgrep, sqlite3. Nothing can be installed during a call."
        )
    return f"Image: {policy.image}. Nothing can be installed during a call."
