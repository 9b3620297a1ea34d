"""A user with a home folder of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.config.places import Places
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.workspace import load_configuration

if TYPE_CHECKING:
    from mcp_sandbox.config.policy import Configuration


@dataclass(frozen=True)
class User:
    home: Path

    @property
    def places(self) -> Places:
        return Places.of_user()

    def write(self, text: str) -> Path:
        """Write the user's own configuration."""
        self.places.config_file.parent.mkdir(parents=True, exist_ok=True)
        self.places.config_file.write_text(text, encoding="utf-8")
        return self.places.config_file

    def folder(self, name: str, own_file: str | None = None) -> Path:
        """Make a folder in the home folder, with an mcp-sandbox.toml where one is given."""
        folder = self.home / name
        folder.mkdir(parents=True, exist_ok=True)
        if own_file is not None:
            (folder / "mcp-sandbox.toml").write_text(own_file, encoding="utf-8")
        return folder

    def load(
        self,
        *,
        config_file: Path | None = None,
        workspace: str | None = None,
        cwd: Path = Path("/"),
        **environ: str,
    ) -> Configuration:
        return load_configuration(config_file=config_file, workspace=workspace, environ=environ, cwd=cwd)

    def refused(
        self,
        *,
        config_file: Path | None = None,
        workspace: str | None = None,
        cwd: Path = Path("/"),
        **environ: str,
    ) -> str:
        """Return the whole text of the error that loading ends in."""
        with pytest.raises(ConfigError) as caught:
            load_configuration(config_file=config_file, workspace=workspace, environ=environ, cwd=cwd)
        return str(caught.value)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    home = tmp_path / "home" / "me"
    home.mkdir(parents=True)
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(home))
    return User(home)
