"""How far an installation is, for whoever waits for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_sandbox.egress.record import EgressRecord


@dataclass(frozen=True)
class Installing:
    """Where an installation is."""

    step: int
    steps: int
    """0 while unknown."""
    line: str
    """What was said last, one line."""


@dataclass(frozen=True)
class Watch:
    """Who is told of an installation while it goes on."""

    progress: Callable[[Installing], None]
    connection: Callable[[EgressRecord], None]
