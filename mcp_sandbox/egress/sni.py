"""Which server a TLS client asks for, read from its first flight.

Pure, and fed with whatever a program inside the sandbox sent: every length is checked before it is used, and
the work is linear in the bytes however they are cut up. What is not exactly one well-formed ClientHello is
refused, since a byte that we and the server read differently is a way past the check (RFC 8446 4.1.2, 5.1;
RFC 6066 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HANDSHAKE: Final = 22
"""The first byte of a TLS connection."""

_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_MAX_FRAGMENT: Final = 2**14
_MAX_HELLO: Final = 16 * 1024
"""In bytes. Real ones, post-quantum key shares and ECH included, stay below 4 KiB."""

ACCESS_DENIED: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""The fatal alert that OpenSSL shows to a program as `alert access denied`."""


class NotClientHello(ValueError):
    """The bytes do not begin with one well-formed ClientHello; the message says where they fail."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What the check needs of a ClientHello."""

    server_name: str | None
    """The SNI host name (with ECH, the outer one), bytes outside ASCII escaped; None where there is none."""


class ClientHelloReader:
    """Collects one ClientHello from record fragments of any size."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._message = bytearray()

    def feed(self, data: bytes) -> ClientHello | None:
        """Take more bytes; return the ClientHello once it is complete, None until then.

        Raises:
            NotClientHello: This cannot become one.
        """
        self._records += data
        while (fragment := self._next_fragment()) is not None:
            self._message += fragment
            if (body := self._complete()) is not None:
                return _parse(body)
        return None

    def _next_fragment(self) -> bytes | None:
        records = self._records
        if records and records[0] != HANDSHAKE:
            raise NotClientHello("it is not TLS")
        if len(records) > 1 and records[1] != 3:
            raise NotClientHello("it is not TLS")
        if len(records) < 5:
            return None
        length = int.from_bytes(records[3:5], "big")
        if not 1 <= length <= _MAX_FRAGMENT:
            raise NotClientHello("a TLS record has an impossible length")
        if len(records) < 5 + length:
            return None
        fragment = bytes(records[5 : 5 + length])
        del records[: 5 + length]
        return fragment

    def _complete(self) -> bytes | None:
        message = self._message
        if message[0] != _CLIENT_HELLO:
            raise NotClientHello("TLS begins with something else than a ClientHello")
        if len(message) < 4:
            return None
        length = int.from_bytes(message[1:4], "big")
        if length > _MAX_HELLO:
            raise NotClientHello("the ClientHello is too long")
        if len(message) > 4 + length:
            raise NotClientHello("something follows the ClientHello in its record")
        return bytes(message[4:]) if len(message) == 4 + length else None


class _Cursor:
    """Reads fields from a byte string and cannot leave it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        field = self._data[self._at : self._at + size]
        if len(field) != size:
            raise NotClientHello("the ClientHello ends inside a field")
        self._at += size
        return field

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, length_size: int) -> _Cursor:
        return _Cursor(self.take(self.number(length_size)))

    def end(self) -> None:
        if not self.at_end:
            raise NotClientHello("a field of the ClientHello is longer than what it holds")


def _parse(body: bytes) -> ClientHello:
    hello = _Cursor(body)
    if not 0x0301 <= hello.number(2) <= 0x0303:  # TLS 1.3 says 0x0303 here too
        raise NotClientHello("the ClientHello has an unknown version")
    hello.take(32)  # random
    hello.vector(1)  # session id
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    if hello.at_end:
        return ClientHello(None)
    extensions = hello.vector(2)
    hello.end()
    seen: dict[int, _Cursor] = {}
    while not extensions.at_end:
        kind = extensions.number(2)
        if kind in seen:
            raise NotClientHello("the ClientHello repeats an extension")
        seen[kind] = extensions.vector(2)
    return ClientHello(_host_name(seen[_SERVER_NAME]) if _SERVER_NAME in seen else None)


def _host_name(extension: _Cursor) -> str:
    names = extension.vector(2)
    extension.end()
    if names.number(1) != _HOST_NAME:
        raise NotClientHello("the server name is not a host name")
    name = names.take(names.number(2))
    names.end()  # one name alone: with two, we and the server might each read another one
    return name.decode("ascii", "backslashreplace")
