"""What the forms in which people get the program say of it: bundle, registry entry, install links."""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mcp_sandbox import __version__
from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.table import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp.types import Tool

ROOT = Path(__file__).resolve().parent.parent
REGISTRY_NAME = "io.github.mcp-sandbox/mcp-sandbox"
"""Its first part is who may publish under it: an account or organisation of that name."""
ENTRY = "sandbox"
"""Name of the server in a client."""
PUBLISHED = Launch("uvx", ("mcp-sandbox", "serve"))
"""How a client starts the package from its index."""


def project() -> dict[str, Any]:
    """Return what pyproject.toml says of the project."""
    said: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return said


def manifest(tools: Sequence[Tool]) -> str:
    """Return the manifest of the bundle that Claude Desktop installs."""
    said = project()
    return _json(
        {
            "manifest_version": "0.4",
            "name": said["name"],
            "display_name": "MCP Sandbox",
            "version": __version__,
            "description": said["description"],
            "author": {"name": "The mcp-sandbox authors"},
            "license": said["license"],
            "keywords": said["keywords"],
            "server": {
                "type": "uv",
                "entry_point": "mcp_sandbox/__main__.py",
                "mcp_config": {
                    "command": "uv",
                    # Without the development tools, which uv would install as well.
                    "args": ["run", "--no-dev", "--directory", "${__dirname}", said["name"], "serve"],
                    "env": {"MCP_SANDBOX_WORKSPACE": "${user_config.workspace}"},
                },
            },
            "tools": [
                {"name": tool.name, "description": (tool.description or "").partition("\n")[0]}
                for tool in tools
            ],
            "user_config": {
                "workspace": {
                    "type": "directory",
                    "title": "Workspace",
                    "description": "The folder whose files programs can read, and cannot change.",
                    "required": True,
                }
            },
            "compatibility": {
                "platforms": ["darwin", "linux"],
                "runtimes": {"python": said["requires-python"]},
            },
        }
    )


def registry() -> str:
    """Return server.json, by which the MCP registry lists the server."""
    said = project()
    return _json(
        {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": REGISTRY_NAME,
            "title": "MCP Sandbox",
            "description": "Run Python and shell code, each call in a fresh, locked-down, single-use container",
            "version": __version__,
            "packages": [
                {
                    "registryType": "pypi",
                    "identifier": said["name"],
                    "version": __version__,
                    "runtimeHint": "uvx",
                    "transport": {"type": "stdio"},
                    "packageArguments": [
                        {"type": "positional", "value": "serve"},
                        {
                            "type": "named",
                            "name": "--workspace",
                            "format": "filepath",
                            "description": "The folder whose files programs can read, and cannot change.",
                        },
                    ],
                }
            ],
        }
    )


def links() -> dict[str, str]:
    """Return the addresses that add the server to a client when a person opens them."""
    vscode, cursor = (
        json.dumps(CLIENTS[name].shape.entry(PUBLISHED), separators=(",", ":"))
        for name in ("vscode", "cursor")
    )
    return {
        "vscode": f"https://insiders.vscode.dev/redirect/mcp/install?name={ENTRY}&config={quote(vscode, safe='')}",
        "cursor": f"https://cursor.com/en/install-mcp?name={ENTRY}"
        f"&config={quote(base64.b64encode(cursor.encode()).decode(), safe='')}",
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
