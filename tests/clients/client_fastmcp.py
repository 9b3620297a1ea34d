"""fastmcp's client, run in its own environment: server command line in, results out as JSON."""

import json
import sys

import anyio
from calls import CALLS
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main():
    async with Client(StdioTransport(command=sys.argv[1], args=sys.argv[2:])) as client:
        said = {"tools": [tool.name for tool in await client.list_tools()]}
        for name, (tool, arguments) in CALLS.items():
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            said[name] = {
                "structured": result.structured_content,
                "text": result.content[0].text,
                "error": result.is_error,
            }
            if not result.is_error:
                assert result.data.stdout == result.structured_content["stdout"]
    print(json.dumps(said))


anyio.run(main)
