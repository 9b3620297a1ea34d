"""What a person may look at beside the tools: the record of runs, their output, their files. All read-only."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from mcp_sandbox.capture import clean
from mcp_sandbox.errors import RequestRefused, SandboxError

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from mcp_sandbox.audit.store import Recorder

RECENT = 20
MAX_BYTES = 16 << 20
"""Bytes of one resource: clients take a message whole, and as text it is longer by a third."""


def add_resources(server: MCPServer, record: Recorder) -> None:
    """Offer `run://` resources."""

    @server.resource(
        "run://recent",
        title="Recent runs",
        description="The last runs on the record.",
        mime_type="text/plain",
    )
    async def recent() -> str:
        try:
            await record.open()  # before the first run there is none to read
            summaries = await record.recent(RECENT)
        except SandboxError as error:
            raise _told(error) from None
        lines = [f"{run.run_id}  {run.status:<13} {run.workspace}  {run.language}" for run in summaries]
        return "\n".join(lines) or "no runs yet"

    @server.resource(
        "run://{run_id}", title="A run", description="Result of one run.", mime_type="application/json"
    )
    async def result(run_id: str) -> str:
        try:
            await record.open()
            found = await record.result(run_id)
        except SandboxError as error:
            raise _told(error) from None
        if found is None:
            raise ResourceNotFoundError("that run has no result")
        return found.model_dump_json(indent=2)

    @server.resource(
        "run://{run_id}/{stream}.txt",
        title="Output of a run",
        description="All of stdout or stderr that was kept.",
        mime_type="text/plain",
    )
    async def output(run_id: str, stream: str) -> str:
        data = await _content(record, run_id, stream if stream in ("stdout", "stderr") else "")
        return clean(data.decode("utf-8", "replace"))

    @server.resource(
        "run://{run_id}/artifacts/{+path}",
        title="A file of a run",
        description="A file that a run left.",
        mime_type="application/octet-stream",
    )
    async def artifact(run_id: str, path: str) -> bytes:
        return await _content(record, run_id, f"artifact:{unquote(path)}")


async def _content(record: Recorder, run_id: str, role: str) -> bytes:
    try:
        await record.open()
        size = await record.size(run_id, role)
        data = await record.content(run_id, role) if size is not None and size <= MAX_BYTES else None
    except SandboxError as error:
        raise _told(error) from None
    if size is not None and size > MAX_BYTES:
        raise ResourceError(
            f"it has {size:,} bytes, and at most {MAX_BYTES:,} are sent at once: "
            f"`mcp-sandbox runs artifacts {run_id} --out FOLDER` copies it, whatever its size"
        )
    if data is None:
        raise ResourceNotFoundError("that run has no such content")
    return data


def _told(error: SandboxError) -> ResourceError:
    kind = ResourceNotFoundError if isinstance(error, RequestRefused) else ResourceError
    return kind(clean(str(error)))
