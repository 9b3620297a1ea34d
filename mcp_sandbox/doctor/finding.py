"""What one check found."""

from __future__ import annotations

from typing import Literal

from mcp_sandbox.model import Value

State = Literal["ok", "warning", "failed"]
"""`failed`: sandboxes cannot run here, or would not be what they are said to be. `warning`: they would be better
with the remedy."""


class Finding(Value):
    """What one check found, and what to do about it."""

    check: str
    """What was looked at, in a word or two."""
    state: State
    says: str
    """What was found."""
    remedy: str = ""
    """What to do; empty where all is well."""
