"""An engine's socket with a hand on it: requests held, answers changed, connections cut, at chosen moments.

What is behind it is the real engine. Only the one moment that a test is about is made to happen; nothing of the
engine is imitated, but for answers that a test writes itself.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.streams.buffered import BufferedByteStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from anyio.abc import ByteStream

HEAD_BYTES = 1 << 20
GONE = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    anyio.IncompleteRead,
    OSError,
)


@dataclass
class Rule:
    """What is done to the requests that it is about."""

    what: re.Pattern[str]
    """Matched against method and path, such as `POST /v1.41/containers/create?name=x`."""
    times: int
    """How many requests it is for."""


@dataclass
class Hold(Rule):
    """A request that waits: before the engine gets it, or before its answer is passed on."""

    moment: Literal["request", "answer"]
    reached: anyio.Event = field(default_factory=anyio.Event)
    """Set when the request is held."""
    released: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> None:
        """Hold the request that came."""
        self.reached.set()
        await self.released.wait()

    async def until_reached(self, seconds: float = 20.0) -> None:
        with anyio.fail_after(seconds):
            await self.reached.wait()

    def release(self) -> None:
        self.released.set()


@dataclass
class Rewrite(Rule):
    """A JSON answer of the engine's that is changed."""

    change: Callable[[Any], Any]


@dataclass
class Ask(Rule):
    """A JSON request that is changed before the engine gets it."""

    change: Callable[[Any], Any]


@dataclass
class Answer(Rule):
    """A request that never reaches the engine and is answered here."""

    status: int
    body: object


class EngineProxy:
    """Listens on a Unix socket and passes everything on to an engine's."""

    def __init__(self, engine: str, path: Path) -> None:
        self._engine = engine.removeprefix("unix://")
        self._path = path
        self._rules: list[Rule] = []
        self._connections: set[anyio.CancelScope] = set()
        self.requests: list[str] = []
        """Method and path of each request, in order."""
        self.silent = False
        """Accept, and never answer."""
        self.down = False
        """Close every new connection at once, as a socket does that a dead engine left behind a proxy."""

    @property
    def host(self) -> str:
        return f"unix://{self._path}"

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def hold(self, what: str, *, moment: Literal["request", "answer"] = "request", times: int = 1) -> Hold:
        """Hold the next such request until it is released."""
        return self._add(Hold(re.compile(what), times, moment))

    def rewrite(self, what: str, change: Callable[[Any], Any], *, times: int = 1 << 30) -> Rewrite:
        """Change the engine's JSON answers to such requests."""
        return self._add(Rewrite(re.compile(what), times, change))

    def ask(self, what: str, change: Callable[[Any], Any], *, times: int = 1 << 30) -> Ask:
        """Change what such requests ask the engine for."""
        return self._add(Ask(re.compile(what), times, change))

    def answer(self, what: str, status: int, body: object, *, times: int = 1 << 30) -> Answer:
        """Answer such requests here."""
        return self._add(Answer(re.compile(what), times, status, body))

    def forget(self) -> None:
        """Pass everything on again."""
        for rule in self._rules:
            if isinstance(rule, Hold):
                rule.release()
        self._rules.clear()
        self.silent = self.down = False

    def cut(self) -> None:
        """Break every connection that is open."""
        for scope in list(self._connections):
            scope.cancel()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[EngineProxy]:
        """Listen, until the scope is left."""
        async with (
            await anyio.create_unix_listener(self._path) as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, self._serve)
            yield self
            tasks.cancel_scope.cancel()

    def _add(self, rule: Any) -> Any:
        self._rules.append(rule)
        return rule

    def _rule(self, kind: type[Any], request: str, moment: str = "") -> Any:
        for rule in self._rules:
            if isinstance(rule, kind) and rule.times and rule.what.search(request):
                if moment and rule.moment != moment:
                    continue
                rule.times -= 1
                return rule
        return None

    async def _serve(self, client: ByteStream) -> None:
        with anyio.CancelScope() as scope:
            self._connections.add(scope)
            try:
                async with client:
                    if self.down:
                        return
                    if self.silent:
                        await anyio.sleep_forever()
                    async with await anyio.connect_unix(self._engine) as engine:
                        await self._pass_on(BufferedByteStream(client), BufferedByteStream(engine))
            except* GONE:
                pass
            finally:
                self._connections.discard(scope)

    async def _pass_on(self, client: BufferedByteStream, engine: BufferedByteStream) -> None:
        while True:
            head = await _head(client)
            method, path, _ = head[0].split(" ")
            request = f"{method} {path}"
            self.requests.append(request)
            body = await client.receive_exactly(int(_header(head, "content-length") or 0))
            if hold := self._rule(Hold, request, "request"):
                await hold.wait()
            if own := self._rule(Answer, request):
                await _send(
                    client, [f"HTTP/1.1 {own.status} Said", "Content-Type: application/json"], own.body
                )
                continue
            if ask := self._rule(Ask, request):
                body = json.dumps(ask.change(json.loads(body))).encode()
                head = [line for line in head if not line.lower().startswith("content-length")]
                head.append(f"Content-Length: {len(body)}")
            await engine.send(_bytes(head) + body)
            answer = await _head(engine)
            if hold := self._rule(Hold, request, "answer"):
                await hold.wait()
            if " 101 " in answer[0]:
                await client.send(_bytes(answer))
                await _splice(client, engine)
                return
            if rewrite := self._rule(Rewrite, request):
                changed = rewrite.change(
                    json.loads(b"".join([part async for part in _body(method, answer, engine)]))
                )
                kept = [
                    line
                    for line in answer
                    if not line.lower().startswith(("content-length", "transfer-encoding"))
                ]
                await _send(client, kept, changed)
                continue
            await client.send(_bytes(answer))
            async for part in _body(method, answer, engine, raw=True):
                await client.send(part)


async def _head(stream: BufferedByteStream) -> list[str]:
    return (await stream.receive_until(b"\r\n\r\n", HEAD_BYTES)).decode("latin-1").split("\r\n")


def _header(head: list[str], name: str) -> str:
    for line in head[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return ""


def _bytes(head: list[str]) -> bytes:
    return "\r\n".join([*head, "", ""]).encode("latin-1")


async def _send(stream: BufferedByteStream, head: list[str], body: object) -> None:
    data = json.dumps(body).encode()
    await stream.send(_bytes([*head, f"Content-Length: {len(data)}"]) + data)


async def _body(
    method: str, head: list[str], stream: BufferedByteStream, *, raw: bool = False
) -> AsyncIterator[bytes]:
    """Yield an answer's body as it comes; `raw` with its framing."""
    if method == "HEAD" or re.search(" (204|304) ", head[0]):
        return
    if _header(head, "transfer-encoding") == "chunked":
        size = 1
        while size:
            line = await stream.receive_until(b"\r\n", HEAD_BYTES)
            size = int(line, 16)
            chunk = await stream.receive_exactly(size + 2)
            yield line + b"\r\n" + chunk if raw else chunk[:size]
    else:
        left = int(_header(head, "content-length") or 0)
        while left:
            part = await stream.receive(min(left, 1 << 16))
            left -= len(part)
            yield part


async def _splice(first: ByteStream, second: ByteStream) -> None:
    """Pass bytes on, both ways, until either side is done."""

    async def one_way(source: ByteStream, sink: ByteStream) -> None:
        with suppress(anyio.EndOfStream):
            while True:
                await sink.send(await source.receive(1 << 18))
        with suppress(*GONE):
            await sink.send_eof()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one_way, first, second)
        tasks.start_soon(one_way, second, first)
