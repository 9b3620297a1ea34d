"""The attached stream of a container: one socket, both ways, read in the event loop without a thread."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")

_STDOUT, _STDERR = 1, 2
_HEADER = struct.Struct(">BxxxI")
_READ_BYTES = 256 << 10
_HUNG_UP = getattr(
    select, "POLLRDHUP", 0
)  # Linux tells of a TCP connection with this alone; others with POLLHUP
DIAGNOSTICS_BYTES = 4096
"""Bytes of the first process's stderr that are kept."""


class AttachStream:
    """Bytes to a container's stdin, bytes from its stdout; the engine multiplexes stdout and stderr.

    https://docs.docker.com/reference/api/engine/version/v1.41/#operation/ContainerAttach
    """

    def __init__(self, attached: Any) -> None:
        # What the SDK hands out is a file object around the socket, or the socket itself under TLS; both
        # carry the HTTP response. All three must be closed, or the descriptor leaks.
        self._attached = attached
        self._response = attached._response
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._buffer = bytearray()
        self._frame_left = 0
        self._frame_stream = 0
        self._ended = False
        self.diagnostics = bytearray()

    async def send(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            anyio.BrokenResourceError: The container is gone.
        """
        if self._ended:  # the engine may hold its end open a while, and read no more
            raise anyio.BrokenResourceError
        view = memoryview(data)
        try:
            while view:
                view = view[await self._when_ready(anyio.wait_writable, partial(self._socket.send, view)) :]
        except OSError:
            raise anyio.BrokenResourceError from None

    async def receive(self) -> bytes:
        """Return the next bytes of the container's stdout.

        Raises:
            anyio.EndOfStream: There will be no more.
        """
        while True:
            if data := self._demultiplex():
                return data
            await anyio.lowlevel.checkpoint()  # where there is always more, the others need their turn too
            try:
                data = await self._when_ready(anyio.wait_readable, partial(self._socket.recv, _READ_BYTES))
            except OSError:
                self._ended = True
                raise anyio.EndOfStream from None
            if not data:
                self._ended = True
                raise anyio.EndOfStream
            self._buffer += data

    def _demultiplex(self) -> bytes:
        """Return what is in the buffer of stdout, keep a little of stderr."""
        out = bytearray()
        position = 0
        while position < len(self._buffer):
            if not self._frame_left:
                if len(self._buffer) - position < _HEADER.size:
                    break
                self._frame_stream, self._frame_left = _HEADER.unpack_from(self._buffer, position)
                position += _HEADER.size
                continue
            piece = self._buffer[position : position + self._frame_left]
            position += len(piece)
            self._frame_left -= len(piece)
            if self._frame_stream == _STDOUT:
                out += piece
            elif self._frame_stream == _STDERR:
                self.diagnostics += piece[: DIAGNOSTICS_BYTES - len(self.diagnostics)]
        del self._buffer[:position]
        return bytes(out)

    async def _when_ready(
        self, wait: Callable[[socket.socket], Awaitable[None]], operation: Callable[[], _T]
    ) -> _T:
        while True:
            try:
                return operation()
            except BlockingIOError:
                await wait(self._socket)
            except ssl.SSLWantReadError:
                await anyio.wait_readable(self._socket)
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(self._socket)

    @property
    def alive(self) -> bool:
        """Tell whether the other end is open, without taking what it sent."""
        if self._socket.fileno() < 0:
            return False
        # Not by reading ahead: a waiting agent's greeting is there to be read long after its end.
        poll = select.poll()
        poll.register(self._socket, _HUNG_UP)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of the container's stdin: its first process then ends, and everything with it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # at once, whoever else holds the descriptor
        self._response.close()
        self._attached.close()
        self._socket.close()
