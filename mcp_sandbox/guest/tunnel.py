"""Connections that begin inside a sandbox without network and are carried here, over the stream that is there anyway.

Above: `guest.session`, `guest.terminal`. Below: `guest.protocol`. Each connection is an anyio byte stream; what
answers it (a proxy that checks and dials) is given from outside. Neither side sends more than the other has said it
will take.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from mcp_sandbox.guest.protocol import (
    MAX_CONNECTIONS,
    WINDOW,
    Frame,
    Kind,
    ProtocolViolation,
    decode_credit,
    decode_numbered,
    encode_close,
    encode_credit,
    encode_sent,
    encode_sent_all,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

FRAME_BYTES = 32 << 10
Stream = TypeVar("Stream", bound="TunnelStream")
_log = logging.getLogger(__name__)


class Tunnels:
    """The connections of one run."""

    def __init__(
        self,
        answer: Callable[[ByteStream], Awaitable[None]] | None,
        tasks: TaskGroup,
        send: Callable[[bytes], None],
        fail: Callable[[], None],
    ) -> None:
        self._answer = answer
        self._tasks = tasks
        self._send = send
        self._fail = fail
        self._streams: dict[int, TunnelStream] = {}
        self._last = 0

    def take(self, frame: Frame) -> None:
        """Take a frame about a connection.

        Raises:
            ProtocolViolation: The agent cannot have written it.
        """
        number, rest = decode_numbered(frame.payload)
        if frame.kind is Kind.OPENED:
            if self._answer is None:
                raise ProtocolViolation("a connection opened where none is answered")
            if number <= self._last or len(self._streams) > 2 * MAX_CONNECTIONS:
                raise ProtocolViolation("a connection opened twice, or one too many")
            self._last = number
            self.add(TunnelStream(number, self._send), self._answer)
        elif stream := self._streams.get(number):  # else it was closed here, and there not yet
            stream.take(frame.kind, rest)
            if frame.kind is Kind.GONE:
                del self._streams[number]
                stream.serving.cancel()

    def add(self, stream: Stream, answer: Callable[[Stream], Awaitable[None]]) -> None:
        """Have frames about this connection go there, and it answered, until that returns."""
        self._streams[stream.number] = stream
        self._tasks.start_soon(self._serve, stream, answer)

    async def _serve(self, stream: Stream, answer: Callable[[Stream], Awaitable[None]]) -> None:
        try:
            with stream.serving, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await answer(stream)
        except Exception:
            # What cannot be answered for, above all what cannot be recorded, ends the run.
            _log.exception("a connection of a run could not be answered")
            self._fail()
        finally:
            stream.close()
            self._streams.pop(stream.number, None)


class TunnelStream(ByteStream):
    """One connection of the program's."""

    def __init__(self, number: int, send: Callable[[bytes], None]) -> None:
        self.number = number
        self.serving = anyio.CancelScope()
        """Ended when the program hangs up: whatever is still done for it is done for nobody."""
        self._send_frame = send
        self._received = bytearray()
        self._granted = WINDOW
        self._credit = WINDOW
        self._sent_all = False
        self._gone = False
        self._closed = False
        self._changed = anyio.Event()

    def take(self, kind: Kind, rest: bytes) -> None:
        """Take what the agent says of this connection.

        Raises:
            ProtocolViolation: The agent cannot have said it.
        """
        match kind:
            case Kind.SENT:
                self._granted -= len(rest)
                if self._granted < 0 or self._sent_all:
                    raise ProtocolViolation("a connection sent more than it may")
                self._received += rest
            case Kind.SENT_ALL:
                self._sent_all = True
            case Kind.CREDIT:
                self._credit += decode_credit(rest)
                if self._credit > WINDOW:
                    raise ProtocolViolation("a connection was given more than it took")
            case Kind.GONE:
                self._gone = True
            case _:
                raise ProtocolViolation("a frame came out of turn")
        self._wake()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Return the next bytes from the program.

        Raises:
            anyio.EndOfStream: It sends no more.
        """
        await anyio.lowlevel.checkpoint()
        while not self._received:
            if self._closed:
                raise anyio.ClosedResourceError
            if self._sent_all or self._gone:
                raise anyio.EndOfStream
            await self._change()
        data = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        self._granted += len(data)
        self._send_frame(encode_credit(self.number, len(data)))
        return data

    async def send(self, item: bytes) -> None:
        """Send bytes to the program, as fast as it takes them.

        Raises:
            anyio.BrokenResourceError: It has closed the connection.
        """
        await anyio.lowlevel.checkpoint()
        view = memoryview(item)
        while view:
            while not self._credit and not self._gone and not self._closed:
                await self._change()
            if self._closed:
                raise anyio.ClosedResourceError
            if self._gone:
                raise anyio.BrokenResourceError
            count = min(len(view), self._credit, FRAME_BYTES)
            self._credit -= count
            self._send_frame(encode_sent(self.number, bytes(view[:count])))
            view = view[count:]

    async def send_eof(self) -> None:
        """Tell the program that no more comes."""
        if not self._gone and not self._closed:
            self._send_frame(encode_sent_all(self.number))

    async def aclose(self) -> None:
        """End the connection."""
        self.close()

    def close(self) -> None:
        """End the connection; does nothing the second time."""
        if not self._closed:
            self._closed = True
            self._send_frame(encode_close(self.number))
            self._wake()

    async def _change(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        """Wake all who wait: one may receive while another sends."""
        self._changed.set()
        self._changed = anyio.Event()
