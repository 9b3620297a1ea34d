"""A run has so much egress and no more, and a hostile one hurts itself alone."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream

from mcp_sandbox.egress.record import EgressLimits
from tests.unit.egress.conftest import Internet, Origin, Run, Scripted, echo, hello, read_all

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp_sandbox.egress.record import EgressRecord

    Start = Callable[..., Awaitable[Run]]

pytestmark = pytest.mark.anyio

GET = b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n"
CONNECT = b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n"


async def test_a_thousand_connections_are_all_answered(
    run: Start, internet: Internet, origin: Origin
) -> None:
    await internet.listen("api.test", 80, origin)
    started = await run("api.test", limits=EgressLimits(requests=1000, connections=1000))
    answers: list[bytes] = []

    async def ask() -> None:
        async with places:
            answers.append(await started.ask(GET))

    places = anyio.CapacityLimiter(200)
    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(ask)
    assert len(answers) == 1000
    assert all(answer.endswith(b"ok") for answer in answers)
    await started.records.wait_for(1000)
    assert started.proxy._connections == 0


async def test_connections_past_the_limit_are_refused_and_those_within_live(
    run: Start, internet: Internet
) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test", limits=EgressLimits(connections=2))
    async with started.tunnel("api.test:443") as first, started.tunnel("api.test:443"):
        assert (await started.ask(GET)).startswith(b"HTTP/1.1 503 ")
        await first.send(hello("api.test"))
        await first.send_eof()
        assert await read_all(first)
        async with started.tunnel("api.test:443"):  # the place of the one that has ended
            assert len(internet.dialled) == 3


async def test_requests_past_the_limit_are_refused_and_recorded_once(
    run: Start, internet: Internet, origin: Origin
) -> None:
    await internet.listen("api.test", 80, origin)
    started = await run("api.test", limits=EgressLimits(requests=3))
    answers = [await started.ask(GET) for _ in range(6)]
    assert [answer[9:12] for answer in answers] == [b"200"] * 3 + [b"429"] * 3
    assert origin.connections == 3
    assert [record.verdict for record in started.records] == ["allowed"] * 3 + ["refused"]


async def test_upload_past_the_limit_never_leaves(run: Start, internet: Internet) -> None:
    arrived = bytearray()

    async def swallow(stream: ByteStream) -> None:
        async with stream:
            arrived.extend(await read_all(stream))

    await internet.listen("api.test", 443, swallow)
    limit = 300_000
    started = await run("api.test", limits=EgressLimits(bytes_up=limit))
    for _ in range(2):  # the limit is the run's, not the connection's
        async with started.tunnel("api.test:443") as stream:
            try:
                await stream.send(hello("api.test"))
                for _ in range(20):
                    await stream.send(bytes(100_000))
            except anyio.BrokenResourceError:
                pass
            await read_all(stream)
    await started.records.wait_for(2)
    assert sum(record.bytes_up for record in started.records) <= limit
    assert all("sent all of its 300000 bytes" in record.reason for record in started.records)
    assert len(arrived) <= limit


async def test_download_past_the_limit_is_cut(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 80, Origin(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(500_000)))
    started = await run("api.test", limits=EgressLimits(bytes_down=200_000))
    assert len(await started.ask(GET)) <= 200_000
    await started.records.wait_for(1)
    assert started.records[0].bytes_down <= 200_000
    assert "received all" in started.records[0].reason
    assert (await started.ask(GET)).startswith(b"HTTP/1.1 502 ")


async def test_a_request_head_that_trickles_is_cut_off(run: Start, internet: Internet) -> None:
    started = await run("api.test", limits=EgressLimits(head_seconds=0.3))
    async with await started.connect() as stream:
        await stream.send(GET[:20])
        assert (await read_all(stream)).startswith(b"HTTP/1.1 408 ")
    assert internet.dialled == []


async def test_a_hello_that_trickles_is_cut_off(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test", limits=EgressLimits(head_seconds=0.3))
    async with started.tunnel("api.test:443") as stream:
        await stream.send(hello("api.test")[:50])
        await read_all(stream)
    await started.records.wait_for(1)
    assert "no TLS ClientHello" in started.records[0].reason
    assert started.records[0].bytes_up == 0


async def test_a_connection_that_asks_nothing_is_closed_without_a_record(run: Start) -> None:
    started = await run("api.test", limits=EgressLimits(idle_seconds=0.3))
    async with await started.connect() as stream:
        assert await read_all(stream) == b""
    assert started.records == []


async def test_a_tunnel_where_nothing_moves_is_closed(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test", limits=EgressLimits(idle_seconds=0.3))
    async with started.tunnel("api.test:443") as stream:
        await stream.send(hello("api.test"))
        await read_all(stream)
    await started.records.wait_for(1)
    assert started.records[0].verdict == "allowed"
    assert "no byte moved for 0.3 s" in started.records[0].reason


async def test_a_tunnel_that_is_busy_for_too_long_is_closed(run: Start, internet: Internet) -> None:
    async def chatter(stream: ByteStream) -> None:
        async with stream:
            try:
                while True:
                    await stream.send(b"tick")
                    await anyio.sleep(0.02)  # it is the host's own pace, nothing waits for it
            except anyio.BrokenResourceError:
                return

    await internet.listen("api.test", 443, chatter)
    started = await run("api.test", limits=EgressLimits(idle_seconds=10, connection_seconds=0.3))
    async with started.tunnel("api.test:443") as stream:
        await stream.send(hello("api.test"))
        await read_all(stream)
    await started.records.wait_for(1)
    assert "0.3 s in all" in started.records[0].reason


async def test_a_host_that_never_answers_makes_a_bad_gateway(run: Start, internet: Internet) -> None:
    async def silent(stream: ByteStream) -> None:
        async with stream:
            await read_all(stream)

    await internet.listen("api.test", 80, silent)
    started = await run("api.test", limits=EgressLimits(idle_seconds=0.3))
    assert (await started.ask(GET)).startswith(b"HTTP/1.1 502 ")


async def test_a_dial_or_lookup_that_hangs_is_given_up(run: Start, internet: Internet) -> None:
    async def hang(*_: object) -> ByteStream:
        await anyio.sleep_forever()
        raise AssertionError

    internet.name("api.test", "93.184.216.34", "93.184.216.35")
    for stuck in ({"dial": hang}, {"resolve": hang}):
        started = await run("api.test", limits=EgressLimits(connect_seconds=0.3), **stuck)
        assert (await started.ask(GET)).startswith(b"HTTP/1.1 504 ")
        assert started.records[0].verdict == "failed"


async def test_the_end_of_the_run_closes_everything_and_is_recorded(run: Start, internet: Internet) -> None:
    await internet.listen("api.test", 443, echo)
    started = await run("api.test")
    client = Held(CONNECT, hello("api.test"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(started.proxy.serve, client)
        with anyio.fail_after(20):
            await client.idle.wait()
        tasks.cancel_scope.cancel()
    assert client.closed
    assert [record.reason for record in started.records] == ["the run ended"]
    assert started.records[0].verdict == "allowed"


async def test_egress_that_cannot_be_recorded_ends_in_an_error(
    run: Start, internet: Internet, origin: Origin
) -> None:
    def full(_: EgressRecord) -> None:
        raise OSError("disk full")

    await internet.listen("api.test", 80, origin)
    started = await run("api.test", log=full)
    client = Scripted(GET)
    with pytest.raises(OSError, match="disk full"):
        await started.proxy.serve(client)
    assert client.closed


async def test_a_program_that_does_not_read_stops_the_host(run: Start) -> None:
    """Backpressure: what is not taken out of the sandbox's end is not taken from the host either."""
    host = Faucet(64 * 1024**2)

    async def dial(*_: object) -> ByteStream:
        return host

    started = await run("198.51.100.7:443", dial=dial)
    client = Unread(b"CONNECT 198.51.100.7:443 HTTP/1.1\r\nHost: x\r\n\r\n", hello(None))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(started.proxy.serve, client)
        with anyio.fail_after(20):
            await client.stuck.wait()
            await anyio.wait_all_tasks_blocked()
        assert host.poured <= 2 * 65536
        tasks.cancel_scope.cancel()


async def test_memory_stays_flat_however_much_flows(run: Start, internet: Internet) -> None:
    async def pour(stream: ByteStream) -> None:
        async with stream:
            await stream.receive()
            chunk = bytes(65536)
            for _ in range(size // len(chunk)):
                await stream.send(chunk)

    await internet.listen("api.test", 443, pour)
    started = await run("api.test")

    async def peak() -> int:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        taken = 0
        async with started.tunnel("api.test:443") as stream:
            await stream.send(hello("api.test"))
            with anyio.fail_after(60):
                while taken < size:
                    taken += len(await stream.receive())
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        size = 4 * 1024**2
        small = await peak()
        size = 64 * 1024**2
        large = await peak()
    finally:
        tracemalloc.stop()
    assert large < 2 * small


class Held(Scripted):
    """Says its chunks, then keeps the connection open."""

    def __init__(self, *chunks: bytes) -> None:
        super().__init__(*chunks)
        self.idle = anyio.Event()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        try:
            return await super().receive(max_bytes)
        except anyio.EndOfStream:
            self.idle.set()
            await anyio.sleep_forever()
            raise


class Unread(Held):
    """Takes the answer to CONNECT and not a byte more."""

    def __init__(self, *chunks: bytes) -> None:
        super().__init__(*chunks)
        self.stuck = anyio.Event()

    async def send(self, item: bytes) -> None:
        if self.told:
            self.stuck.set()
            await anyio.sleep_forever()
        await super().send(item)


class Faucet(ByteStream):
    """A host that has bytes without end and counts what is taken."""

    def __init__(self, size: int) -> None:
        self.poured = 0
        self._size = size

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if self.poured >= self._size:
            raise anyio.EndOfStream
        self.poured += max_bytes
        return bytes(max_bytes)

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass
