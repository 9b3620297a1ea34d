"""The client's two pipes: lines of JSON in, lines of JSON out, and every way in which they can end.

The SDK's own stdio transport blocks a thread in a read that nothing can interrupt (a SIGINT then hangs until the
client speaks), does not notice a closed stdout, and answers nothing to a line that is no JSON. Here the two
descriptors are waited for in the event loop, and end of file, a signal and a closed stdout are one thing: the end
of the lines, after which the server unwinds in order.
"""

from __future__ import annotations

import errno
import json
import os
import re
import select
import signal
import socket
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_LINE_BYTES = 64 << 20
"""Longest message that is read, in bytes; a longer one is answered with an error and skipped."""
_READ_BYTES = 256 << 10
_LAST_WORDS_SECONDS = 0.5
"""Longest wait, after the end, for a client to take what it is still told."""
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
# Where clients write the id: before all that could be broken, or after it.
_ID = r'(?P<id>"id"\s*:\s*(?:-?\d{1,18}|"[^"\\]{0,200}"))'
_ID_FIRST = re.compile(r"\s*\{[^\[{]*?" + _ID)
_ID_LAST = re.compile(_ID + r'\s*(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*$')


class Wire:
    """stdin and stdout of this process as the MCP transport, and nobody else's.

    From here on descriptor 0 is the null device and descriptor 1 is stderr, so that no child and no stray `print`
    can read or write protocol.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._input, self._output = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._writing = anyio.Lock()
        self._ended = anyio.Event()
        self._broken = False
        self.signal: int | None = None
        """The signal that ended it, if one did."""

    def end(self) -> None:
        """End the lines from the client: the server then stops as at the end of its input."""
        self._ended.set()

    async def watch(self) -> None:
        """End the wire at a signal, or when the client has closed its end of stdout."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_signals)
            tasks.start_soon(self._watch_output)

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                self.signal = self.signal or number
                self.end()

    async def _watch_output(self) -> None:
        kind = os.fstat(self._output).st_mode
        if stat.S_ISFIFO(kind):
            await anyio.wait_readable(
                self._output
            )  # a pipe's write end becomes "readable" by its error alone
        elif stat.S_ISSOCK(kind):
            await self._socket_closed()
        else:
            return
        self.end()

    async def _socket_closed(self) -> None:
        if os.path.samestat(os.fstat(self._input), os.fstat(self._output)):
            await anyio.sleep_forever()  # one socket both ways: its end is seen where its lines are read
        with socket.socket(fileno=os.dup(self._output)) as peer:
            while True:
                await anyio.wait_readable(peer)
                try:
                    # What a client says here is for nobody; left unread it would hide the end.
                    if not peer.recv(_READ_BYTES, socket.MSG_DONTWAIT):
                        return
                except BlockingIOError:
                    continue
                except OSError:
                    return

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's messages; what is none is answered here."""
        async for line in self._lines():
            if line is None:
                await self._refuse(_INVALID_REQUEST, f"message longer than {MAX_LINE_BYTES:,} bytes", None)
                continue
            if not line.strip():
                continue
            try:
                message = from_json(line)
            except ValueError as error:
                await self._refuse(_PARSE_ERROR, f"Parse error: {error}", _id_in(line))
                continue
            if fault := _fault(message):
                await self._refuse(_INVALID_REQUEST, f"Invalid request: {fault}", _id_of(message))
                continue
            yield line.decode("utf-8")
        self.end()

    async def _lines(self) -> AsyncIterator[bytes | None]:
        """Yield lines as they come; None for one that is too long."""
        buffer = bytearray()
        searched = 0
        skipping = False
        while data := await self._read():
            buffer += data
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                yield None if skipping else line
                skipping = False
            if skipping or len(buffer) > MAX_LINE_BYTES:
                skipping = True
                buffer.clear()
            searched = len(buffer)

    async def _read(self) -> bytes:
        """Return the next bytes of stdin; none at its end, or when the wire is ended."""
        data = b""

        async def read() -> None:
            nonlocal data
            with suppress(OSError):
                await _wait(anyio.wait_readable, self._input)
                data = os.read(self._input, _READ_BYTES)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await self._ended.wait()
            tasks.cancel_scope.cancel()
        return b"" if self._ended.is_set() else data

    async def write(self, text: str) -> None:
        """Write one message; a client that is gone ends the wire, and one that does not read cannot keep it."""
        data = text.encode("utf-8", "replace")
        async with self._writing, anyio.create_task_group() as tasks:
            tasks.start_soon(self._give_up, tasks.cancel_scope)
            if not self._broken:
                self._broken = True  # until the message is whole: after a part of one nothing can follow
                await self._write_all(memoryview(data))
                self._broken = False
            tasks.cancel_scope.cancel()

    async def _write_all(self, view: memoryview) -> None:
        try:
            while view:
                await _wait(anyio.wait_writable, self._output)
                # A pipe that is ready takes this much at once, so the loop is never blocked; the descriptor is
                # left as it is, because others may share it and would not expect O_NONBLOCK.
                view = view[os.write(self._output, view[: select.PIPE_BUF]) :]
        except OSError:
            self.end()

    async def _give_up(self, writing: anyio.CancelScope) -> None:
        await self._ended.wait()
        await anyio.sleep(_LAST_WORDS_SECONDS)
        writing.cancel()

    async def flush(self) -> None:
        """Do nothing: every message is written whole."""

    async def _refuse(self, code: int, message: str, request_id: Any) -> None:
        error = {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
        await self.write(json.dumps(error) + "\n")


async def _wait(ready: Any, descriptor: int) -> None:
    try:
        await ready(descriptor)
    except OSError as error:
        if error.errno != errno.EPERM:  # a regular file is always ready, and epoll will not have it
            raise


def _fault(message: Any) -> str:
    """Say what keeps this from being a JSON-RPC message; empty where nothing does.

    The SDK drops such a message without a word, and its sender would wait for ever.
    """
    if not isinstance(message, dict):
        return "a message is one JSON object"
    if message.get("jsonrpc") != "2.0":
        return '`jsonrpc` must be "2.0"'
    if not isinstance(message.get("method", ""), str):
        return "`method` must be a string"
    if not isinstance(message.get("params") or {}, dict):
        return "`params` must be an object"
    if "method" not in message and "result" not in message and "error" not in message:
        return "`method` is missing"
    if "id" in message and _id_of(message) is None and "error" not in message:
        return "`id` must be a string or an integer"
    return ""


def _id_of(message: Any) -> str | int | None:
    request_id = message.get("id") if isinstance(message, dict) else None
    return request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None


def _id_in(line: bytes) -> str | int | None:
    """Find the id of a message that is broken elsewhere, so that its sender learns of it."""
    text = line.decode("utf-8", "replace")
    try:
        return _id_of(json.loads(text))
    except (ValueError, RecursionError):
        found = _ID_FIRST.match(text) or _ID_LAST.search(text)
        return _id_of(json.loads("{" + found["id"] + "}")) if found else None
