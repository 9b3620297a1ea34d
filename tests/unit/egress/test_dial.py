"""How names are resolved and connections made, directly and through an upstream proxy."""

from __future__ import annotations

import base64
import socket
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute

from mcp_sandbox.egress import dial
from mcp_sandbox.egress.dial import SystemResolver, UpstreamProxy, dial_direct, upstream_proxy
from tests.unit.egress.conftest import Internet, Origin, Run, echo, hello, read_all, read_until, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Start = Callable[..., Awaitable[Run]]

pytestmark = pytest.mark.anyio


class Corporate:
    """An upstream proxy that knows its hosts by name."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.answer = b"HTTP/1.1 200 OK\r\n\r\n"
        self.then: Callable[[ByteStream], Awaitable[None]] = echo

    async def __call__(self, stream: ByteStream) -> None:
        async with stream:
            self.heads.append(await read_until(stream, b"\r\n\r\n"))
            await stream.send(self.answer)
            await self.then(stream)


@pytest.fixture
def corporate() -> Corporate:
    return Corporate()


@pytest.fixture
async def upstream(internet: Internet, corporate: Corporate) -> AsyncIterator[int]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    internet.tasks.start_soon(serve, listener, corporate)
    return listener.extra(SocketAttribute.local_port)


async def test_a_tunnel_goes_through_the_upstream_proxy_by_name(
    run: Start, internet: Internet, corporate: Corporate, upstream: int
) -> None:
    proxy = UpstreamProxy("127.0.0.1", upstream, "user:pa ss")
    started = await run("api.test", dial=proxy, resolve=None)
    first = hello("api.test")
    async with started.tunnel("api.test:443") as stream:
        await stream.send(first)
        assert await read_until(stream, first[-8:]) == first
    head = corporate.heads[0].decode()
    assert head.startswith("CONNECT api.test:443 HTTP/1.1\r\n")
    assert f"Basic {base64.b64encode(b'user:pa ss').decode()}" in head
    await started.records.wait_for(1)
    assert started.records[0].address is None
    assert started.records[0].verdict == "allowed"


async def test_plain_http_goes_through_the_upstream_proxy_too(
    run: Start, corporate: Corporate, upstream: int
) -> None:
    corporate.then = origin = Origin()
    started = await run("api.test", dial=UpstreamProxy("127.0.0.1", upstream), resolve=None)
    answer = await started.ask(b"GET http://api.test/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.endswith(b"ok")
    assert corporate.heads[0].startswith(b"CONNECT api.test:80 ")
    assert b"Authorization" not in corporate.heads[0]
    assert origin.requests[0].target == b"/x"


@pytest.mark.parametrize("target", ["evil.test:443", "api.test:22", "127.0.0.1:443", "0x7f000001:443"])
async def test_the_allowlist_holds_in_front_of_an_upstream_proxy(
    run: Start, corporate: Corporate, upstream: int, target: str
) -> None:
    started = await run("api.test", dial=UpstreamProxy("127.0.0.1", upstream), resolve=None)
    answer = await started.ask(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert corporate.heads == []


async def test_the_server_name_holds_in_front_of_an_upstream_proxy(
    run: Start, corporate: Corporate, upstream: int
) -> None:
    async def keep(stream: ByteStream) -> None:
        passed.append(await read_all(stream))

    passed: list[bytes] = []
    corporate.then = keep
    started = await run("api.test", dial=UpstreamProxy("127.0.0.1", upstream), resolve=None)
    async with started.tunnel("api.test:443") as stream:
        await stream.send(hello("evil.test"))
        await read_all(stream)
    await started.records.wait_for(1)
    assert started.records[0].verdict == "refused"
    assert b"".join(passed) == b""


async def test_addresses_are_checked_in_front_of_an_upstream_proxy_where_names_resolve_here(
    run: Start, internet: Internet, corporate: Corporate, upstream: int
) -> None:
    internet.name("api.test", "10.0.0.5")
    started = await run("api.test", dial=UpstreamProxy("127.0.0.1", upstream))
    answer = await started.ask(b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"private" in answer
    assert corporate.heads == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", b"answered 407"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", b"answered 403"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://login.test/\r\n\r\n", b"answered 302"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", b"no proper answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, b"no proper answer"),
        (b"HTTP/1.1 200 OK\r\n\r\nsurprise", b"spoke before"),
        (b"", b"no proper answer"),
    ],
)
async def test_an_upstream_proxy_that_does_not_connect_is_a_failure(
    run: Start, corporate: Corporate, upstream: int, answer: bytes, said: bytes
) -> None:
    async def end(_: ByteStream) -> None:
        return

    corporate.answer, corporate.then = answer, end
    started = await run("api.test", dial=UpstreamProxy("127.0.0.1", upstream), resolve=None)
    told = await started.ask(b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 502 ")
    assert said in told
    assert [record.verdict for record in started.records] == ["failed"]


def test_an_upstream_proxy_is_configured_by_its_address() -> None:
    assert upstream_proxy("http://proxy.example:3128") == UpstreamProxy("proxy.example", 3128)
    assert upstream_proxy("") is None


def test_credentials_are_not_in_the_repr() -> None:
    assert "secret" not in repr(UpstreamProxy("proxy.test", 3128, "user:secret"))


async def test_a_direct_dial_goes_to_the_address_and_never_to_the_name(internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    port = next(iter(internet.listening.values()))
    with anyio.fail_after(20):
        async with await dial_direct("does.not.resolve.invalid", port, IPv4Address("127.0.0.1")) as stream:
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"
        with pytest.raises(OSError, match="not resolved"):
            await dial_direct("localhost", port, None)


async def test_names_are_looked_up_as_the_host_does() -> None:
    with anyio.fail_after(20):
        assert IPv4Address("127.0.0.1") in await SystemResolver()("localhost")


async def test_a_search_list_cannot_turn_a_name_into_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(name: bytes, *_: object, **__: object) -> list[Any]:
        asked.append(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 0))] * 2

    asked: list[bytes] = []
    monkeypatch.setattr(dial.socket, "getaddrinfo", getaddrinfo)
    assert await SystemResolver()("api.test") == [IPv4Address("93.184.216.34")]
    assert asked == [b"api.test."]
