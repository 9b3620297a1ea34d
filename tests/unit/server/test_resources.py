"""What a person may look at: also where nothing has run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp.shared.exceptions import MCPError

if TYPE_CHECKING:
    from mcp.client import Mode

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_before_the_first_run_there_are_none_and_that_is_no_error(mode: Mode, connected: Any) -> None:
    async with connected(mode) as client:
        [recent] = (await client.read_resource("run://recent")).contents
        assert recent.text == "no runs yet"
        for uri in ("run://abc", "run://abc/stdout.txt", "run://abc/artifacts/a.csv"):
            with pytest.raises(MCPError, match="No run") as caught:
                await client.read_resource(uri)
            assert caught.value.code == -32602
        for tool, arguments in (("get_run", {}), ("read_artifact", {"path": "stdout.txt"})):
            result = await client.call_tool(tool, {"run_id": "abc", **arguments})
            assert result.content[0].text.startswith("refused: ")
