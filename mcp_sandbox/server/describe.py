"""What the model is told of its tools: made from the effective policy, so that what is said is what is enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.config.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.model import Language

MAX_BYTES = 2000
"""Claude Code cuts descriptions at 2 kB: what is listed is shortened, so that no limit is left unsaid."""
_LIST_BYTES = 400

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
        *_files_out(policy),
        _network(policy),
        *_secrets(language, policy),
        _installed(policy),
        *_packages(policy),
        f"Limits: {policy.timeout_seconds:g} s unless you ask for up to {policy.max_timeout_seconds:g} s, "
        f"{format_size(policy.memory)} memory, {policy.cpus:g} CPU, {policy.pids_limit} processes, "
        f"{format_size(policy.scratch_size)} in /scratch; {format_size(policy.reply_limit)} of output is shown "
        "(head and tail).",
    ]
    if policy.unsafe:
        lines.append(f"Weakened by configuration: {', '.join(policy.unsafe)}.")
    return "\n".join(lines)


def instructions(policy: Policy) -> str:
    """Return what the server as a whole says of itself."""
    return (
        "Runs Python and shell programs, each call in a fresh, locked-down container that is thrown away "
        "afterwards. Use it to compute, to check, and to read the person's files. "
        f"{_files(policy)} {_network(policy)}"
    )


def _files(policy: Policy) -> str:
    said = "The working directory is /scratch (writable, gone afterwards); "
    if policy.path:
        said += (
            "the person's files appear in it, read-only, under their own names (and in /workspace), "
            'so `open("data.csv")` works.'
        )
    elif not policy.mounts:
        said += "none of the person's files are visible."
    if policy.mounts:
        folders = _some([mount.target for mount in policy.mounts])
        said += (
            f" More of them, read-only: {folders}."
            if policy.path
            else f"the person's files are in {folders}."
        )
    if policy.path or policy.mounts:
        said += " Files that may hold credentials, such as .env, are hidden."
    return said


def _files_out(policy: Policy) -> Sequence[str]:
    if not policy.artifact_count:
        return ()
    figures = ", and figures that are shown or left open" if _is_standard(policy) else ""
    return (f"Files that a program leaves in /scratch come back{figures}; pictures among them are shown.",)


def _network(policy: Policy) -> str:
    hosts = policy.egress.allow
    if not hosts:
        return "There is no network."
    return f"There is no network but these hosts, over HTTP(S) through the proxy that is set: {_some(hosts)}."


def _secrets(language: Language, policy: Policy) -> Sequence[str]:
    uses = policy.secrets_of(language)
    given = [name for name, use in uses.items() if not use.hosts]
    bound = [f"{name} ({' '.join(use.hosts)})" for name, use in uses.items() if use.hosts]
    said = []
    if given:
        said.append(
            f"Environment variables with secrets: {_some(given)}. Use them without printing them: "
            "their values are taken out of what comes back."
        )
    if bound:
        said.append(
            f"Environment variables that stand for secrets: {_some(bound)}. Send them as they are, in a header of an "
            "https request to the host named: the value is put in on the way."
        )
    return said


def _some(names: Sequence[str]) -> str:
    """Name as many as there is room for, and tell how many more there are."""
    named = ""
    for count, name in enumerate(names):
        if len(named) + len(name) > _LIST_BYTES:
            return f"{named or name[:_LIST_BYTES]} and {len(names) - count} more"
        named += f", {name}" if named else name
    return named


def _is_standard(policy: Policy) -> bool:
    return policy.image.startswith("mcp-sandbox/standard")


def _packages(policy: Policy) -> Sequence[str]:
    dependencies = policy.dependencies
    said = []
    if dependencies.lock:
        said.append(f"Installed besides: the packages of {dependencies.lock.rpartition('/')[2]}.")
    if dependencies.inline == "allow":
        names = "any package" if "*" in dependencies.inline_names else _some(dependencies.inline_names)
        said.append(
            f"A Python program may name packages in a `# /// script` block (PEP 723): {names}. "
            "It then finds those alone; the first time takes a while."
        )
    return said


def _installed(policy: Policy) -> str:
    if _is_standard(policy):
        return (
            "Installed: numpy, pandas, matplotlib, plotly, scipy, scikit-learn, pillow, openpyxl, requests and more; "
            "bash, coreutils, git, jq, ripgrep, sqlite3. Nothing can be installed during a call."
        )
    return f"Image: {policy.image}. Nothing can be installed during a call."
