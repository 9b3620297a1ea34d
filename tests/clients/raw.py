"""A server process, and a client that speaks to it line by line with no SDK in between.

What an SDK would repair or hide is what these tests are about: what is on stdout, and when the process ends.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

Message = dict[str, Any]
Wires = Literal["pipes", "sockets", "one socket"]
"""How a client can be tied to a server: Python's use pipes, Node's use sockets, inetd's one for both ways."""

PATIENCE = float(os.environ.get("MCP_SANDBOX_TEST_PATIENCE", "1"))
"""All bounds are multiplied by it: for machines that have other work at the same time."""
ANSWER_SECONDS = 30.0 * PATIENCE
END_SECONDS = 2.0 * PATIENCE
"""What clients give a server to end before they send the next, harder signal."""
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def configuration_file(
    folder: Path, host: str, *, server: Mapping[str, object] = {}, **policy: object
) -> Path:
    """Write a configuration whose record is in `folder`/audit."""
    tables = {
        "engine": {"host": host},
        "server": server,
        "audit": {"path": str(folder / "audit")},
        "defaults": {"image": "mcp-sandbox/minimal", **policy},
    }
    lines: list[str] = []
    for name, table in tables.items():
        # For these values JSON is TOML.
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    file = folder / "config.toml"
    file.write_text("\n".join(lines))
    return file


def server_command(configuration: Path) -> list[str]:
    return [sys.executable, "-m", "mcp_sandbox", "serve", "--config", str(configuration)]


def environment(home: Path) -> dict[str, str]:
    """Return what a desktop client gives its servers: hardly anything."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin"}


class RawClient:
    """One server process and both ends of its wire."""

    def __init__(
        self, process: subprocess.Popen[bytes], to_server: int, from_server: int, stderr: Path
    ) -> None:
        self.process = process
        self.messages: list[Message] = []
        """Everything that was said on stdout, in order."""
        self.not_protocol: list[bytes] = []
        """Lines of stdout that are no message."""
        self.said_nothing_more = anyio.Event()
        self._to_server, self._from_server = to_server, from_server
        self._stderr = stderr
        self._heard = anyio.Event()
        self._reading = anyio.CancelScope()
        self._ids = count(1)

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    async def listen(self) -> None:
        """Take what the server says until its stdout ends or is closed."""
        buffer = bytearray()
        with self._reading, suppress(OSError):
            while data := await self._read():
                buffer += data
                if b"\n" in data:
                    *lines, buffer = buffer.split(b"\n")
                    for line in lines:
                        self._take(bytes(line))
        if buffer:
            self.not_protocol.append(bytes(buffer))
        self.said_nothing_more.set()
        self._wake()

    async def _read(self) -> bytes:
        await anyio.wait_readable(self._from_server)
        return os.read(self._from_server, 1 << 20)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line.decode("utf-8"))
            is_protocol = message["jsonrpc"] == "2.0"
        except (ValueError, TypeError, KeyError):
            is_protocol = False
        if is_protocol:
            self.messages.append(message)
        else:
            self.not_protocol.append(line)
        self._wake()

    def _wake(self) -> None:
        self._heard.set()
        self._heard = anyio.Event()

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            await anyio.wait_writable(self._to_server)
            view = view[os.write(self._to_server, view) :]

    async def post(self, method: str, params: object = None) -> int:
        """Send a request and return its id."""
        request_id = next(self._ids)
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        await self.send(json.dumps(message).encode() + b"\n")
        return request_id

    async def notify(self, method: str, params: object = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        await self.send(json.dumps(message).encode() + b"\n")

    async def heard(
        self, wanted: Callable[[Message], bool], seconds: float = ANSWER_SECONDS, *, after: int = 0
    ) -> Message:
        """Wait for a message, which may have come already, but not as one of the first `after`."""
        seen = after
        with anyio.fail_after(seconds):
            while True:
                for message in self.messages[seen:]:
                    if wanted(message):
                        return message
                seen = len(self.messages)
                assert not self.said_nothing_more.is_set(), f"the server has ended; its stderr: {self.stderr}"
                await self._heard.wait()

    async def answer_to(self, request_id: object, seconds: float = ANSWER_SECONDS) -> Message:
        return await self.heard(
            lambda message: "method" not in message and message.get("id") == request_id, seconds
        )

    def answers_to(self, request_id: object) -> list[Message]:
        return [
            message
            for message in self.messages
            if "method" not in message and message.get("id") == request_id
        ]

    async def request(self, method: str, params: object = None, seconds: float = ANSWER_SECONDS) -> Message:
        return await self.answer_to(await self.post(method, params), seconds)

    async def initialize(self, version: str) -> Message:
        answer = await self.request("initialize", {**INITIALIZE, "protocolVersion": version})
        await self.notify("notifications/initialized")
        return answer

    async def begin(self, tool: str, **arguments: object) -> int:
        """Begin a call and return its id."""
        return await self.post("tools/call", {"name": tool, "arguments": arguments})

    async def call(self, tool: str, *, seconds: float = ANSWER_SECONDS, **arguments: object) -> Message:
        """Call a tool and return its result."""
        answer = await self.answer_to(await self.begin(tool, **arguments), seconds)
        assert "result" in answer, answer
        return answer["result"]

    async def python(self, code: str, **arguments: object) -> Message:
        """Run a Python program and return the structured result."""
        return await self._structured("execute_python", code=code, **arguments)

    async def shell(self, command: str, **arguments: object) -> Message:
        """Run a command and return the structured result."""
        return await self._structured("execute_shell", command=command, **arguments)

    async def _structured(self, tool: str, **arguments: Any) -> Message:
        result = await self.call(tool, **arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    async def cancel(self, request_id: int) -> None:
        await self.notify("notifications/cancelled", {"requestId": request_id})

    def stop_reading(self) -> None:
        """Let whatever the server says from now on pile up."""
        self._reading.cancel()

    def close_stdin(self) -> None:
        """Say that nothing more will be said; the answers may still come."""
        if self._to_server < 0:
            return
        if stat.S_ISSOCK(os.fstat(self._to_server).st_mode):
            with socket.socket(fileno=os.dup(self._to_server)) as ours, suppress(OSError):
                ours.shutdown(socket.SHUT_WR)
        os.close(self._to_server)
        self._to_server = -1

    async def close_stdout(self) -> None:
        """Go away without a word: nobody reads what the server says."""
        if self._from_server >= 0:
            self._reading.cancel()
            await (
                self.said_nothing_more.wait()
            )  # nothing waits for the descriptor when its number is free again
            os.close(self._from_server)
            self._from_server = -1

    async def ended(self, seconds: float = END_SECONDS) -> int:
        """Wait for the process to end; return its exit status, -N after signal N."""
        if (status := self.process.poll()) is not None:
            return status
        pidfd = os.pidfd_open(self.process.pid)
        try:
            with anyio.fail_after(seconds):
                await anyio.wait_readable(pidfd)
        finally:
            os.close(pidfd)
        return self.process.wait()


def _wires(kind: Wires) -> tuple[int, int, int, int]:
    """Return the server's stdin and stdout, and our ends of them."""
    if kind == "pipes":
        server_in, ours_out = os.pipe()
        ours_in, server_out = os.pipe()
    elif kind == "sockets":
        server_in, ours_out = (end.detach() for end in socket.socketpair())
        ours_in, server_out = (end.detach() for end in socket.socketpair())
    else:
        server, ours = (end.detach() for end in socket.socketpair())
        server_in, server_out, ours_out, ours_in = server, os.dup(server), ours, os.dup(ours)
    for descriptor in (ours_in, ours_out):
        os.set_blocking(descriptor, False)
    return server_in, server_out, ours_out, ours_in


@asynccontextmanager
async def serving(
    configuration: Path,
    *,
    wires: Wires = "pipes",
    command: Sequence[str] = (),
    version: str = INITIALIZE["protocolVersion"],
) -> AsyncIterator[RawClient]:
    """Start a server and greet it; in the end it must go by itself, and must have said nothing but protocol."""
    folder = configuration.parent
    server_in, server_out, to_server, from_server = _wires(wires)
    stderr = folder / "server.stderr"
    with stderr.open("ab") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220  # anyio's own hides the descriptors
            command or server_command(configuration),
            stdin=server_in,
            stdout=server_out,
            stderr=errors,
            env=environment(folder),
            cwd="/",
        )
    os.close(server_in)
    os.close(server_out)
    client = RawClient(process, to_server, from_server, stderr)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.listen)
            await client.initialize(version)
            yield client
            client.close_stdin()
            await client.ended()
            await client.said_nothing_more.wait()
            await client.close_stdout()
        assert client.not_protocol == []
        assert "Traceback" not in client.stderr, client.stderr
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for descriptor in (client._to_server, client._from_server):
            if descriptor >= 0:
                os.close(descriptor)
