"""How a client starts a server: the same for every client, whatever its file looks like."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPT, MODULE = "mcp-sandbox", "mcp_sandbox"


@dataclass(frozen=True)
class Launch:
    """A command, and what its environment has beside what the client gives every server."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def starts_us(self) -> bool:
        """Tell whether it starts this program: by its script, as a module, or through uvx, pipx and the like."""
        if PurePath(self.command).stem == SCRIPT:
            return True
        return any(
            arg in (SCRIPT, MODULE) or arg.startswith((f"{SCRIPT}=", f"{SCRIPT}@", f"{SCRIPT}["))
            for arg in self.args
        )
