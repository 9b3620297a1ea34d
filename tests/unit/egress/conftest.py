"""A small internet on loopback, and the proxy of one run in front of it.

Names resolve to public addresses, and a dialler that knows where each of them really listens connects: so the
code under test runs with its real address checks, and every connection that it makes is a real one.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import h11
import pytest
import trustme
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener

from mcp_sandbox.egress.policy import EgressPolicy
from mcp_sandbox.egress.proxy import EgressProxy
from mcp_sandbox.egress.record import EgressLimits, EgressRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from mcp_sandbox.egress.policy import IPAddress

PUBLIC = "93.184.216.34"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def serve(listener: Any, handler: Callable[[ByteStream], Awaitable[None]]) -> None:
    async with listener:
        await listener.serve(handler)


@dataclass
class Internet:
    """What names resolve to, what listens where, and what was looked up and dialled."""

    tasks: TaskGroup
    authority: trustme.CA
    names: dict[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    listening: dict[tuple[str, int], int] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int, str]] = field(default_factory=list)

    def name(self, name: str, *addresses: str) -> None:
        self.names[name] = lambda: addresses

    async def listen(
        self,
        name: str,
        port: int,
        handler: Callable[[ByteStream], Awaitable[None]],
        *,
        tls: bool = False,
        address: str = PUBLIC,
    ) -> None:
        """Make `handler` answer for name and port."""
        listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.name(name, address)
        self.listening[address, port] = listener.extra(SocketAttribute.local_port)
        if tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.authority.issue_cert(name).configure_cert(context)
            listener = TLSListener(listener, context, standard_compatible=False)
        self.tasks.start_soon(serve, listener, handler)

    async def resolve(self, host: str) -> Sequence[IPAddress]:
        self.lookups.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return [ip_address(answer) for answer in self.names[host]()]

    async def dial(self, host: str, port: int, address: IPAddress | None) -> ByteStream:
        self.dialled.append((host, port, str(address)))
        if (str(address), port) not in self.listening:
            raise ConnectionRefusedError("nothing listens there")
        return await anyio.connect_tcp("127.0.0.1", self.listening[str(address), port])


@pytest.fixture
async def internet(authority: trustme.CA) -> AsyncIterator[Internet]:
    async with anyio.create_task_group() as tasks:
        yield Internet(tasks, authority)
        tasks.cancel_scope.cancel()


class Records(list[EgressRecord]):
    """Records as they come; a test may wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self._came = anyio.Event()

    def append(self, record: EgressRecord) -> None:
        super().append(record)
        self._came.set()
        self._came = anyio.Event()

    async def wait_for(self, count: int) -> None:
        with anyio.fail_after(20):
            while len(self) < count:
                await self._came.wait()


@dataclass
class Run:
    """One run's proxy, reachable on a loopback port."""

    port: int
    proxy: EgressProxy
    records: Records

    async def connect(self) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    @asynccontextmanager
    async def tunnel(self, target: str) -> AsyncIterator[ByteStream]:
        """Open a CONNECT tunnel that has been granted."""
        async with await self.connect() as stream:
            await stream.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            answer = await read_until(stream, b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 "), answer
            yield stream

    async def ask(self, raw: bytes) -> bytes:
        """Send raw bytes, then return everything that comes back until the proxy closes."""
        async with await self.connect() as stream:
            await stream.send(raw)
            return await read_all(stream)


async def read_all(stream: ByteStream) -> bytes:
    received = bytearray()
    with anyio.fail_after(20):
        try:
            while True:
                received += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return bytes(received)


async def read_until(stream: ByteStream, end: bytes) -> bytes:
    received = bytearray()
    with anyio.fail_after(20):
        while not received.endswith(end):
            received += await stream.receive()
    return bytes(received)


@pytest.fixture
async def run(internet: Internet) -> Callable[..., Awaitable[Run]]:
    """Start the proxy of a run that may reach the given entries."""

    async def start(*allow: str, limits: EgressLimits | None = None, **over: Any) -> Run:
        records = Records()
        options: dict[str, Any] = {
            "resolve": internet.resolve,
            "dial": internet.dial,
            "log": records.append,
            "limits": limits or EgressLimits(),
            **over,
        }
        proxy = EgressProxy(EgressPolicy.parse(allow, workspace="lab"), **options)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=2048)
        internet.tasks.start_soon(serve, listener, proxy.serve)
        return Run(listener.extra(SocketAttribute.local_port), proxy, records)

    return start


@dataclass
class Origin:
    """A web server that keeps what it was asked, and answers every request alike."""

    response: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    requests: list[h11.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def __call__(self, stream: ByteStream) -> None:
        self.connections += 1
        async with stream:
            http = h11.Connection(h11.SERVER)
            body = b""
            while True:
                event = http.next_event()
                if event is h11.NEED_DATA:
                    http.receive_data(await stream.receive())
                elif isinstance(event, h11.Request):
                    self.requests.append(event)
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            self.bodies.append(body)
            await stream.send(self.response)

    def headers(self, index: int = -1) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.requests[index].headers}


async def echo(stream: ByteStream) -> None:
    """Send back what comes, then the end of it."""
    async with stream:
        try:
            while True:
                await stream.send(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


@pytest.fixture
def origin() -> Origin:
    return Origin()


def hello(name: str | None) -> bytes:
    """Return what a real TLS client sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


class Scripted(ByteStream):
    """A program's end in memory: says its chunks, then nothing more, and keeps what it is told."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]
        self.told = bytearray()
        self.closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        chunk = self._chunks.pop(0)
        if len(chunk) > max_bytes:
            self._chunks.insert(0, chunk[max_bytes:])
        return chunk[:max_bytes]

    async def send(self, item: bytes) -> None:
        self.told += item

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        self.closed = True
