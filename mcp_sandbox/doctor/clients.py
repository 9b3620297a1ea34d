"""Looks at what MCP clients are told: whether an entry starts this program, and whether what it starts is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_sandbox.clients.file import client_file
from mcp_sandbox.clients.table import CLIENTS
from mcp_sandbox.doctor.finding import Finding
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECK = "clients"


def configured_clients(home: Path, environ: Mapping[str, str]) -> Finding:
    """Return which clients have an entry that starts this program, and what is wrong with one."""
    entries: list[str] = []
    problems: list[tuple[str, str]] = []
    for client in CLIENTS.values():
        try:
            ours = client_file(client, home, environ).ours
        except ConfigError as error:
            if client.is_here(home, environ):
                problems.append((f"{client.title}: {error.message}", "Correct the file."))
            continue
        for name, launch in ours.items():
            entries.append(f"{client.title} (`{visible(name, limit=64)}`)")
            if Path(launch.command).is_absolute() and not os.access(launch.command, os.X_OK):
                words = f"{client.title}: {visible(launch.command, limit=200)} is not there"
                problems.append((words, f"Run `mcp-sandbox install {client.name}` again."))
    if problems:
        says = "; ".join(words for words, _ in problems)
        remedy = " ".join(dict.fromkeys(remedy for _, remedy in problems))
        return Finding(check=CHECK, state="warning", says=says, remedy=remedy)
    if not entries:
        return Finding(check=CHECK, state="ok", says="none starts this server; `mcp-sandbox install` adds it")
    return Finding(check=CHECK, state="ok", says=", ".join(entries))
