"""The MCP server: the only place that knows MCP.

`create_server` makes it from an executor; `serve_stdio` serves it over this process's stdin and stdout until the
client, a signal or a closed stdout ends it; `http.serve_http`, over HTTP.
"""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server import MCPServer
from mcp.server.stdio import stdio_server

from mcp_sandbox import __version__
from mcp_sandbox.app import running
from mcp_sandbox.capture import clean
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.server.describe import instructions
from mcp_sandbox.server.flight import Flights
from mcp_sandbox.server.prompts import add_prompts, refuse_mistakes
from mcp_sandbox.server.resources import add_resources
from mcp_sandbox.server.tools import failure, make_tools
from mcp_sandbox.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.server.auth.provider import TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.types import GetPromptResult, InputRequiredResult

    from mcp_sandbox.config.policy import Configuration


class SandboxServer(MCPServer):
    """An MCP server that answers in words of its own where a tool or a prompt is not there."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool."""
        tools = [tool.name for tool in await self.list_tools()]
        if name in tools:
            return await super().call_tool(name, arguments, context)
        there = ", ".join(f"`{tool}`" for tool in tools)
        return failure(
            RequestRefused(f"there is no tool `{clean(name)[:80]}`.", next_step=f"There are {there}.")
        )

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Any = None
    ) -> GetPromptResult | InputRequiredResult:
        """Return a prompt, filled in."""
        refuse_mistakes(await self.list_prompts(), name, arguments or {})
        return await super().get_prompt(name, arguments, context)


def create_server(
    flights: Flights, *, token_verifier: TokenVerifier | None = None, auth: AuthSettings | None = None
) -> MCPServer:
    """Return the server whose tools run under the executor's policy."""
    server = SandboxServer(
        "mcp-sandbox",
        title="MCP Sandbox",
        version=__version__,
        instructions=instructions(flights.executor.policy),
        tools=make_tools(flights),
        log_level="WARNING",
        token_verifier=token_verifier,
        auth=auth,
    )
    add_resources(server, flights.executor.record)
    add_prompts(server, flights.executor)
    return server


@asynccontextmanager
async def flying(configuration: Configuration) -> AsyncIterator[Flights]:
    """Yield where runs are begun; leaving the scope ends them all, and every sandbox."""
    async with (
        running(configuration, os.environ, origin="mcp") as executor,
        Flights(executor, reply_within_seconds=configuration.server.reply_within_seconds) as flights,
    ):
        yield flights


async def serve_stdio(configuration: Configuration) -> int:
    """Serve one client over stdin and stdout; return the exit status, 128 + N after signal N."""
    wire = Wire()
    async with flying(configuration) as flights, anyio.create_task_group() as tasks:
        # Private, because `MCPServer.run` takes no streams of one's own.
        server = create_server(flights)._lowlevel_server
        tasks.start_soon(wire.watch)
        async with stdio_server(stdin=wire, stdout=wire) as (messages_in, messages_out):  # type: ignore[arg-type]  # it iterates the one and calls write and flush of the other
            await server.run(messages_in, messages_out, server.create_initialization_options())
        tasks.cancel_scope.cancel()
    logging.shutdown()
    return 128 + wire.signal if wire.signal else 0
