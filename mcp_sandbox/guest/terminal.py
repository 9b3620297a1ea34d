"""The terminal of an interactive run: what its program shows comes out, what a person types goes in.

Above: `guest.session`, and whoever sits there. Below: `guest.tunnel`: a terminal is carried as a connection is, and
like one it is bounded both ways. A person who reads slowly slows the program, and neither side grows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import anyio

from mcp_sandbox.guest.protocol import TERMINAL, Kind, encode_size
from mcp_sandbox.guest.tunnel import TunnelStream


class Size(NamedTuple):
    """How large a terminal is."""

    rows: int
    columns: int


class TerminalStream(TunnelStream):
    """The program's terminal: its screen is received, keys are sent."""

    def __init__(self, send_frame: Callable[[bytes], None], keep: Callable[[bytes], None]) -> None:
        super().__init__(TERMINAL, send_frame)
        self._keep = keep
        self.bytes = 0
        """Bytes that came."""
        self.lines = 0
        """Line ends in them."""

    def take(self, kind: Kind, rest: bytes) -> None:
        """Take what the agent says of it, and keep what came, whether or not somebody reads it.

        Raises:
            ProtocolViolation: The agent cannot have said it.
        """
        super().take(kind, rest)
        if kind is Kind.SENT:
            self.bytes += len(rest)
            self.lines += rest.count(b"\n")
            self._keep(rest)

    def resize(self, size: Size) -> None:
        """Tell the program how large its terminal is from now on."""
        self._send_frame(encode_size(*size))

    def end(self) -> None:
        """Let what came be received, and after it the end: the program has ended."""
        self._sent_all = True
        self._wake()


AtTerminal: TypeAlias = Callable[[TerminalStream], Awaitable[None]]
"""Sits at a program's terminal until it ends; whoever returns earlier has hung up."""


class Seat:
    """Somebody's place at a program's terminal."""

    def __init__(
        self,
        at_terminal: AtTerminal,
        started: anyio.Event,
        send_frame: Callable[[bytes], None],
        keep: Callable[[bytes], None],
    ) -> None:
        self.terminal = TerminalStream(send_frame, keep)
        self._at_terminal = at_terminal
        self._started = started
        self._left = anyio.Event()

    async def attend(self, terminal: TerminalStream) -> None:
        """Sit there once the program has started: before that, nobody inside understands what is sent."""
        await self._started.wait()
        try:
            await self._at_terminal(terminal)
        finally:
            self._left.set()

    async def leave(self, seconds: float) -> None:
        """Wait, so long at most, until all that the program showed has been read: it has ended."""
        self.terminal.end()
        if self._started.is_set():
            with anyio.move_on_after(seconds):
                await self._left.wait()
