"""CONNECT tunnels: TLS to the host that was allowed, and nothing else."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from anyio.streams.tls import TLSStream

from mcp_sandbox.egress import addresses, sni
from tests.unit.egress.conftest import (
    PUBLIC,
    Internet,
    Origin,
    Run,
    Scripted,
    echo,
    hello,
    read_all,
    read_until,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from anyio.abc import ByteStream

    Start = Callable[..., Awaitable[Run]]

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site(internet: Internet) -> None:
    await internet.listen("api.test", 443, echo, tls=True)


async def test_an_ordinary_client_gets_an_allowed_page(
    run: Start, internet: Internet, origin: Origin, client_tls: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"https": f"http://127.0.0.1:{started.port}"}),
        urllib.request.HTTPSHandler(context=client_tls),
    )

    def fetch() -> bytes:
        with opener.open("https://api.test/page", timeout=20) as answer:
            return bytes(answer.read())

    assert await anyio.to_thread.run_sync(fetch) == b"ok"
    await started.records.wait_for(1)
    record = started.records[0]
    assert (record.host, record.port, record.sni, record.address) == ("api.test", 443, "api.test", PUBLIC)
    assert (record.verdict, record.rule) == ("allowed", "api.test")
    assert record.bytes_up > 300
    assert record.bytes_down > 300
    assert record.duration_ms >= 0


async def test_an_ordinary_client_shows_why_it_was_refused(run: Start, client_tls: ssl.SSLContext) -> None:
    started = await run("api.test")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"https": f"http://127.0.0.1:{started.port}"}),
        urllib.request.HTTPSHandler(context=client_tls),
    )

    def fetch() -> str:
        with pytest.raises(urllib.error.URLError) as caught:
            opener.open("https://evil.test/", timeout=20)
        return str(caught.value)

    line = 'under [workspaces.lab.egress]: allow = ["api.test", "evil.test:443"]'
    assert line in await anyio.to_thread.run_sync(fetch)


async def test_bytes_flow_both_ways_until_either_side_ends(
    run: Start, internet: Internet, client_tls: ssl.SSLContext
) -> None:
    await internet.listen("a.wild.test", 443, echo, tls=True)
    started = await run("*.wild.test:443")
    async with started.tunnel("A.wild.test.:443") as stream:
        tls = await TLSStream.wrap(
            stream, hostname="a.wild.test", ssl_context=client_tls, standard_compatible=False
        )
        await tls.send(b"hello")
        assert await tls.receive() == b"hello"
        await tls.aclose()
    await started.records.wait_for(1)
    assert started.records[0].rule == "*.wild.test:443"


async def test_the_end_of_one_direction_leaves_the_other_open(run: Start, internet: Internet) -> None:
    async def says_how_much(stream: ByteStream) -> None:
        async with stream:
            await stream.send(b"%d" % len(await read_all(stream)))

    await internet.listen("api.test", 443, says_how_much)
    started = await run("api.test")
    first = hello("api.test")
    async with started.tunnel("api.test:443") as stream:
        await stream.send(first)
        await stream.send(b"more")
        await stream.send_eof()
        assert await read_all(stream) == b"%d" % (len(first) + 4)


async def test_a_hello_in_single_bytes_gets_through_whole(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test")
    first = hello("api.test")
    async with started.tunnel("api.test:443") as stream:
        for at in range(len(first)):
            await stream.send(first[at : at + 1])
        assert await read_until(stream, first[-20:]) == first


async def test_a_hello_sent_with_the_connect_request_is_checked_too(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test")
    request = b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"
    async with await started.connect() as stream:
        await stream.send(request + hello("api.test"))
        await read_until(stream, hello("api.test")[-4:])
    assert (await started.ask(request + hello("evil.test"))).endswith(sni.ACCESS_DENIED)
    await started.records.wait_for(2)
    assert started.records[1].bytes_up == 0


@pytest.mark.parametrize(
    ("target", "first", "answer", "reason"),
    [
        ("api.test:443", hello("evil.test"), sni.ACCESS_DENIED, '"evil.test"'),
        ("api.test:443", hello("a.api.test"), sni.ACCESS_DENIED, '"a.api.test"'),
        ("api.test:443", hello("xapi.test"), sni.ACCESS_DENIED, '"xapi.test"'),
        ("a.wild.test:443", hello("b.wild.test"), sni.ACCESS_DENIED, '"b.wild.test"'),
        ("api.test:443", hello(None), sni.ACCESS_DENIED, "no server by name"),
        ("198.51.100.7:443", hello("evil.test"), sni.ACCESS_DENIED, '"evil.test"'),
        ("api.test:443", b"GET / HTTP/1.1\r\n\r\n", b"it is not TLS.\n", "TLS alone"),
        ("api.test:8443", b"GET / HTTP/1.1\r\n\r\n", b"it is not TLS.\n", "TLS alone"),
        ("api.test:443", b"SSH-2.0-x\r\n", b"it is not TLS.\n", "TLS alone"),
        ("api.test:443", b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", sni.ACCESS_DENIED, "TLS alone"),
        ("api.test:443", b"\x16\x03\x01\x00\x00", sni.ACCESS_DENIED, "TLS alone"),
    ],
)
async def test_what_is_not_tls_for_that_host_sends_not_one_byte(
    run: Start, internet: Internet, target: str, first: bytes, answer: bytes, reason: str
) -> None:
    async def reached(stream: ByteStream) -> None:
        async with stream:
            seen.append(await read_all(stream))

    seen: list[bytes] = []
    for name, port, address in (
        ("api.test", 443, PUBLIC),
        ("api.test", 8443, PUBLIC),
        ("a.wild.test", 443, PUBLIC),
        ("198.51.100.7", 443, "198.51.100.7"),
    ):
        await internet.listen(name, port, reached, address=address)
    started = await run("api.test", "api.test:8443", "*.wild.test", "198.51.100.7:443")
    async with started.tunnel(target) as stream:
        await stream.send(first)
        assert (await read_all(stream)).endswith(answer)
    await started.records.wait_for(1)
    record = started.records[0]
    assert record.verdict == "refused"
    assert reason in record.reason
    assert record.bytes_up == 0
    assert b"".join(seen) == b""


@pytest.mark.parametrize("name", [None, "198.51.100.7"])
async def test_an_address_that_was_named_needs_no_server_name(
    run: Start, internet: Internet, name: str | None
) -> None:
    await internet.listen("ip", 443, echo, address="198.51.100.7")
    started = await run("198.51.100.7:443")
    first = hello(name)
    async with started.tunnel("198.51.100.7:443") as stream:
        await stream.send(first)
        assert await read_until(stream, first[-8:]) == first
    assert internet.lookups == []


async def test_a_server_name_differs_from_the_host_in_case_alone(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test")
    first = hello("aPi.tEst")
    async with started.tunnel("Api.Test:443") as stream:
        await stream.send(first)
        assert await read_until(stream, first[-8:]) == first


async def test_the_host_cannot_speak_before_the_hello_was_checked(run: Start, internet: Internet) -> None:
    async def eager(stream: ByteStream) -> None:
        async with stream:
            await stream.send(b"220 mail.test ESMTP\r\n")
            await read_all(stream)

    await internet.listen("api.test", 443, eager)
    started = await run("api.test")
    async with started.tunnel("api.test:443") as stream:
        await stream.send(b"HELO x\r\n")
        assert b"220 " not in await read_all(stream)


@pytest.mark.parametrize(
    "target",
    [
        "api.test:22",
        "api.test:25",
        "api.test:80",
        "evil.test:443",
        "api.test.evil.test:443",
        "1.1.1.1:443",
        "2130706433:443",
        "0177.0.0.1:443",
        "0x7f000001:443",
        "127.1:443",
        "0.0.0.0:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "[fe80::1%25eth0]:443",
        "[fd00:ec2::254]:80",
        "[api.test]:443",
        "169.254.169.254:80",
        "168.63.129.16:443",
        "metadata.google.internal:443",
        "localhost:443",
        "host.docker.internal:443",
        "PROXY",
    ],
)
async def test_connect_to_anything_else_is_refused_and_dials_nothing(
    run: Start, internet: Internet, site: None, target: str
) -> None:
    started = await run("api.test")
    target = target.replace("PROXY", f"127.0.0.1:{started.port}")
    answer = await started.ask(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert internet.lookups == internet.dialled == []
    assert [record.verdict for record in started.records] == ["refused"]


@pytest.mark.parametrize(
    "target",
    ["api.test:0", "api.test:99999", "api.test", "api.test:", "a@api.test:443", "http://api.test:443/"],
)
async def test_a_malformed_connect_is_refused(run: Start, internet: Internet, target: str) -> None:
    started = await run("api.test")
    answer = await started.ask(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert internet.dialled == []


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["127.0.0.1"], "loopback"),
        (["10.0.0.5"], "private"),
        (["169.254.169.254"], "metadata"),
        ([PUBLIC, "10.0.0.5"], "private"),
        ([PUBLIC, PUBLIC, "::1"], "loopback"),
        (["::ffff:127.0.0.1"], "IPv4-mapped"),
        (["64:ff9b::7f00:1"], "loopback"),
        (["2002:7f00:1::"], "6to4"),
        (["fd00:ec2::254"], "metadata"),
    ],
)
async def test_an_allowed_name_that_points_inside_is_refused(
    run: Start, internet: Internet, site: None, answers: list[str], kind: str
) -> None:
    internet.name("api.test", *answers)
    started = await run("api.test")
    answer = await started.ask(b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert kind.encode() in answer
    assert internet.dialled == []


async def test_an_allowed_name_that_points_at_the_host_itself_is_refused(
    run: Start, internet: Internet, site: None
) -> None:
    started = await run("api.test", is_own=lambda address: str(address) == PUBLIC)
    answer = await started.ask(b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"own host" in answer
    assert internet.dialled == []


async def test_a_name_may_point_inside_where_the_address_is_named_too(run: Start, internet: Internet) -> None:
    await internet.listen("intranet.test", 443, echo, address="10.0.0.5")
    refused = await run("intranet.test", "10.0.0.5:8443", "10.0.0.6:443")
    answer = await refused.ask(b"CONNECT intranet.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b' "10.0.0.5:443"]' in answer
    started = await run("intranet.test", "10.0.0.5:443")
    async with started.tunnel("intranet.test:443"):
        assert internet.dialled == [("intranet.test", 443, "10.0.0.5")]


async def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(
    run: Start, internet: Internet, site: None
) -> None:
    turns = iter([[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]])
    internet.names["api.test"] = lambda: next(turns)
    started = await run("api.test")
    async with started.tunnel("api.test:443"):
        assert internet.lookups == ["api.test"]
        assert internet.dialled == [("api.test", 443, PUBLIC)]
    answer = await started.ask(b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert len(internet.dialled) == 1


async def test_the_next_address_is_tried_where_one_does_not_answer(
    run: Start, internet: Internet, site: None
) -> None:
    internet.name("api.test", "93.184.216.1", "93.184.216.2", PUBLIC)
    started = await run("api.test")
    async with started.tunnel("api.test:443"):
        assert [address for _, _, address in internet.dialled] == ["93.184.216.1", "93.184.216.2", PUBLIC]


async def test_a_name_without_an_address_is_a_failure(run: Start, internet: Internet) -> None:
    internet.name("api.test")
    started = await run("api.test")
    answer = await started.ask(b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert started.records[0].verdict == "failed"


@pytest.mark.parametrize("broken", ["receive", "send", "send_eof"])
async def test_a_host_that_breaks_off_ends_the_tunnel_and_is_named_for_it(run: Start, broken: str) -> None:
    class Breaks(Scripted):
        async def send(self, item: bytes) -> None:
            if broken == "send" and self.told:
                raise anyio.BrokenResourceError
            await super().send(item)

        async def send_eof(self) -> None:
            if broken == "send_eof":
                raise OSError("reset")

        async def receive(self, max_bytes: int = 65536) -> bytes:
            if broken == "receive":
                raise anyio.BrokenResourceError
            await anyio.sleep_forever()
            raise AssertionError

    async def dial(*_: object) -> Breaks:
        return Breaks()

    started = await run("198.51.100.7:443", dial=dial)
    client = Scripted(b"CONNECT 198.51.100.7:443 HTTP/1.1\r\nHost: x\r\n\r\n", hello(None), b"more")
    with anyio.fail_after(20):
        await started.proxy.serve(client)
    assert client.closed
    assert [record.reason for record in started.records] == ["the host broke the connection"]
    assert started.records[0].verdict == "allowed"


async def test_loopback_is_one_of_the_hosts_own_addresses_on_the_real_path(
    run: Start, internet: Internet
) -> None:
    """The default check is the kernel's, not a test's."""
    started = await run("api.test")
    assert started.proxy._is_own is addresses.is_own
