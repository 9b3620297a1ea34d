"""Which folders' files the user has read and agreed to: by exact content, as direnv does.

One file per agreement, named by what was agreed to; what is in it is for people and never read. A changed
file, or the same file in another folder, has another name, and so is not trusted.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_sandbox.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_sandbox.config.files import FolderFile


@dataclass(frozen=True)
class Trust:
    """The agreements that a state folder holds."""

    state: Path

    def covers(self, folder_file: FolderFile) -> bool:
        """Tell whether the user agreed to exactly this content in exactly this folder."""
        try:
            found = self._agreement(folder_file).lstat()
        except OSError:
            return False
        return found.st_uid == os.getuid()

    def record(self, folder_file: FolderFile) -> None:
        """Record that the user agrees.

        Raises:
            ConfigError: It cannot be recorded.
        """
        agreement = self._agreement(folder_file)
        try:
            agreement.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            agreement.write_text(f"{folder_file.folder}\n", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError(
                f"{agreement.parent} cannot be written: {error.strerror}.", next_step="Make it writable."
            ) from error

    def _agreement(self, folder_file: FolderFile) -> Path:
        folder = hashlib.sha256(os.fsencode(folder_file.folder)).hexdigest()
        content = hashlib.sha256(folder_file.content).hexdigest()
        return self.state / "trusted" / f"{folder[:32]}-{content}"
