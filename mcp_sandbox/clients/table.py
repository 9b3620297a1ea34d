"""Every client that `install` knows: the one place that says where its file lies and how an entry looks in it.

The installer, its snippets, the README and `doctor` are made from this table. Paths are as the clients' own documents
give them.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcp_sandbox.clients.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Mapping

Format = Literal["json", "jsonc", "toml"]
"""`json` is read by `JSON.parse`, which takes no comments; `jsonc` allows comments and trailing commas."""

_CONFIG = ("XDG_CONFIG_HOME", "~/.config")


@dataclass(frozen=True)
class Shape:
    """How an entry is written."""

    kind: str = ""
    """Value of `type`; empty where there is no such key."""
    env: str = "env"
    """Name of the table of environment variables."""
    one_list: bool = False
    """Whether command and arguments are one list, under `command`."""

    def entry(self, launch: Launch) -> dict[str, Any]:
        """Return the entry that starts a server so."""
        entry: dict[str, Any] = {"type": self.kind} if self.kind else {}
        if self.one_list:
            entry["command"] = [launch.command, *launch.args]
        else:
            entry |= {"command": launch.command, "args": list(launch.args)}
        return entry | ({self.env: dict(launch.env)} if launch.env else {})

    def launch(self, entry: object) -> Launch | None:
        """Return how an entry starts its server; None where it starts none that can be understood."""
        if not isinstance(entry, dict):
            return None
        command, args, env = entry.get("command"), entry.get("args", []), entry.get(self.env, {})
        if self.one_list and isinstance(command, list) and command:
            command, args = command[0], command[1:]
        if not isinstance(command, str) or not isinstance(args, list) or not isinstance(env, dict):
            return None
        return Launch(command, tuple(map(str, args)), {str(name): str(value) for name, value in env.items()})


@dataclass(frozen=True)
class Client:
    """One MCP client."""

    name: str
    """As it is typed."""
    title: str
    """As people know it."""
    linux: tuple[str, ...]
    """Its file for all projects of a user; where it reads several, the first is the one that is made."""
    macos: tuple[str, ...]
    windows: tuple[str, ...]
    format: Format
    servers: tuple[tuple[str, ...], ...]
    """Key path of the table of servers; where there may be several, the first is the one that is made."""
    shape: Shape
    reload: str
    """What a person does so that it sees a new entry."""
    moved_by: tuple[str, str] = ("", "")
    """A variable, and the beginning of the paths that its value takes the place of."""
    trace: str = ""
    """A folder that tells that the client is here; empty for the folder of its file."""

    def paths(self, platform: str = sys.platform) -> tuple[str, ...]:
        """Return where its file may lie, as a person writes it."""
        return {"darwin": self.macos, "win32": self.windows}.get(platform, self.linux)

    def files(self, home: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
        """Return where its file may lie for this user."""
        return tuple(self._of_user(path, home, environ) for path in self.paths())

    def is_here(self, home: Path, environ: Mapping[str, str]) -> bool:
        """Tell whether the client seems to be installed."""
        files = self.files(home, environ)
        folder = self._of_user(self.trace, home, environ) if self.trace else files[0].parent
        return any(os.path.lexists(path) for path in (folder, *files))

    def snippet(self, name: str, launch: Launch) -> str:
        """Return what a file holds whose only entry is this one."""
        table: dict[str, Any] = {name: self.shape.entry(launch)}
        for key in reversed(self.servers[0]):
            table = {key: table}
        if self.format == "toml":
            import tomlkit

            return tomlkit.dumps(table)
        return json.dumps(table, indent=2, ensure_ascii=False) + "\n"

    def _of_user(self, path: str, home: Path, environ: Mapping[str, str]) -> Path:
        variable, beginning = self.moved_by
        if beginning and environ.get(variable) and path.startswith(f"{beginning}/"):
            return Path(environ[variable], path.removeprefix(f"{beginning}/"))
        return home / path.removeprefix("~/")


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            linux=("~/.config/Claude/claude_desktop_config.json",),
            macos=("~/Library/Application Support/Claude/claude_desktop_config.json",),
            windows=("%APPDATA%\\Claude\\claude_desktop_config.json",),
            moved_by=_CONFIG,
            format="json",
            servers=(("mcpServers",),),
            shape=Shape(),
            reload="Quit Claude Desktop and open it again.",
        ),
        Client(
            name="claude-code",
            title="Claude Code",
            linux=("~/.claude.json",),
            macos=("~/.claude.json",),
            windows=("%USERPROFILE%\\.claude.json",),
            moved_by=("CLAUDE_CONFIG_DIR", "~"),
            trace="~/.claude",
            format="json",
            servers=(("mcpServers",),),
            shape=Shape(kind="stdio"),
            reload="Start a new session of Claude Code; `/mcp` shows it.",
        ),
        Client(
            name="cursor",
            title="Cursor",
            linux=("~/.cursor/mcp.json",),
            macos=("~/.cursor/mcp.json",),
            windows=("%USERPROFILE%\\.cursor\\mcp.json",),
            format="jsonc",
            servers=(("mcpServers",),),
            shape=Shape(),
            reload="Turn it on in Cursor's settings, under MCP.",
        ),
        Client(
            name="vscode",
            title="VS Code",
            linux=("~/.config/Code/User/mcp.json",),
            macos=("~/Library/Application Support/Code/User/mcp.json",),
            windows=("%APPDATA%\\Code\\User\\mcp.json",),
            moved_by=_CONFIG,
            format="jsonc",
            servers=(("servers",),),
            shape=Shape(kind="stdio"),
            reload="Run `MCP: List Servers` in VS Code and start it.",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            linux=("~/.codeium/windsurf/mcp_config.json",),
            macos=("~/.codeium/windsurf/mcp_config.json",),
            windows=("%USERPROFILE%\\.codeium\\windsurf\\mcp_config.json",),
            format="jsonc",
            servers=(("mcpServers",),),
            shape=Shape(),
            reload="Refresh the MCP servers in Cascade's settings.",
        ),
        Client(
            name="zed",
            title="Zed",
            linux=("~/.config/zed/settings.json",),
            macos=("~/.config/zed/settings.json",),
            windows=("%APPDATA%\\Zed\\settings.json",),
            moved_by=_CONFIG,
            format="jsonc",
            servers=(("context_servers",),),
            shape=Shape(),
            reload="Zed starts it at once; its agent's settings show it.",
        ),
        Client(
            name="codex",
            title="Codex",
            linux=("~/.codex/config.toml",),
            macos=("~/.codex/config.toml",),
            windows=("%USERPROFILE%\\.codex\\config.toml",),
            moved_by=("CODEX_HOME", "~/.codex"),
            format="toml",
            servers=(("mcp_servers",),),
            shape=Shape(),
            reload="Start a new session of Codex; `/mcp` shows it.",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            linux=("~/.gemini/settings.json",),
            macos=("~/.gemini/settings.json",),
            windows=("%USERPROFILE%\\.gemini\\settings.json",),
            format="jsonc",
            servers=(("mcpServers",),),
            shape=Shape(),
            reload="Start a new session of Gemini CLI; `/mcp` shows it.",
        ),
        Client(
            name="opencode",
            title="opencode",
            linux=("~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"),
            macos=("~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"),
            windows=("%USERPROFILE%\\.config\\opencode\\opencode.json",),
            moved_by=_CONFIG,
            format="jsonc",
            # opencode 2 has its servers a table deeper, and reads files of opencode 1 as they are.
            servers=(("mcp",), ("mcp", "servers")),
            shape=Shape(kind="local", env="environment", one_list=True),
            reload="Start opencode anew.",
        ),
    )
}
"""By what is typed, in the order in which they are shown."""
