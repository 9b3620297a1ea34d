"""What is wrong with a file, in plain words, with the line; never more than ten lines of it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_PROBLEMS = 10


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, as a sentence without its full stop."""

    words: str
    line: int | None = None
    """Counted from 1; None where it cannot be told truthfully."""


def refusal(file: str, problems: Iterable[Problem], *, next_step: str | None = None) -> ConfigError:
    """Return one error that names the file, the lines, and what is wrong there."""
    ordered = sorted(set(problems), key=lambda problem: (problem.line or 0, problem.words))
    sentences = [_sentence(problem) for problem in ordered[:SHOWN_PROBLEMS]]
    file = visible(file, limit=4096)
    if len(ordered) == 1:
        return ConfigError(f"{file}{', ' if ordered[0].line else ': '}{sentences[0]}", next_step=next_step)
    if len(ordered) > SHOWN_PROBLEMS:
        sentences.append(f"{len(ordered) - SHOWN_PROBLEMS} more.")
    return ConfigError(
        f"{file} has {len(ordered)} problems:\n  " + "\n  ".join(sentences), next_step=next_step
    )


def _sentence(problem: Problem) -> str:
    line = f"line {problem.line}: " if problem.line else ""
    return line + problem.words + ("" if problem.words.endswith("?") else ".")


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return "; did you mean `memory`?", or nothing where no valid name is near."""
    # Comparing takes time that grows with the square of the length.
    near = difflib.get_close_matches(name.lower(), valid, n=1) if len(name) <= 64 else []
    return f"; did you mean `{near[0]}`?" if near else ""
