"""The least that an MCP server is: what ours is compared with at start-up."""

from mcp.server import MCPServer

server = MCPServer("bare")


@server.tool()
async def nothing() -> str:
    """Do nothing."""
    return ""


server.run()
