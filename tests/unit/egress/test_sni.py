"""The server name is read as the server will read it, or the hello is refused."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_sandbox.egress.sni import ClientHello, ClientHelloReader, NotClientHello


def real_hello(name: str | None, *, least: ssl.TLSVersion | None = None) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if least is not None:
        context.maximum_version = least
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def vector(size: int, content: bytes) -> bytes:
    return len(content).to_bytes(size, "big") + content


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "big") + vector(2, content)


def host_name(name: bytes, kind: int = 0) -> bytes:
    return bytes([kind]) + vector(2, name)


def server_names(*names: bytes) -> bytes:
    return extension(0, vector(2, b"".join(names)))


def message(extensions: bytes | None = None, *, version: bytes = b"\3\3", tail: bytes = b"") -> bytes:
    body = version + bytes(32) + vector(1, b"") + vector(2, b"\x13\1") + vector(1, b"\0")
    if extensions is not None:
        body += vector(2, extensions)
    return b"\1" + vector(3, body + tail)


def records(handshake: bytes, size: int = 2**14) -> bytes:
    parts = [handshake[at : at + size] for at in range(0, len(handshake), size)]
    return b"".join(b"\x16\3\1" + vector(2, part) for part in parts)


def read(data: bytes) -> ClientHello | None:
    return ClientHelloReader().feed(data)


@pytest.mark.parametrize("least", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_name_in_a_real_hello_is_read(least: ssl.TLSVersion) -> None:
    assert read(real_hello("api.example.com", least=least)) == ClientHello("api.example.com")


def test_a_real_hello_without_a_name_has_none() -> None:
    assert read(real_hello(None)) == ClientHello(None)


def test_a_hello_without_extensions_has_no_name() -> None:
    assert read(records(message())) == ClientHello(None)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100, 511])
def test_a_hello_spread_over_many_records_is_read(size: int) -> None:
    handshake = real_hello("api.example.com")[5:]
    assert read(records(handshake, size)) == ClientHello("api.example.com")


def test_a_hello_is_read_however_the_bytes_arrive() -> None:
    reader = ClientHelloReader()
    data = records(real_hello("api.example.com")[5:], 100)
    answers = [reader.feed(data[at : at + 1]) for at in range(len(data))]
    assert answers[-1] == ClientHello("api.example.com")
    assert not any(answers[:-1])


def test_the_outer_name_of_an_encrypted_hello_counts() -> None:
    ech = extension(0xFE0D, b"\0" + bytes(60))
    assert read(records(message(ech + server_names(host_name(b"outer.example"))))) == ClientHello(
        "outer.example"
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"x.com\0.evil.com", "x.com\0.evil.com"), (b"x\xff.com", "x\\xff.com"), (b"X.COM", "X.COM")],
)
def test_an_odd_name_is_reported_as_it_is(name: bytes, shown: str) -> None:
    assert read(records(message(server_names(host_name(name))))) == ClientHello(shown)


def test_early_data_after_the_hello_is_left_alone() -> None:
    hello = records(message(server_names(host_name(b"x.com"))))
    assert read(hello + b"\x17\3\3\0\5early") == ClientHello("x.com")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x80\x2e\1\3\1",  # SSLv2
        b"\x15\3\3\0\2\2\50",  # an alert
        b"\x17\3\3\0\5hello",  # application data
        b"\x16\2",  # no TLS version
        b"\x16\3\1\0\0",  # an empty record
        b"\x16\3\1\x40\1",  # a record over 2**14
        records(b"\2" + vector(3, b"")),  # a ServerHello
        records(b"\1\0\x80\0"),  # a hello of 32 KiB
        records(message() + b"\1"),  # something after it in the same record
        records(message(version=b"\3\0")),  # SSL 3.0
        records(message(version=b"\3\4")),
        records(message(b"", tail=b"\0")),
        records(message(b"\0\0\0")),
        records(message(extension(0, b""))),
        records(message(server_names())),
        records(message(server_names(host_name(b"x.com"), host_name(b"evil.test")))),
        records(message(server_names(host_name(b"x.com", kind=1)))),
        records(message(server_names(host_name(b"x.com")) + server_names(host_name(b"evil.test")))),
        records(message(extension(0, vector(2, host_name(b"x.com")) + b"\0"))),
        records(message(extension(0, b"\0\x09\0\0\7x.com"))),
        records(b"\1" + vector(3, b"\3\3" + bytes(31))),
        records(b"\1" + vector(3, b"")),
    ],
)
def test_what_is_not_one_well_formed_hello_is_refused(data: bytes) -> None:
    with pytest.raises(NotClientHello):
        read(data)


def test_every_truncation_of_a_hello_waits_for_more() -> None:
    hello = real_hello("api.example.com")
    assert not any(read(hello[:end]) for end in range(len(hello)))


@settings(deadline=None)
@given(data=st.binary(max_size=400), cut=st.integers(0, 400))
def test_any_bytes_are_a_hello_or_not_one_however_they_are_cut(data: bytes, cut: int) -> None:
    def outcome(*parts: bytes) -> object:
        reader = ClientHelloReader()
        try:
            return next((hello for part in parts if (hello := reader.feed(part))), None)
        except NotClientHello:
            return "refused"

    assert outcome(data) == outcome(data[:cut], data[cut:])


@settings(deadline=None)
@given(edits=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=4))
def test_a_damaged_hello_is_read_or_refused(edits: list[tuple[int, int]]) -> None:
    hello = bytearray(real_hello("api.example.com"))
    for at, byte in edits:
        hello[at % len(hello)] = byte
    with contextlib.suppress(NotClientHello):
        read(bytes(hello))


@settings(deadline=None)
@given(body=st.binary(max_size=300))
def test_any_message_body_is_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(NotClientHello):
        read(records(b"\1" + vector(3, b"\3\3" + bytes(32) + body)))
