"""Find the configuration, and the workspace in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import platformdirs

from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_configuration(
    *, config_file: Path | None, workspace: str | None, environ: Mapping[str, str], cwd: Path
) -> Configuration:
    """Return the configuration for a server that was started with these arguments, in this folder.

    Raises:
        ConfigError: It cannot be used: file, line and key are named.
    """
    uid, gid = os.getuid(), os.getgid()
    user = f"{uid}:{gid or uid}" if uid else "1000:1000"
    return Configuration(
        policy=Policy(user=user), audit=AuditSettings(path=str(platformdirs.user_state_path("mcp-sandbox")))
    )
