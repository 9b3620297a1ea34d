"""The doctor says which clients start this server, and which entry starts nothing any more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mcp_sandbox.clients.file import client_file
from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.table import CLIENTS
from mcp_sandbox.doctor.clients import configured_clients

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_sandbox.doctor.finding import Finding

WORKS = Launch(sys.executable, ("-m", "mcp_sandbox", "serve"))


def look(home: Path, **entries: Launch) -> Finding:
    for client, launch in entries.items():
        file = client_file(CLIENTS[client], home, {})
        file.write(file.having("sandbox", launch))
    return configured_clients(home, {})


def test_no_client_is_no_fault(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert found.state == "ok"
    assert "`mcp-sandbox install`" in found.says


def test_every_client_that_starts_this_server_is_named(tmp_path: Path) -> None:
    found = look(tmp_path, cursor=WORKS, codex=WORKS, zed=Launch("/bin/other"))
    assert found.state == "ok"
    assert found.says == "Cursor (`sandbox`), Codex (`sandbox`)"


def test_a_command_that_has_gone_is_said_with_what_puts_it_right(tmp_path: Path) -> None:
    found = look(tmp_path, cursor=WORKS, codex=Launch(f"{tmp_path}/gone/mcp-sandbox"))
    assert found.state == "warning"
    assert f"Codex: {tmp_path}/gone/mcp-sandbox is not there" in found.says
    assert found.remedy == "Run `mcp-sandbox install codex` again."


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/mcp.json").write_text("{")
    found = look(tmp_path)
    assert found.state == "warning"
    assert "Cursor: " in found.says
    assert "line 1" in found.says
