"""Whatever a program or a host sends: no exception, and no dial that the policy did not allow."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_sandbox.egress.policy import EgressPolicy
from mcp_sandbox.egress.proxy import EgressProxy
from mcp_sandbox.egress.record import EgressLimits, EgressRecord
from tests.unit.egress.conftest import Scripted, hello

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import ByteStream

    from mcp_sandbox.egress.policy import IPAddress

POLICY = EgressPolicy.parse(["api.test", "*.wild.test:8443", "198.51.100.7:443"], workspace="lab")
ANSWERS = {"api.test": "93.184.216.34", "a.wild.test": "93.184.216.35"}


def converse(chunks: list[bytes], response: bytes) -> tuple[list[EgressRecord], list[Scripted], bytes]:
    """Play one connection; check what was dialled, and return the records, hosts and what the program got."""
    records: list[EgressRecord] = []
    hosts: list[Scripted] = []

    async def resolve(host: str) -> Sequence[IPAddress]:
        if host not in ANSWERS:
            raise OSError("no such name")
        return [ip_address(ANSWERS[host])]

    async def dial(host: str, port: int, address: IPAddress | None) -> ByteStream:
        assert POLICY.decide(host, port).allowed
        assert str(address) == ANSWERS.get(host, host)
        hosts.append(Scripted(response))
        return hosts[-1]

    async def play() -> bytes:
        proxy = EgressProxy(
            POLICY,
            resolve=resolve,
            dial=dial,
            log=records.append,
            limits=EgressLimits(requests=5),
            is_own=lambda _: False,
        )
        client = Scripted(*chunks)
        with anyio.fail_after(20):
            await proxy.serve(client)
        assert client.closed
        assert all(host.closed for host in hosts)
        return bytes(client.told)

    told = anyio.run(play)
    for record in records:
        assert "\n" not in record.model_dump_json()
        assert record.model_dump_json().isascii()
    return records, hosts, told


pieces = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
            b"GET http://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
            b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nContent-Length: 4\r\n\r\n",
            b"POST http://api.test/ HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST http://api.test/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
            b"HEAD http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
            b"GET http://api.test/ HTTP/1.0\r\n\r\n",
            b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"CONNECT a.wild.test:8443 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"CONNECT 198.51.100.7:443 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET http://", b"CONNECT ", b"api.test", b"@", b":443", b":80", b"[::1]", b"/", b"\0", b"\r\n",
            b"\n", b" HTTP/1.1\r\n", b"Host: api.test\r\n", b"Host: evil.test\r\n", b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"4\r\nabcd\r\n", b"0\r\n\r\n",
            hello("api.test"), hello("evil.test"), hello(None),
        ]
    ),
)  # fmt: skip
responses = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 204 None\r\n",
                b"HTTP/1.1 304 \r\n",
                b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 101 Switching\r\n", b"HTTP/1.1 999 X\r\n",
                b"Content-Length: 4\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n",
                b"Transfer-Encoding: gzip\r\n", b"Connection: content-length\r\n", b"X: \xff\r\n",
                b"Trailer: X\r\n",
                b"\r\n", b"abcd", b"4\r\nabcd\r\n0\r\n\r\n", b"0\r\nX: y\r\n\r\n",
            ]
        ),
        max_size=7,
    ).map(b"".join),
)  # fmt: skip


@given(chunks=st.lists(pieces, max_size=8), whole=st.booleans(), response=responses)
@settings(max_examples=400, deadline=None)
def test_any_conversation_ends_without_an_error(chunks: list[bytes], whole: bool, response: bytes) -> None:
    if whole:
        chunks = [b"".join(chunks)]
    records, hosts, _ = converse(chunks, response)
    assert len(hosts) <= sum(record.address is not None for record in records)


@given(
    name=st.sampled_from(["api.test", "evil.test", None]),
    edits=st.dictionaries(st.integers(0, 500), st.integers(0, 255), max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_a_host_gets_nothing_but_a_hello_that_names_it(name: str | None, edits: dict[int, int]) -> None:
    first = bytearray(hello(name))
    for at, byte in edits.items():
        first[at % len(first)] = byte
    connect = b"CONNECT api.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    records, hosts, _ = converse([connect, bytes(first)], b"")
    if hosts[0].told:
        assert records[0].sni is not None
        assert records[0].sni.lower().removesuffix(".") == "api.test"
        assert hosts[0].told == first
