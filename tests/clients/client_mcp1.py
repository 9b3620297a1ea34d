"""The 1.x client of the official SDK, run in its own environment: server command line in, results out as JSON."""

import json
import sys

import anyio
from calls import CALLS
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        said = {"tools": [tool.name for tool in (await session.list_tools()).tools]}
        for name, (tool, arguments) in CALLS.items():
            result = await session.call_tool(tool, arguments)
            said[name] = {
                "structured": result.structuredContent,
                "text": result.content[0].text,
                "error": result.isError,
            }
    print(json.dumps(said))


anyio.run(main)
