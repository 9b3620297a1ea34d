"""Where the invoking user's own files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible

APP = "mcp-sandbox"


@dataclass(frozen=True)
class Places:
    """Folders of the invoking user, as the system's conventions name them."""

    home: Path
    config_file: Path
    state: Path
    """Where the record of runs and the agreements of `config trust` are kept."""

    @classmethod
    def of_user(cls) -> Places:
        """Return the places of the user that this process runs as.

        Raises:
            ConfigError: The user has no home folder.
        """
        try:
            home = Path.home()
        except RuntimeError:
            raise ConfigError("This user has no home folder.", next_step="Set HOME.") from None
        config_file = platformdirs.user_config_path(APP) / "config.toml"
        state = platformdirs.user_state_path(APP)
        for path in (home, config_file, state):
            if not path.is_absolute():  # it would be another place in every folder
                raise ConfigError(
                    f"{visible(str(path), limit=200)} is not an absolute path.",
                    next_step="Correct HOME, or the XDG variables.",
                )
        return cls(home, config_file, state)

    def expand(self, path: str) -> Path:
        """Return a path with the home folder in place of a leading `~`."""
        return self.home / path[2:] if path == "~" or path.startswith("~/") else Path(path)
