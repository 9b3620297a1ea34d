"""The way out of one run: every connection that it makes is decided, dialled, relayed and counted here.

Above: the tunnel that carries a run's connections out of its sandbox as byte streams. Below: `policy`
decides, `head` and `sni` read what the program sent, `addresses` judges what names resolve to, `dial`
connects, `relay` moves the bytes.

What is offered is what can be checked. A CONNECT tunnel carries TLS whose server name is the host that was
allowed; plain HTTP is read and written anew, request by request, one connection to the host each. Anything
else is refused, so nothing is dialled and no byte leaves that the policy was not asked about.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
from anyio.streams.tls import TLSStream

from mcp_sandbox.egress import addresses, head, relay, sni
from mcp_sandbox.egress.policy import InvalidHost, canonical_host, printable
from mcp_sandbox.egress.record import EgressLimits, EgressRecord, Verdict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    import h11
    from anyio.abc import ByteStream

    from mcp_sandbox.egress.bound import HostSecrets
    from mcp_sandbox.egress.dial import Dial, Resolve
    from mcp_sandbox.egress.opening import TlsOpening
    from mcp_sandbox.egress.policy import Decision, EgressPolicy, IPAddress

_ADDRESSES_TRIED: Final = 4
"""Of one name, in the resolver's order; all of its addresses are checked."""

_GRACE_SECONDS: Final = 1.0
"""For a last answer to be read, and for a stream to close."""


class _Refused(Exception):
    """Nothing goes out, or no more; the program gets the answer, the record the reason."""

    def __init__(
        self, reason: str, *, status: int = 403, verdict: Verdict = "refused", answer: bytes | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.verdict = verdict
        self.answer = head.refusal(status, reason) if answer is None else answer


@dataclass(slots=True)
class _Exchange:
    """One request on its way: what its record will say."""

    verdict: Verdict = "refused"
    reason: str = "the run ended"
    host: str | None = None
    port: int | None = None
    sni: str | None = None
    address: str | None = None
    rule: str | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    secrets: tuple[str, ...] = ()
    answered: bool = False
    """True once the program has been sent the beginning of an answer."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=anyio.current_time)

    def begin_answer(self) -> None:
        self.answered = True

    def record(self) -> EgressRecord:
        return EgressRecord(
            time=self.time,
            host=self.host,
            port=self.port,
            sni=self.sni,
            address=self.address,
            verdict=self.verdict,
            rule=self.rule,
            secrets=self.secrets,
            reason=self.reason,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            duration_ms=round((anyio.current_time() - self.began) * 1000),
        )


_Answer: TypeAlias = "Callable[[relay.Inbound, _Exchange], Awaitable[bool]]"


class EgressProxy:
    """Everything that one run may send out and take in.

    `resolve` None leaves names to `dial`, which is for an upstream proxy alone. `log` gets one record for
    every decision; what it raises leaves `serve`, since egress that cannot be recorded has to end the run.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        *,
        resolve: Resolve | None,
        dial: Dial,
        log: Callable[[EgressRecord], None],
        limits: EgressLimits,
        is_own: Callable[[IPAddress], bool] = addresses.is_own,
        opening: TlsOpening | None = None,
    ) -> None:
        self._policy = policy
        self._resolve = resolve
        self._dial = dial
        self._log = log
        self._limits = limits
        self._is_own = is_own
        self._opening = opening
        self._connections = 0
        self._requests = 0
        self._bytes_up = 0
        self._bytes_down = 0

    async def serve(self, client: ByteStream) -> None:
        """Answer the requests of one connection until it ends, then close it.

        Whatever the program sends, nothing is raised but cancellation and what `log` raises.
        """
        inbound = relay.Inbound(client)
        self._connections += 1
        try:
            crowded = self._connections > self._limits.connections
            while (crowded or await self._asked(inbound)) and await self._exchange(
                inbound, self._answer, crowded=crowded
            ):
                pass
        finally:
            self._connections -= 1
            await _close(client)

    async def _asked(self, inbound: relay.Inbound) -> bool:
        """Wait for the first byte of a request; False where none comes."""
        try:
            with anyio.fail_after(self._limits.idle_seconds):
                await inbound.peek()
        except (TimeoutError, *relay.GONE):
            return False
        return True

    async def _exchange(self, inbound: relay.Inbound, answer: _Answer, *, crowded: bool = False) -> bool:
        """Answer one request and record it; tell whether another may follow."""
        exchange = _Exchange()
        last_words = b""
        more = False
        self._requests += 1
        try:
            self._admit(crowded=crowded)
            more = await answer(inbound, exchange)
        except _Refused as refused:
            exchange.verdict, exchange.reason = refused.verdict, refused.reason
            last_words = refused.answer
        except relay.Ended as ended:
            exchange.reason = str(ended)
            last_words = b"" if exchange.answered else head.refusal(502, str(ended))
        except relay.GONE:
            exchange.reason = "the program closed the connection"
        finally:
            # One record past the limit stands for all that follow: a loop of refusals must not fill the disk.
            if self._requests <= self._limits.requests + 1:
                self._log(exchange.record())
        if last_words:
            await _hang_up(inbound, last_words)
        return more

    def _admit(self, *, crowded: bool) -> None:
        if self._requests > self._limits.requests:
            raise _Refused(f"the run has used all of its {self._limits.requests} requests.", status=429)
        if crowded:
            raise _Refused(f"the run has {self._limits.connections} connections open already.", status=503)

    async def _answer(self, inbound: relay.Inbound, exchange: _Exchange) -> bool:
        """Read, decide, connect, relay: in this order, for each request anew."""
        try:
            http, request = await self._read_head(inbound)
            target = head.target_of(request)
        except head.BadRequest as exc:
            raise _Refused(f"{exc}.", status=400) from exc
        decision = self._policy.decide(target.host, target.port, target.scheme)
        exchange.host, exchange.port, exchange.rule = decision.host, decision.port, decision.rule
        if not decision.allowed:
            raise _Refused(decision.reason)
        bound = self._opening and self._opening.bound.at(decision.host, decision.port)
        if target.scheme == "https" and self._opening and bound:
            await self._open(inbound, decision, exchange, self._opening, bound)
            return False
        more = False
        async with self._reached(decision, exchange) as outbound:
            exchange.verdict = "allowed"
            if target.scheme == "https":
                await self._tunnel(inbound, outbound, decision, exchange)
            else:
                rewritten = head.forwarded(request, target, decision.host)
                more = await relay.forward(
                    inbound, http, outbound, rewritten, on_answer=exchange.begin_answer
                )
        return more

    @contextlib.asynccontextmanager
    async def _reached(self, decision: Decision, exchange: _Exchange) -> AsyncIterator[relay.Outbound]:
        """Yield a connection to a host, for as long as one may last.

        Raises:
            relay.Ended: It lasted too long, or nothing came over it for too long.
        """
        stream = await self._connect(decision, exchange)
        last = anyio.current_time() + self._limits.connection_seconds
        try:
            with anyio.CancelScope() as patience:
                yield relay.Outbound(stream, self._counter(exchange, patience, last))
        finally:
            await _close(stream)
        if patience.cancelled_caught:
            raise relay.Ended(self._impatience(last))
        exchange.reason = decision.reason

    async def _open(
        self,
        inbound: relay.Inbound,
        decision: Decision,
        exchange: _Exchange,
        opening: TlsOpening,
        bound: HostSecrets,
    ) -> None:
        """Speak TLS as the host, and answer each request that comes over it."""
        exchange.begin_answer()
        await inbound.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        inbound.unread(await self._checked_hello(inbound, decision, exchange))
        context = opening.authority.towards_programs(decision.host)
        try:
            with anyio.fail_after(self._limits.head_seconds):
                tls = await TLSStream.wrap(
                    inbound, server_side=True, ssl_context=context, standard_compatible=False
                )
        except (ssl.SSLError, TimeoutError, *relay.GONE) as exc:
            reason = (
                f"{decision.host} is opened here to put {', '.join(bound.names)} in, and the program broke TLS off: "
                "it may not trust the authorities that SSL_CERT_FILE names."
            )
            raise _Refused(reason, answer=b"") from exc
        exchange.verdict = "allowed"
        exchange.reason = f"{decision.reason}; opened for {', '.join(bound.names)}"
        inside = relay.Inbound(relay.Opened(tls))
        answer = partial(self._answer_inside, decision, opening, bound)
        while await self._asked(inside) and await self._exchange(inside, answer):
            pass
        await _close(inside)

    async def _answer_inside(
        self,
        decision: Decision,
        opening: TlsOpening,
        bound: HostSecrets,
        inbound: relay.Inbound,
        exchange: _Exchange,
    ) -> bool:
        """Answer one request inside opened TLS: to its one host, with the secrets that this may have."""
        exchange.host, exchange.port, exchange.rule = decision.host, decision.port, decision.rule
        try:
            http, request = await self._read_head(inbound)
            target = head.opened_target(request, decision.host, decision.port)
        except head.BadRequest as exc:
            raise _Refused(f"{exc}.", status=400) from exc
        rewritten, used = bound.put_in(head.forwarded(request, target, decision.host))
        async with self._reached(decision, exchange) as outbound:
            tls = relay.Outbound(await self._verified(outbound, decision, opening), lambda up, down: None)
            exchange.verdict, exchange.secrets = "allowed", used
            return await relay.forward(
                inbound, http, tls, rewritten, on_answer=exchange.begin_answer, returning=bound.returning()
            )

    async def _verified(
        self, outbound: relay.Outbound, decision: Decision, opening: TlsOpening
    ) -> relay.Opened:
        """Speak TLS with the host, once it has shown that it is the one: before that it is sent nothing."""
        try:
            with anyio.fail_after(self._limits.connect_seconds):
                tls = await TLSStream.wrap(
                    outbound,
                    hostname=decision.host,
                    ssl_context=opening.towards_hosts,
                    standard_compatible=False,
                )
        except ssl.SSLCertVerificationError as exc:
            why = printable(exc.verify_message)
            raise _Refused(
                f"{decision.host} did not prove to be that host: {why}.", status=502, verdict="failed"
            ) from exc
        except (ssl.SSLError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError) as exc:
            raise _Refused(f"{decision.host} does not speak TLS.", status=502, verdict="failed") from exc
        return relay.Opened(tls)

    async def _read_head(self, inbound: relay.Inbound) -> tuple[h11.Connection, h11.Request]:
        seconds = self._limits.head_seconds
        try:
            with anyio.fail_after(seconds):
                return head.parse_head(await inbound.request_head(self._limits.head_bytes))
        except TimeoutError as exc:
            raise _Refused(f"the request head took more than {seconds:g} s.", status=408) from exc

    async def _connect(self, decision: Decision, exchange: _Exchange) -> ByteStream:
        seconds = self._limits.connect_seconds
        try:
            with anyio.fail_after(seconds):
                candidates = await self._candidates(decision)
                for address in candidates[:-1]:
                    with contextlib.suppress(OSError), anyio.fail_after(seconds / len(candidates)):
                        return await self._dial_one(decision, address, exchange)
                return await self._dial_one(decision, candidates[-1], exchange)
        except TimeoutError as exc:
            reason = f"{decision.host} did not answer within {seconds:g} s."
            raise _Refused(reason, status=504, verdict="failed") from exc
        except OSError as exc:
            reason = f"{decision.host} cannot be reached: {printable(str(exc))}."
            raise _Refused(reason, status=502, verdict="failed") from exc

    async def _candidates(self, decision: Decision) -> Sequence[IPAddress | None]:
        """Return the addresses that may be dialled; one that may not refuses them all."""
        if decision.address is not None:  # an entry names it, or it had not been allowed
            return [decision.address]
        if self._resolve is None:
            return [None]
        answers = await self._resolve(decision.host)
        resolved = addresses.decide_on(decision, answers, self._policy, is_own=self._is_own)
        if not resolved.allowed:
            raise _Refused(resolved.reason)
        if not answers:
            raise OSError("it has no address")
        return answers[:_ADDRESSES_TRIED]

    async def _dial_one(
        self, decision: Decision, address: IPAddress | None, exchange: _Exchange
    ) -> ByteStream:
        exchange.address = None if address is None else str(address)
        return await self._dial(decision.host, decision.port, address)

    async def _tunnel(
        self, inbound: relay.Inbound, outbound: relay.Outbound, decision: Decision, exchange: _Exchange
    ) -> None:
        exchange.begin_answer()
        await inbound.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await outbound.send(await self._checked_hello(inbound, decision, exchange))
        await relay.tunnel(inbound, outbound)

    async def _checked_hello(self, inbound: relay.Inbound, decision: Decision, exchange: _Exchange) -> bytes:
        """Read the TLS ClientHello and return it once its server name is the host that was allowed."""
        where = f"{decision.host}:{decision.port}"
        first = bytearray()
        reader = sni.ClientHelloReader()
        hello = None
        try:
            with anyio.fail_after(self._limits.head_seconds):
                while hello is None:
                    data = await inbound.receive()
                    first += data
                    hello = reader.feed(data)
        except TimeoutError as exc:
            raise _Refused(f"no TLS ClientHello came for {where}.", answer=b"") from exc
        except sni.NotClientHello as exc:
            answer = sni.ACCESS_DENIED if first[0] == sni.HANDSHAKE else None
            raise _Refused(f"a tunnel to {where} can carry TLS alone: {exc}.", answer=answer) from exc
        if hello.server_name is not None:
            exchange.sni = printable(hello.server_name)
        if not _names_host(hello.server_name, decision):
            named = "no server" if exchange.sni is None else f'"{exchange.sni}"'
            raise _Refused(
                f"TLS in the tunnel to {where} asks for {named} by name; it has to be the same host.",
                answer=sni.ACCESS_DENIED,
            )
        return bytes(first)

    def _counter(
        self, exchange: _Exchange, patience: anyio.CancelScope, last: float
    ) -> Callable[[int, int], None]:
        """Return what every byte is told to: it keeps the totals, and ends what is over a limit."""
        limits = self._limits

        def count(up: int, down: int) -> None:
            if self._bytes_up + up > limits.bytes_up:
                raise relay.Ended(f"the run has sent all of its {limits.bytes_up} bytes")
            if self._bytes_down + down > limits.bytes_down:
                raise relay.Ended(f"the run has received all of its {limits.bytes_down} bytes")
            self._bytes_up += up
            self._bytes_down += down
            exchange.bytes_up += up
            exchange.bytes_down += down
            patience.deadline = min(last, anyio.current_time() + limits.idle_seconds)

        count(0, 0)
        return count

    def _impatience(self, last: float) -> str:
        if anyio.current_time() >= last:
            return f"it took {self._limits.connection_seconds:g} s in all"
        return f"no byte moved for {self._limits.idle_seconds:g} s"


def _names_host(server_name: str | None, decision: Decision) -> bool:
    if server_name is None:  # RFC 6066: there is no SNI for an IP address
        return decision.address is not None
    try:
        return str(canonical_host(server_name)) == decision.host
    except InvalidHost:
        return False


async def _hang_up(client: ByteStream, last_words: bytes) -> None:
    """Say why, and read what still comes: closing on unread bytes can take the answer away with it."""
    with (
        anyio.move_on_after(_GRACE_SECONDS),
        contextlib.suppress(*relay.GONE),
    ):
        await client.send(last_words)
        await client.send_eof()
        while True:
            await client.receive()


async def _close(stream: ByteStream) -> None:
    with anyio.move_on_after(_GRACE_SECONDS, shield=True), contextlib.suppress(*relay.GONE):
        await stream.aclose()
