"""Start a server as a client would, from an entry in the client's file, and call a tool of it."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, TextIO

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from mcp_sandbox.clients.launch import Launch

SECONDS = 60.0
"""After which clients give up on a call."""
_SURROUNDINGS = {"PATH": "/usr/bin:/bin", "TERM": "dumb"}
"""What a desktop client has, which no shell started."""
_SHOWN_LINES = 5


async def first_call(launch: Launch, *, seconds: float = SECONDS) -> str:
    """Start a server, call a tool of it, and return what went wrong; nothing where the call was answered.

    The server gets hardly any environment, no terminal, and `/` for its working folder.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            with anyio.fail_after(seconds):
                problem = _judge(await _answer(launch, log))
        except TimeoutError:
            problem = f"there was no answer within {seconds:.0f} s"
        except (OSError, ValueError, MCPError, ExceptionGroup) as error:  # the SDK's tasks raise in groups
            problem = f"it did not start: {visible(str(_first(error)), limit=200)}"
        return problem and problem + _last_words(log)


async def _answer(launch: Launch, log: TextIO) -> CallToolResult:
    server = StdioServerParameters(
        command=launch.command, args=list(launch.args), env={**_SURROUNDINGS, **launch.env}, cwd="/"
    )
    # The older protocol is the one that most clients open a server with.
    async with Client(stdio_client(server, errlog=log), mode="legacy") as client:
        return await client.call_tool("execute_python", {"code": "print(6 * 7)"})


def _judge(result: CallToolResult) -> str:
    if not result.is_error and (result.structured_content or {}).get("stdout") == "42\n":
        return ""
    said = " ".join(part.text for part in result.content if part.type == "text")
    return f"the call failed: {visible(' '.join(said.split()), limit=1000)}"


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _last_words(log: TextIO) -> str:
    log.seek(0)
    lines = [visible(line, limit=300) for line in log.read().splitlines() if line.strip()]
    return "".join(f"\n    {line}" for line in lines[-_SHOWN_LINES:])
