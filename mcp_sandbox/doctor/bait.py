"""A folder that is shown to attacks, of a file that nothing but a read-only mount keeps from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.config.settings import MountSettings

if TYPE_CHECKING:
    from pathlib import Path


def bait(folder: Path) -> MountSettings:
    """Make the folder, and return how a policy shows it."""
    folder.mkdir()
    kept = folder / "kept.txt"
    kept.write_text("as it was")
    # Whoever a program is: on many machines it has the ids of the person whose files these are.
    kept.chmod(0o666)
    folder.chmod(0o777)
    return MountSettings(source=str(folder.resolve()), target="/bait")  # through a link nothing is shown
