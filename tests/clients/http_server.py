"""The server over HTTP, in a process of its own, and the plainest client for it."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from tests.clients.raw import ANSWER_SECONDS, END_SECONDS, environment, server_command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

TOKEN = "an-example-of-a-token-0123456789abcdef"
HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}


MODERN_VERSION = "2026-07-28"


def modern(method: str, **params: object) -> dict[str, object]:
    """Return a request of the newest version of the protocol."""
    about = {
        "protocolVersion": MODERN_VERSION,
        "clientCapabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in about.items()}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


@dataclass
class HttpServer:
    """A server that answers."""

    url: str
    process: subprocess.Popen[str]
    errors: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port
        return port

    @property
    def stderr(self) -> str:
        return self.errors.read_text(errors="replace")

    @asynccontextmanager
    async def transport(self) -> AsyncIterator[Any]:
        """Connect the official client, with the token."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=ANSWER_SECONDS) as http,
            streamable_http_client(self.url, http_client=http) as streams,
        ):
            yield streams

    def post(
        self,
        message: Any,
        headers: Mapping[str, str | None] = {},
        *,
        path: str = "/mcp",
        body: bytes | None = None,
    ) -> tuple[int, str]:
        """Send a message with these headers, None leaving one out, and return status and text."""
        sent = {name: value for name, value in {**HEADERS, **headers}.items() if value is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", path, json.dumps(message) if body is None else body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def call(self, tool: str, **arguments: object) -> tuple[int, str]:
        """Call a tool as the newest version of the protocol does: one message, and no greeting before it."""
        headers = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        return self.post(modern("tools/call", name=tool, arguments=arguments), headers)

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 2 * END_SECONDS) -> int:
        """End it with a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextmanager
def serving_http(configuration: Path, arguments: Sequence[str] = ()) -> Iterator[HttpServer]:
    """Start a server on a port that is free; in the end it must go in order, and must have had no accident."""
    token = configuration.with_name("token")
    token.touch(0o600)
    token.write_text(f"{TOKEN}\n")
    errors = configuration.with_name("server.stderr")
    command = [
        *server_command(configuration),
        "--http",
        "--port",
        "0",
        "--token-file",
        str(token),
        *arguments,
    ]
    with errors.open("ab") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment(configuration.parent),
            cwd="/",
        )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()  # ends, at the latest, with the process
        assert url.startswith("http://127.0.0.1:"), errors.read_text()
        server = HttpServer(url, process, errors)
        yield server
        if process.poll() is None:
            assert server.end() == 128 + signal.SIGTERM
        assert "Traceback" not in server.stderr, server.stderr
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
