"""One HTTP request head: read strictly, written anew.

The program inside chooses every byte of it. h11 parses; what h11 forgives (bare LF, folded lines, a body
length said twice) is refused first, because a byte that two readers understand differently is how requests
are smuggled. Nothing is passed on as it came: method, path and end-to-end headers are written again by h11,
and the host comes from the request target alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11

from mcp_sandbox.egress.policy import InvalidHost, Scheme, authority, canonical_host, split_authority

if TYPE_CHECKING:
    from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

FORBIDDEN: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]|\r\n[ \t]")
"""Control characters, bare LF, bare CR and folded lines: none has a place in a request head."""

_FRAMING: Final = re.compile(rb"\r\n(?:content-length|transfer-encoding):", re.IGNORECASE)

_ABSOLUTE: Final = re.compile(r"http://([^/?#]*)([^#]*)", re.IGNORECASE)

_NOT_FORWARDED: Final = frozenset(
    {
        b"connection",
        b"expect",  # answered here
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    }
)
"""Headers for the next hop alone (RFC 9110 7.6.1), beside those that `Connection` names."""

_BODY_LENGTH: Final = frozenset({b"content-length", b"transfer-encoding"})
"""Kept even where `Connection` names them: dropping one would turn a body into a second request."""


class BadRequest(ValueError):
    """Not a request that this proxy takes; the message says why, in our words alone."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request wants to go; host and port as asked for, not canonical yet."""

    scheme: Scheme
    host: str
    port: int
    path: str
    """What the host is asked for, query included, where it can be seen. Never logged."""


def parse_head(raw: bytes) -> tuple[h11.Connection, h11.Request]:
    """Read one complete request head; the connection goes on to read its body.

    Raises:
        BadRequest: It is malformed or ambiguous.
    """
    if FORBIDDEN.search(raw):
        raise BadRequest("the request head is malformed")
    if len(_FRAMING.findall(raw)) > 1:
        raise BadRequest("the request states the length of its body more than once")
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as exc:
        raise BadRequest("the request head is malformed") from exc
    if not isinstance(event, h11.Request):
        raise BadRequest("the request head is malformed")
    if event.http_version not in (b"1.1", b"1.0"):
        raise BadRequest("only HTTP/1.1 and HTTP/1.0 are spoken here")
    framing = {name for name, _ in event.headers} & _BODY_LENGTH
    if b"transfer-encoding" in framing and event.http_version == b"1.0":
        raise BadRequest("HTTP/1.0 has no Transfer-Encoding")
    if framing and event.method == b"CONNECT":
        raise BadRequest("CONNECT has no body")
    return connection, event


def target_of(request: h11.Request) -> Target:
    """Tell where a request wants to go, from its target alone.

    Raises:
        BadRequest: The target is neither host:port (for CONNECT) nor an absolute http:// URL.
    """
    target = request.target.decode("ascii")
    try:
        if request.method == b"CONNECT":
            host, port = split_authority(target)
            if port is None:
                raise BadRequest("CONNECT needs host:port")
            return Target("https", host, port, "")
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            raise BadRequest("this is a proxy: ask for an absolute http:// URL, or use CONNECT for TLS")
        host, port = split_authority(match[1])
    except InvalidHost as exc:
        raise BadRequest(f"the target is malformed: {exc}") from exc
    path = match[2] if match[2].startswith("/") else f"/{match[2]}"
    return Target("http", host, port or 80, path)


def opened_target(request: h11.Request, host: str, port: int) -> Target:
    """Tell what a request inside opened TLS asks its one host for.

    Raises:
        BadRequest: It is for another host, or for none.
    """
    target = request.target.decode("ascii")
    if not target.startswith("/") or request.method == b"CONNECT":
        raise BadRequest("inside TLS a request asks for a path")
    named = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
    try:
        name, its_port = split_authority(named[0] if len(named) == 1 else "")
        same = str(canonical_host(name)) == host and (its_port or 443) == port
    except InvalidHost:
        same = False
    if not same:
        raise BadRequest(f"the request is not for {authority(host, port)}, to which the connection leads")
    return Target("https", host, port, target)


def forwarded(request: h11.Request, target: Target, host: str) -> h11.Request:
    """Write the request anew for its host, whose canonical name is given."""
    where = authority(host, target.port).removesuffix(":80" if target.scheme == "http" else ":443")
    headers = [
        (b"host", where.encode("ascii")),
        *(header for header in end_to_end(request.headers) if header[0] != b"host"),
        (b"connection", b"close"),
    ]
    return h11.Request(method=request.method, target=target.path.encode("ascii"), headers=headers)


def returned(response: h11.Response) -> h11.Response:
    """Write the host's response anew for the program."""
    return h11.Response(
        status_code=response.status_code, headers=end_to_end(response.headers), reason=response.reason
    )


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Drop the headers that are for one hop alone."""
    pairs = list(headers)
    named = {
        option.strip().lower()
        for name, value in pairs
        if name == b"connection"
        for option in value.split(b",")
    }
    dropped = (_NOT_FORWARDED | named) - _BODY_LENGTH
    return [(name, value) for name, value in pairs if name not in dropped]


def refusal(status: int, reason: str) -> bytes:
    """Write a complete response that says why, for a connection that ends with it.

    The reason stands in the status line too, since for a refused CONNECT most clients show that alone. It has
    to be printable ASCII on one line.
    """
    body = f"mcp-sandbox egress: {reason}\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}: {reason}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return ("\r\n".join(head) + "\r\n\r\n" + body).encode("ascii")
