"""Bytes between a program and a host: counted, bounded, and never read faster than they can be passed on.

Above: `egress.proxy`, which has decided that they may flow.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio
import h11
from anyio.abc import ByteStream

from mcp_sandbox.egress import head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.abc import TaskGroup

    from mcp_sandbox.egress.bound import Returning

_CHUNK: Final = 64 * 1024
"""What is held of each direction, in bytes; the next read waits until it has been written."""

_RESPONSE_HEAD_BYTES: Final = 64 * 1024

GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What a stream raises whose other end is not there any more."""


class Ended(Exception):
    """A connection that was allowed ends before its time; the message says why, in our words alone."""


class _HostGone(Ended):
    """The host takes or gives no more."""


class Inbound(ByteStream):
    """The program's end of a connection, whose unread bytes can be looked at and put back."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def peek(self) -> None:
        """Wait until there is a byte to read."""
        if not self._buffer:
            self._buffer += await self._stream.receive(_CHUNK)

    def unread(self, data: bytes) -> None:
        """Put bytes back in front of those not read yet."""
        self._buffer[:0] = data

    async def request_head(self, limit: int) -> bytes:
        """Read up to the blank line that ends a request head.

        Raises:
            head.BadRequest: What has come so far cannot become one, or is longer than `limit` bytes.
            anyio.EndOfStream: It ends before.
        """
        seen = 0
        while True:
            end = self._buffer.find(b"\r\n\r\n", max(0, seen - 3))
            stop = len(self._buffer) if end < 0 else end
            # At once, not when the head is complete: a client that ends its lines with bare LF waits for us.
            if head.FORBIDDEN.search(self._buffer, max(0, seen - 2), stop):
                raise head.BadRequest("the request head is malformed")
            if stop > limit:
                raise head.BadRequest(f"the request head is longer than {limit} bytes")
            if end >= 0:
                found = bytes(self._buffer[: end + 4])
                del self._buffer[: end + 4]
                return found
            seen = len(self._buffer)
            self._buffer += await self._stream.receive(_CHUNK)

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """Return bytes put back first, then those that come."""
        if not self._buffer:
            return await self._stream.receive(max_bytes)
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        return data

    async def send(self, item: bytes) -> None:
        """Send to the program."""
        await self._stream.send(item)

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close both directions."""
        await self._stream.aclose()


class Opened(ByteStream):
    """TLS that is opened here, whose failures are those of a connection: hostile bytes are no error of ours."""

    def __init__(self, tls: ByteStream) -> None:
        self._tls = tls

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """Receive what was decrypted."""
        try:
            return await self._tls.receive(max_bytes)
        except ssl.SSLError as exc:
            raise anyio.BrokenResourceError from exc

    async def send(self, item: bytes) -> None:
        """Encrypt and send."""
        try:
            await self._tls.send(item)
        except ssl.SSLError as exc:
            raise anyio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        """Do nothing: TLS ends both directions at once."""

    async def aclose(self) -> None:
        """Close both directions."""
        with suppress(ssl.SSLError):
            await self._tls.aclose()


class Outbound(ByteStream):
    """A connection to a host; `count(up, down)` hears of every byte, and may raise `Ended`.

    What is sent is counted first, so a byte over the limit never leaves.
    """

    def __init__(self, stream: ByteStream, count: Callable[[int, int], None]) -> None:
        self._stream = stream
        self._count = count

    async def receive(self, max_bytes: int = _CHUNK) -> bytes:
        """Receive and count."""
        try:
            data = await self._stream.receive(max_bytes)
        except (anyio.BrokenResourceError, OSError) as exc:
            raise _HostGone("the host broke the connection") from exc
        self._count(0, len(data))
        return data

    async def send(self, item: bytes) -> None:
        """Count and send."""
        if not item:
            return
        self._count(len(item), 0)
        try:
            await self._stream.send(item)
        except (anyio.BrokenResourceError, OSError) as exc:
            raise _HostGone("the host broke the connection") from exc

    async def send_eof(self) -> None:
        """Say that nothing more will be sent."""
        try:
            await self._stream.send_eof()
        except (anyio.BrokenResourceError, OSError) as exc:
            raise _HostGone("the host broke the connection") from exc

    async def aclose(self) -> None:
        """Close both directions."""
        await self._stream.aclose()


async def tunnel(client: Inbound, host: Outbound) -> None:
    """Pass bytes both ways, each until its end, which is passed on too."""
    async with _together() as tasks:
        tasks.start_soon(_pass_on, client, host)
        await _pass_on(host, client)


async def _pass_on(source: ByteStream, sink: ByteStream) -> None:
    try:
        while True:
            await sink.send(await source.receive(_CHUNK))
    except anyio.EndOfStream:
        await sink.send_eof()


async def forward(
    client: Inbound,
    http: h11.Connection,
    host: Outbound,
    request: h11.Request,
    *,
    on_answer: Callable[[], None],
    returning: Returning | None = None,
) -> bool:
    """Send one request, its body still to be read from `client`, and return the response to it.

    `on_answer` is called before the first byte of the response, which passes through `returning`. Returns whether
    `client` may ask again.

    Raises:
        Ended: The body or the response does not end as HTTP has it.
    """
    out = h11.Connection(h11.CLIENT, max_incomplete_event_size=_RESPONSE_HEAD_BYTES)
    await host.send(out.send(request))
    if http.they_are_waiting_for_100_continue:
        await client.send(http.send(h11.InformationalResponse(status_code=100, headers=[])))
    async with _together() as tasks:
        tasks.start_soon(_send_body, client, http, host, out)
        await _return_response(client, http, host, out, on_answer, returning or _AsItComes())
        # A host may answer before it has the whole body; the rest of it then goes nowhere.
        tasks.cancel_scope.cancel()
    if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
        return False
    client.unread(http.trailing_data[0])
    return True


async def _send_body(client: Inbound, http: h11.Connection, host: Outbound, out: h11.Connection) -> None:
    try:
        while not isinstance(event := await _next_event(http, client, "the program"), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                await host.send(out.send(h11.Data(data=event.data)))
        await host.send(out.send(h11.EndOfMessage()))  # without the trailers
    except _HostGone:
        return  # its answer may have come before, and decides


async def _return_response(
    client: Inbound,
    http: h11.Connection,
    host: Outbound,
    out: h11.Connection,
    on_answer: Callable[[], None],
    returning: Returning | _AsItComes,
) -> None:
    while not isinstance(event := await _next_event(out, host, "the host"), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            try:
                response = returning.head(head.returned(event))
            except ValueError as exc:
                raise Ended(str(exc)) from None
            on_answer()
            await client.send(http.send(response))
        elif isinstance(event, h11.Data):
            await _send_data(client, http, returning.data(bytes(event.data)))
    await _send_data(client, http, returning.rest())
    await client.send(http.send(h11.EndOfMessage()))


async def _send_data(client: Inbound, http: h11.Connection, data: bytes) -> None:
    if data:
        await client.send(http.send(h11.Data(data=data)))


class _AsItComes:
    """A response that nothing is taken out of."""

    def head(self, response: h11.Response) -> h11.Response:
        return response

    def data(self, data: bytes) -> bytes:
        return data

    def rest(self) -> bytes:
        return b""


async def _next_event(http: h11.Connection, stream: ByteStream, peer: str) -> h11.Event:
    """Read on until a peer has said something."""
    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            try:
                data = await stream.receive(_CHUNK)
            except anyio.EndOfStream:
                data = b""
            http.receive_data(data)
    except h11.ProtocolError as exc:
        raise Ended(f"{peer} sent something that is not HTTP, or not all of it") from exc
    if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
        raise Ended(f"{peer} closed the connection too early")
    return event


@asynccontextmanager
async def _together() -> AsyncIterator[TaskGroup]:
    """Open a task group whose first failure is raised as it is, not wrapped in a group."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
