"""What a verification finds."""

from __future__ import annotations

from typing import Literal

from mcp_sandbox.model import Value

Fault = Literal["altered", "removed", "moved", "truncated", "missing", "unexpected", "damaged", "head"]
"""`moved`: out of order; `missing`: a content is gone; `unexpected`: there, and no record tells of it;
`damaged`: cannot be read; `head`: not the end that was kept elsewhere."""


class Problem(Value):
    """Something that is not as it was recorded."""

    fault: Fault
    message: str
    server: str = ""
    """Name of the chain."""
    seq: int | None = None
    """Number of the record in the chain."""
    run_id: str = ""


class Verification(Value):
    """What was looked at and what was found."""

    chains: int
    records: int
    runs: int
    contents: int
    pruned: int
    """Records whose removal is itself on the record."""
    problems: tuple[Problem, ...]
    incomplete: tuple[str, ...]
    """What a crash left; the next start or prune puts it right."""
    head: str
    """The ends of the chains, to be kept elsewhere and given to a later verification."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems
