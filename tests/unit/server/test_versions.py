"""Clients of every age, by raw JSON-RPC: each is spoken to in its own version of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from tests.clients.raw import configuration_file, serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

NEWEST_WITH_A_GREETING = "2025-11-25"  # the one that all other tests speak
OLDER = sorted({*HANDSHAKE_PROTOCOL_VERSIONS} - {NEWEST_WITH_A_GREETING})


@pytest.mark.parametrize("version", [*OLDER, "1999-01-01"])
async def test_a_client_of_any_age_lists_tools_and_calls_one(version: str, tmp_path: Path) -> None:
    configuration = configuration_file(tmp_path, f"unix://{tmp_path}/none.sock")
    async with serving(configuration, version=version) as server:
        greeting = server.messages[0]["result"]
        known = version in HANDSHAKE_PROTOCOL_VERSIONS
        assert greeting["protocolVersion"] == (version if known else NEWEST_WITH_A_GREETING)
        assert greeting["serverInfo"]["name"] == "mcp-sandbox"
        assert "tools" in greeting["capabilities"]
        tools = (await server.request("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools][:2] == ["execute_python", "execute_shell"]
        refused = await server.call("execute_shell", command=" ")
        assert refused["isError"] is True
        assert refused["content"][0]["text"].startswith("refused: `command` is empty.")


def test_the_versions_are_those_that_clients_have() -> None:
    assert OLDER == ["2024-11-05", "2025-03-26", "2025-06-18"]
