"""How a client is to start this copy of the program: by absolute paths, whatever surrounds the client."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_sandbox.cli.options import current_folder
from mcp_sandbox.clients.launch import MODULE, SCRIPT, Launch
from mcp_sandbox.errors import ConfigError, SandboxError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.config.settings import FileSettings

_FINDS_FILES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME")
"""Variables that say where the configuration and the record are."""
_EXPANDED = re.compile(r"\$[A-Za-z_{]|\{(?:env|file):")
"""What one client or the other replaces in an entry."""


@dataclass(frozen=True)
class Entry:
    """One entry for the clients, and the configuration that its server will have."""

    name: str
    launch: Launch
    configuration: Configuration


def entries(asked: Sequence[str], *, name: str | None, config_file: Path | None) -> list[Entry]:
    """Return an entry for each workspace that is asked for: a name of the configuration, or a folder.

    Where none is, it is for the one workspace that is configured; where none is configured, the server looks for a
    folder itself, in what its client tells it.

    Raises:
        ConfigError: A workspace cannot be used, several are configured and none is named, or this copy of the program
            will not stay where it is.
    """
    from mcp_sandbox.workspace import load_configuration

    said = config_file or (Path(value) if (value := os.environ.get("MCP_SANDBOX_CONFIG")) else None)
    settings = _settings(said)
    command, env = [*this_program(), "serve"], _engine(settings.engine.host) | _given(_FINDS_FILES)
    if said is not None:
        command += ["--config", _absolute(str(said))]
    found = []
    chosen: Sequence[str | None] = asked or [_only(settings.workspaces)]
    for workspace in chosen:
        configuration = load_configuration(
            config_file=said, workspace=workspace, environ=os.environ, cwd=current_folder()
        )
        words = [*command]
        if workspace is not None:
            words += ["--workspace", _absolute(workspace) if _is_folder(workspace) else workspace]
        _refuse_what_is_expanded(words)
        launch = Launch(words[0], tuple(words[1:]), env)
        found.append(Entry(name or entry_name(workspace if asked else None), launch, configuration))
    return found


def entry_name(workspace: str | None) -> str:
    """Return what the entry for a workspace is called: letters that every client takes."""
    if workspace is None:
        return "sandbox"
    last = Path(_absolute(workspace)).name if _is_folder(workspace) else workspace
    return f"sandbox-{re.sub('[^A-Za-z0-9_-]+', '-', last).strip('-')[:32]}"


def this_program() -> list[str]:
    """Return the words that start this program, wherever they are said.

    Raises:
        ConfigError: It lies in a cache, which is emptied now and then.
    """
    prefix = Path(sys.prefix)
    if any((folder / "CACHEDIR.TAG").exists() for folder in prefix.parents):
        raise ConfigError(
            f"this copy of the program lies in a cache that is emptied: {visible(str(prefix), limit=4096)}.",
            next_step="Install it to stay (`uv tool install mcp-sandbox`, `pipx install mcp-sandbox`), then try again.",
        )
    script = shutil.which(sys.argv[0]) if Path(sys.argv[0]).stem == SCRIPT else None
    beside = Path(sys.executable).with_name(SCRIPT)
    if script or beside.exists():
        return [_absolute(script or str(beside))]
    # -P: else a folder of that name where a client happens to be would be started instead.
    return [sys.executable, "-P", "-m", MODULE]


def _settings(config_file: Path | None) -> FileSettings:
    from mcp_sandbox.config.places import Places
    from mcp_sandbox.config.settings import NO_FOLDER
    from mcp_sandbox.workspace import Invocation, find

    invocation = Invocation(config_file, NO_FOLDER, os.environ, current_folder(), Places.of_user())
    return find(invocation).user_file.settings


def _only(workspaces: Iterable[str]) -> str | None:
    names = sorted(workspaces)
    if len(names) > 1:
        raise ConfigError(
            f"several workspaces are configured: {', '.join(names)}.",
            next_step="Say which with --workspace NAME; given more than once, each gets an entry of its own.",
        )
    return names[0] if names else None


def _engine(host: str) -> dict[str, str]:
    """Return the variables that lead to the engine that is found now; none where none is found, as `doctor` tells."""
    from mcp_sandbox.engines.docker.address import variables_of

    try:
        return variables_of(host, os.environ, Path.home())
    except SandboxError:
        return {}


def _given(names: Sequence[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _is_folder(workspace: str) -> bool:
    return "/" in workspace or workspace.startswith((".", "~"))


def _absolute(path: str) -> str:
    """Return an absolute path; links in it stay, for what they lead to changes when a program is updated."""
    from mcp_sandbox.config.places import Places

    return str(current_folder() / Places.of_user().expand(path))


def _refuse_what_is_expanded(words: Sequence[str]) -> None:
    for word in words:
        if _EXPANDED.search(word):
            raise ConfigError(
                f"{visible(word, limit=4096)} has a part that some clients replace ($NAME, {{env:NAME}}).",
                next_step="Give the folder a name with `mcp-sandbox init`, and install that.",
            )
