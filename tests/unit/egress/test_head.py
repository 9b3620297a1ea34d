"""A request head is read one way, or refused."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_sandbox.egress import head


@pytest.mark.parametrize(
    "raw",
    [
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nContent-Length: 1, 2\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nContent-Length: +1\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nContent-Length: 0x1\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding: xchunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding : chunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding:\x0bchunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.0\r\nHost: x.com\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nX: a\r\n folded\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nX: a\r\n\tfolded\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\n Host: x.com\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\nHost: x.com\n\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\nX: y\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\rX: y\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nX: a\0b\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nX: a\x7fb\r\n\r\n",
        b"GET http://x.com/\0 HTTP/1.1\r\nHost: x.com\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\nHost: x.com\r\nHost: evil.test\r\n\r\n",
        b"GET http://x.com/ HTTP/1.1\r\n\r\n",
        b"GET http://x.com/ HTTP/2.0\r\nHost: x.com\r\n\r\n",
        b"GET http://x.com/ HTTP/0.9\r\nHost: x.com\r\n\r\n",
        b"GET http://x.com/\r\n\r\n",
        b"GET  http://x.com/ HTTP/1.1\r\nHost: x.com\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"\r\n\r\n",
        b"CONNECT x.com:443 HTTP/1.1\r\nHost: x.com\r\nContent-Length: 5\r\n\r\n",
        b"CONNECT x.com:443 HTTP/1.1\r\nHost: x.com\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_head_that_two_readers_could_read_differently_is_refused(raw: bytes) -> None:
    with pytest.raises(head.BadRequest):
        head.parse_head(raw)


def target(request_line: bytes) -> head.Target:
    return head.target_of(head.parse_head(request_line + b" HTTP/1.1\r\nHost: other.test\r\n\r\n")[1])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"CONNECT x.com:443", head.Target("https", "x.com", 443, "")),
        (b"CONNECT [2001:db8::1]:443", head.Target("https", "[2001:db8::1]", 443, "")),
        (b"GET http://x.com", head.Target("http", "x.com", 80, "/")),
        (b"GET http://x.com?a=b", head.Target("http", "x.com", 80, "/?a=b")),
        (b"GET HTTP://x.com:8080/a?b=http://y/", head.Target("http", "x.com", 8080, "/a?b=http://y/")),
    ],
)
def test_host_and_port_come_from_the_target(line: bytes, expected: head.Target) -> None:
    assert target(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"CONNECT x.com",
        b"CONNECT x.com:",
        b"CONNECT x.com:0",
        b"CONNECT x.com:99999",
        b"CONNECT x.com:443:443",
        b"CONNECT ::1:443",
        b"CONNECT user@x.com:443",
        b"CONNECT http://x.com:443/",
        b"GET /",
        b"GET *",
        b"GET x.com:80",
        b"GET //x.com/",
        b"GET https://x.com/",
        b"GET ftp://x.com/",
        b"GET file:///etc/passwd",
        b"GET http:x.com/",
        b"GET http://user:pw@x.com/",
        b"GET http://x.com:80:80/",
        b"GET http://x.com:port/",
        b"GET http://x.com/#fragment",
    ],
)
def test_any_other_target_is_refused(line: bytes) -> None:
    with pytest.raises(head.BadRequest):
        target(line)


def test_headers_for_one_hop_are_dropped_and_the_body_length_is_kept() -> None:
    headers = [
        (b"connection", b"close, X-Private, content-length"),
        (b"x-private", b"1"),
        (b"proxy-authorization", b"Basic c2VjcmV0"),
        (b"proxy-connection", b"keep-alive"),
        (b"te", b"trailers"),
        (b"upgrade", b"websocket"),
        (b"content-length", b"5"),
        (b"cookie", b"kept"),
    ]
    assert head.end_to_end(headers) == [(b"content-length", b"5"), (b"cookie", b"kept")]


header_lines = st.lists(
    st.sampled_from(
        [b"Host: a", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"X: y", b" z", b"Connection: host"]
    ),
    max_size=5,
)
request_lines = st.sampled_from([b"GET http://a/", b"CONNECT a:443", b"POST http://a:1/", b"GET /"])


@settings(deadline=None)
@given(
    line=request_lines,
    headers=header_lines,
    end=st.sampled_from([b"\r\n", b"\n", b"\r"]),
    noise=st.binary(max_size=8),
)
def test_any_head_is_read_or_refused(line: bytes, headers: list[bytes], end: bytes, noise: bytes) -> None:
    raw = line + b" HTTP/1.1" + noise + end + b"".join(header + end for header in headers) + b"\r\n"
    try:
        _, request = head.parse_head(raw)
        where = head.target_of(request)
    except head.BadRequest:
        return
    if where.scheme == "http":
        written = h11.Connection(h11.CLIENT).send(head.forwarded(request, where, "a"))
        assert written.lower().count(b"\r\nhost:") == 1
        assert head.parse_head(written)
