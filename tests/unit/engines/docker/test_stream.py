"""The attached stream against a socket pair: what the engine may send, in whatever pieces, and how it may end."""

from __future__ import annotations

import io
import socket
import struct
from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.engines.docker.stream import DIAGNOSTICS_BYTES, AttachStream

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

STDIN, STDOUT, STDERR, SYSTEM = 0, 1, 2, 3
MIB = 1 << 20


class Attached(io.RawIOBase):
    """What the SDK returns of an attach: a file object around the socket, which carries the response."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._response = io.BytesIO()


class Pair:
    """Our end as the product sees it, and the engine's end as a plain socket."""

    def __init__(self) -> None:
        ours, self.engine = socket.socketpair()
        self.attached = Attached(ours)
        self.stream = AttachStream(self.attached)

    def close(self) -> None:
        self.stream.close()
        self.engine.close()

    async def everything(self) -> bytes:
        """Receive until the end."""
        received = b""
        with anyio.fail_after(30):
            try:
                while True:
                    received += await self.stream.receive()
            except anyio.EndOfStream:
                return received


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


async def test_stdout_comes_through_and_stderr_is_set_aside(pair: Pair) -> None:
    pair.engine.sendall(frame(STDOUT, b"one ") + frame(STDERR, b"oops ") + frame(STDOUT, b"two"))
    pair.engine.sendall(frame(STDERR, b"again"))
    pair.engine.close()
    assert await pair.everything() == b"one two"
    assert bytes(pair.stream.diagnostics) == b"oops again"


frames = st.lists(
    st.tuples(st.sampled_from([STDIN, STDOUT, STDERR, SYSTEM, 77]), st.binary(max_size=50)), max_size=10
)


@given(frames, st.data())
def test_however_it_is_cut_the_same_comes_out(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    raw = b"".join(frame(stream, content) for stream, content in sent)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=10)))

    async def run() -> None:
        pair = Pair()
        try:
            received = b""
            for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
                pair.engine.sendall(raw[start:end])
                with anyio.move_on_after(0):  # what is there is taken; what is not is not waited for
                    while True:
                        received += await pair.stream.receive()
            pair.engine.close()
            received += await pair.everything()
            assert received == b"".join(content for stream, content in sent if stream == STDOUT)
            said = b"".join(content for stream, content in sent if stream == STDERR)
            assert bytes(pair.stream.diagnostics) == said[:DIAGNOSTICS_BYTES]
        finally:
            pair.close()

    anyio.run(run)


async def test_no_bytes_are_never_received(pair: Pair) -> None:
    pair.engine.sendall(frame(STDOUT, b"") * 1000 + frame(STDERR, b"") + frame(STDOUT, b"x"))
    with anyio.fail_after(10):
        assert await pair.stream.receive() == b"x"


async def test_diagnostics_are_bounded(pair: Pair) -> None:
    async def complain() -> None:
        for number in range(100):
            await send(pair.engine, frame(STDERR, b"%4d" % number + b"x" * 10_000))
        pair.engine.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(complain)
        assert await pair.everything() == b""
    assert bytes(pair.stream.diagnostics) == b"   0" + b"x" * (DIAGNOSTICS_BYTES - 4)


async def send(sock: socket.socket, data: bytes) -> None:
    await anyio.to_thread.run_sync(sock.sendall, data)


async def test_megabytes_go_both_ways_at_once(pair: Pair) -> None:
    content = bytes(range(256)) * (8 * MIB // 256)

    def echo() -> None:
        seen = 0
        while seen < len(content):
            data = pair.engine.recv(100_000)
            seen += len(data)
            pair.engine.sendall(frame(STDOUT, data))
        pair.engine.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, echo)
        tasks.start_soon(pair.stream.send, content)
        assert await pair.everything() == content


async def test_what_is_sent_waits_for_a_slow_reader_and_can_be_cancelled(pair: Pair) -> None:
    with anyio.move_on_after(0.05) as waiting:
        await pair.stream.send(b"x" * (64 * MIB))
    assert waiting.cancelled_caught


async def test_sending_to_an_engine_that_is_gone_is_told(pair: Pair) -> None:
    pair.engine.close()
    with anyio.fail_after(10), pytest.raises(anyio.BrokenResourceError):
        await pair.stream.send(b"x" * MIB)


async def test_a_connection_that_is_reset_is_an_end(pair: Pair) -> None:
    await pair.stream.send(b"never read")
    pair.engine.sendall(frame(STDOUT, b"so far"))
    pair.engine.close()
    assert await pair.everything() == b"so far"


async def test_a_frame_that_ends_early_is_an_end(pair: Pair) -> None:
    pair.engine.sendall(frame(STDOUT, b"half of it")[:-5])
    pair.engine.close()
    assert await pair.everything() == b"half "


async def test_what_is_closed_neither_sends_nor_receives(pair: Pair) -> None:
    pair.stream.close()
    pair.stream.close()
    with pytest.raises(anyio.BrokenResourceError):
        await pair.stream.send(b"x")
    with pytest.raises(anyio.EndOfStream):
        await pair.stream.receive()
    assert not pair.stream.alive


async def test_closing_reaches_the_engine_although_another_holds_the_socket(pair: Pair) -> None:
    other = pair.attached._sock.dup()
    pair.stream.close()
    pair.engine.settimeout(10)
    assert pair.engine.recv(1) == b""
    assert pair.attached.closed
    assert pair.attached._response.closed
    other.close()


class Flooded(socket.socket):
    """A socket on which there is always more to read, for as long as a test can wait."""

    reads_left = 10_000

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        self.reads_left -= 1
        if not self.reads_left:
            raise ConnectionResetError
        return frame(STDERR, b"x" * 100)


async def test_a_flood_leaves_the_others_their_turn() -> None:
    flooded = Flooded()
    stream = AttachStream(Attached(flooded))
    with anyio.CancelScope() as receiving:
        async with anyio.create_task_group() as tasks:

            async def another() -> None:
                receiving.cancel()

            tasks.start_soon(another)
            await stream.receive()
    stream.close()
    assert receiving.cancelled_caught
    assert flooded.reads_left


class TestAlive:
    async def test_while_the_engine_holds_the_other_end(self, pair: Pair) -> None:
        assert pair.stream.alive
        pair.engine.sendall(frame(STDOUT, b"hello"))
        assert pair.stream.alive

    async def test_asking_takes_nothing(self, pair: Pair) -> None:
        pair.engine.sendall(frame(STDOUT, b"hello"))
        assert pair.stream.alive
        with anyio.fail_after(10):
            assert await pair.stream.receive() == b"hello"

    async def test_not_when_it_is_gone(self, pair: Pair) -> None:
        pair.engine.close()
        assert not pair.stream.alive

    async def test_not_when_it_is_gone_and_its_last_words_were_not_read(self, pair: Pair) -> None:
        # As a waiting agent, which has greeted: nobody reads that before there is a program to run.
        pair.engine.sendall(frame(STDOUT, b"hello"))
        pair.engine.close()
        assert not pair.stream.alive

    async def test_not_when_it_was_closed_here(self, pair: Pair) -> None:
        pair.stream.close()
        assert not pair.stream.alive
