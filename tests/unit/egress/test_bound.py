"""Bound secrets: the value reaches its hosts and nobody else, and comes back to no program."""

from __future__ import annotations

import base64
import ssl
from typing import TYPE_CHECKING, Any

import anyio
import h11
import pytest
from anyio.streams.tls import TLSStream
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.egress.authority import Authority, towards_hosts
from mcp_sandbox.egress.bound import Bound, BoundSecret, HostSecrets
from mcp_sandbox.egress.opening import TlsOpening
from mcp_sandbox.egress.policy import InvalidHost, bound_host
from mcp_sandbox.egress.record import EgressLimits
from tests.unit.egress.conftest import Internet, Origin, Run, read_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trustme
    from anyio.abc import ByteStream

    Start = Callable[..., Awaitable[Run]]

pytestmark = pytest.mark.anyio

VALUE = b"s3cr3t-Value/with+chars=="
SECRET = BoundSecret.make("API_KEY", VALUE, ["api.test"])
HOLDER = SECRET.placeholder.decode()


@pytest.fixture(scope="module")
def own_authority() -> Authority:
    return Authority(["api.test"])


@pytest.fixture
def opening(own_authority: Authority, client_tls: ssl.SSLContext) -> TlsOpening:
    return TlsOpening(Bound([SECRET]), own_authority, client_tls)


@pytest.fixture
def inside(own_authority: Authority, authority: trustme.CA) -> ssl.SSLContext:
    """What a program in the sandbox trusts."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.load_verify_locations(cadata=own_authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on
    return context


async def ask(
    run: Run, context: ssl.SSLContext, raw: str, *, target: str = "api.test:443", name: str = "api.test"
) -> bytes:
    """Send raw bytes over TLS through a tunnel, and return all that comes back."""
    async with run.tunnel(target) as stream:
        tls = await TLSStream.wrap(stream, hostname=name, ssl_context=context, standard_compatible=False)
        await tls.send(raw.encode())
        return await read_all(tls)


def get(path: str = "/", *headers: str, host: str = "api.test") -> str:
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close")
    return "\r\n".join(lines) + "\r\n\r\n"


async def test_the_host_gets_the_value_in_headers_and_in_basic_authorization(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    assert (await ask(started, inside, get("/v1", f"Authorization: Bearer {HOLDER}"))).endswith(b"\r\n\r\nok")
    assert origin.headers()["authorization"] == f"Bearer {VALUE.decode()}"
    assert origin.headers()["host"] == "api.test"
    assert origin.requests[-1].target == b"/v1"
    await ask(started, inside, get("/", f"X-Api-Key: {HOLDER}", f"Cookie: a=1; key={HOLDER}; b=2"))
    assert origin.headers()["x-api-key"] == VALUE.decode()
    assert origin.headers()["cookie"] == f"a=1; key={VALUE.decode()}; b=2"
    basic = base64.b64encode(f"user:{HOLDER}".encode()).decode()
    await ask(started, inside, get("/", f"Authorization: Basic {basic}"))
    assert base64.b64decode(origin.headers()["authorization"].removeprefix("Basic ")) == b"user:" + VALUE
    records = [record for record in started.records if record.secrets]
    assert [record.secrets for record in records] == [("API_KEY",)] * 3
    assert {(record.host, record.verdict, record.address) for record in records} == {
        ("api.test", "allowed", "93.184.216.34")
    }
    assert VALUE.decode() not in str(started.records)


async def test_neither_paths_nor_bodies_nor_names_of_headers_get_it(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    body = f"key={HOLDER}"
    raw = f"POST /?key={HOLDER} HTTP/1.1\r\nHost: api.test\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    async with started.tunnel("api.test:443") as stream:
        tls = await TLSStream.wrap(stream, hostname="api.test", ssl_context=inside, standard_compatible=False)
        await tls.send(raw.encode())
        assert b"200" in await tls.receive()
    assert origin.requests[-1].target == f"/?key={HOLDER}".encode()
    assert origin.bodies[-1] == body.encode()
    assert not any(record.secrets for record in started.records)


async def test_several_requests_go_over_one_connection_of_the_programs(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    raw = f"GET /1 HTTP/1.1\r\nHost: api.test:443\r\nX-Key: {HOLDER}\r\n\r\n" * 3 + get("/last")
    answers = await ask(started, inside, raw)
    assert answers.count(b"HTTP/1.1 200 OK") == 4
    assert [request.target for request in origin.requests] == [b"/1", b"/1", b"/1", b"/last"]


@pytest.mark.parametrize(
    "raw",
    [
        get(host="other.test"),
        get(host="api.test.evil.test"),
        get(host="api.test:8443"),
        get("http://evil.test/"),
        get("https://api.test/"),
        "GET / HTTP/1.1\r\nHost: api.test\r\nHost: evil.test\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        f"GET / HTTP/1.1\r\nHost: api.test\r\nX: {HOLDER}\nHost: evil.test\r\n\r\n",
        "\x16\x03\x01garbage\r\n\r\n",
    ],
)
async def test_what_is_not_a_request_for_that_very_host_goes_nowhere(
    raw: str, run: Start, internet: Internet, origin: Origin, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    assert (await ask(started, inside, raw)).startswith(b"HTTP/1.1 400 ")
    assert internet.dialled == []
    assert started.records[0].verdict == "refused"


async def test_an_allowed_host_that_no_secret_is_bound_to_is_passed_through_unopened(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening, client_tls: ssl.SSLContext
) -> None:
    await internet.listen("other.test", 443, origin, tls=True)
    await internet.listen("api.test", 8443, origin, tls=True)
    started = await run("other.test", "api.test:8443", "api.test", opening=opening)
    for target, name in (("other.test:443", "other.test"), ("api.test:8443", "api.test")):
        # A program that trusts the public authorities alone: what is opened would not pass.
        raw = get("/", f"X-Key: {HOLDER}", host=target)
        assert b"200 OK" in await ask(started, client_tls, raw, target=target, name=name)
        assert origin.headers()["x-key"] == HOLDER


async def test_plain_http_never_carries_it(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening
) -> None:
    await internet.listen("api.test", 80, origin)
    started = await run("api.test", opening=opening)
    raw = f"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX-Key: {HOLDER}\r\nConnection: close\r\n\r\n"
    assert b"200 OK" in await started.ask(raw.encode())
    assert origin.headers()["x-key"] == HOLDER


async def test_a_host_that_is_not_who_it_says_is_sent_nothing(
    run: Start, internet: Internet, origin: Origin, own_authority: Authority, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    # Its certificate is of an authority that this side does not know, whatever the program trusts.
    opening = TlsOpening(Bound([SECRET]), own_authority, towards_hosts())
    started = await run("api.test", opening=opening)
    answer = await ask(started, inside, get("/", f"X-Key: {HOLDER}"))
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"did not prove to be that host" in answer
    assert origin.requests == []
    assert [(record.verdict, record.secrets) for record in started.records][:1] == [("failed", ())]


async def test_a_host_that_speaks_no_tls_is_sent_nothing(
    run: Start, internet: Internet, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    came = b""

    async def plain(stream: ByteStream) -> None:
        nonlocal came
        async with stream:
            came = await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")

    await internet.listen("api.test", 443, plain)
    started = await run("api.test", opening=opening)
    assert b"502" in await ask(started, inside, get("/", f"X-Key: {HOLDER}"))
    assert came[:1] == b"\x16"  # a ClientHello, and nothing after it
    assert VALUE not in came


async def test_a_program_that_does_not_trust_the_authority_is_told_on_the_record(
    run: Start, opening: TlsOpening, client_tls: ssl.SSLContext
) -> None:
    started = await run("api.test", opening=opening)
    with pytest.raises((ssl.SSLError, anyio.BrokenResourceError)):
        await ask(started, client_tls, get())
    await started.records.wait_for(1)
    assert "SSL_CERT_FILE" in started.records[0].reason
    assert started.records[0].verdict == "refused"


ECHOES = {
    "in the body": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(VALUE) + 2, b"<" + VALUE + b">"),
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"1\r\n%c\r\n" % byte for byte in b"<" + VALUE + b">")
    + b"0\r\n\r\n",
    "until the end": b"HTTP/1.1 200 OK\r\n\r\n<" + VALUE + b">",
    "in a header": b"HTTP/1.1 302 Found\r\nLocation: /?k=" + VALUE + b"\r\nContent-Length: 2\r\n\r\n<>",
    "in the reason": b"HTTP/1.1 200 " + VALUE + b"\r\nContent-Length: 2\r\n\r\n<>",
    "as hex": b"HTTP/1.1 200 OK\r\n\r\n<" + VALUE.hex().encode() + b">",
    "as base64": b"HTTP/1.1 200 OK\r\n\r\n<" + base64.b64encode(b"user:" + VALUE) + b">",
    "at the very end": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(VALUE) + 2, b"<>" + VALUE),
}


@pytest.mark.parametrize("where", ECHOES)
async def test_a_host_that_repeats_it_is_written_over(
    where: str,
    run: Start,
    internet: Internet,
    origin: Origin,
    opening: TlsOpening,
    inside: ssl.SSLContext,
) -> None:
    origin.response = ECHOES[where]
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    answer = await ask(started, inside, get("/", f"X-Key: {HOLDER}"))
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("Host", "api.test")]))
    http.receive_data(answer)
    http.receive_data(b"")
    seen = b""
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        seen += event.data if isinstance(event, h11.Data) else b"".join(v for _, v in event.headers)
    assert b"<" in seen  # all of it came, as HTTP has it
    assert b">" in seen
    assert b"*" in answer
    for form in (VALUE, VALUE.hex().encode(), base64.b64encode(b"user:" + VALUE)[8:-4]):
        assert form not in answer.replace(b"\r\n1\r\n", b"")


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"identity, gzip"])
async def test_what_cannot_be_searched_does_not_come_back(
    encoding: bytes,
    run: Start,
    internet: Internet,
    origin: Origin,
    opening: TlsOpening,
    inside: ssl.SSLContext,
) -> None:
    origin.response = (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: " + encoding + b"\r\nContent-Length: 3\r\n\r\nabc"
    )
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    answer = await ask(started, inside, get("/", "Accept-Encoding: gzip, br"))
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"cannot be searched" in answer
    assert origin.headers()["accept-encoding"] == "identity"


async def test_garbage_inside_tls_breaks_nothing(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening)
    async with started.tunnel("api.test:443") as stream:
        tls = await TLSStream.wrap(stream, hostname="api.test", ssl_context=inside, standard_compatible=False)
        await tls.send(b"GET / HT")
        await stream.send(b"\x17\x03\x03\x00\x05junk!" * 10)
        await read_all(stream)
    assert b"200 OK" in await ask(started, inside, get())  # and the next is served


async def test_requests_inside_tls_count(
    run: Start, internet: Internet, origin: Origin, opening: TlsOpening, inside: ssl.SSLContext
) -> None:
    await internet.listen("api.test", 443, origin, tls=True)
    started = await run("api.test", opening=opening, limits=EgressLimits(requests=3))
    answers = await ask(started, inside, "GET / HTTP/1.1\r\nHost: api.test\r\n\r\n" * 5)
    assert answers.count(b"200 OK") == 2  # the tunnel was one
    assert b"HTTP/1.1 429 " in answers


async def test_the_authority_can_speak_for_its_hosts_alone(
    own_authority: Authority, inside: ssl.SSLContext
) -> None:
    def shake_hands(host: str) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = inside.wrap_bio(back, there, server_hostname=host)
        server = own_authority.towards_programs(host).wrap_bio(there, back, server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        assert client.version()

    shake_hands("api.test")
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        shake_hands("bank.test")


def test_no_two_runs_hold_the_same_placeholder() -> None:
    assert (
        BoundSecret.make("K", VALUE, ["a.test"]).placeholder != BoundSecret.make("K", VALUE, []).placeholder
    )
    assert VALUE.decode() not in repr(SECRET)


@pytest.mark.parametrize(
    "entry", ["*.api.test", "10.0.0.1", "[::1]", "https://api.test", "a.test/x", "", "u@a.test"]
)
def test_a_secret_is_bound_to_names_one_by_one(entry: str) -> None:
    with pytest.raises(InvalidHost):
        bound_host(entry)


def test_the_name_of_a_bound_host_has_one_form() -> None:
    assert bound_host("API.Example.com.") == ("api.example.com", 443)
    assert bound_host("api.example.com:8443") == ("api.example.com", 8443)


@given(st.lists(st.binary(max_size=40) | st.just(VALUE) | st.just(VALUE[:9]), max_size=12), st.data())
def test_however_a_body_is_cut_its_length_stays_and_the_value_goes(pieces: list[bytes], data: Any) -> None:
    body = b"".join(pieces)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=8)))
    returning = HostSecrets([SECRET]).returning()
    parts = zip([0, *cuts], [*cuts, len(body)], strict=True)
    out = b"".join([*(returning.data(body[start:end]) for start, end in parts), returning.rest()])
    assert len(out) == len(body)
    assert VALUE not in out
