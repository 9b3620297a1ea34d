"""A result as text: the same facts as the structured form, for clients that show their model only this."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_sandbox.model import ExecutionResult


MAX_FILES = 50
"""Files that an answer names: five hundred would take a model more room than all else in it."""


def abridged(result: ExecutionResult) -> ExecutionResult:
    """Return a result that names no more files than an answer should."""
    return result.model_copy(
        update={
            "artifacts": result.artifacts[:MAX_FILES],
            "artifacts_unnamed": max(0, len(result.artifacts) - MAX_FILES),
            "artifacts_skipped": result.artifacts_skipped[:MAX_FILES],
            "artifacts_skipped_unnamed": result.artifacts_skipped_unnamed
            + max(0, len(result.artifacts_skipped) - MAX_FILES),
        }
    )


def as_text(result: ExecutionResult) -> str:
    """Return the whole result as a person would read it."""
    parts = [headline(result)]
    if result.hint:
        parts.append(result.hint)
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if text:
            parts.append(f"--- {name}\n{text.rstrip()}")
    if result.artifacts:
        files = [f"{file.path} ({file.mime_type}, {file.size:,} bytes)" for file in result.artifacts]
        if result.artifacts_unnamed:
            files.append(f"and {result.artifacts_unnamed} more, which run://{result.run_id} names")
        # A model that made a report is asked for it next.
        copies = f"`mcp-sandbox runs artifacts {result.run_id} --out FOLDER` copies them for the person"
        parts.append(f"--- files: read_artifact reads them, {copies}\n" + "\n".join(files))
    if result.artifacts_skipped:
        skipped = [f"{file.path}: {file.reason}" for file in result.artifacts_skipped]
        if result.artifacts_skipped_unnamed:
            skipped.append(f"and {result.artifacts_skipped_unnamed:,} more")
        parts.append("--- files that stayed behind\n" + "\n".join(skipped))
    if result.blocked:
        parts.append("--- blocked\n" + "\n".join(refused.reason for refused in result.blocked))
    return "\n".join(parts)


def headline(result: ExecutionResult) -> str:
    """Return how the run ended, in one line."""
    facts = [_outcome(result)]
    if result.duration_ms is not None:
        facts.append(f"{result.duration_ms / 1000:.2f} s")
    if not result.stdout and not result.stderr:
        facts.append("no output")
    return f"{', '.join(facts)} (run {result.run_id})"


def _outcome(result: ExecutionResult) -> str:
    if result.status == "exited" and result.signal:
        return f"killed by {result.signal}"
    if result.status == "exited":
        return f"exit code {result.exit_code}"
    if result.status == "out_of_memory":
        return "out of memory"
    return result.status.replace("_", " ")
