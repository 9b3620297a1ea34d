"""Output as bytes from inside, bounded; and as clean text for whoever reads it.

Above: `executor`. Below: nothing. This is the one choke point for text that leaves: no lone surrogate (one of
them ends the whole MCP server), no control character that acts on a terminal.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_CONTROL = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""Control characters to their pictures (ESC becomes ␛): visible, one character each, harmless in JSON."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Return text that any encoder, JSON reader and terminal takes."""
    return _SURROGATE.sub("�", text.replace("\r\n", "\n")).translate(_CONTROL)


class Shown(NamedTuple):
    """A stream as text, and how much of it that is."""

    text: str
    dropped: int
    """Bytes that are missing from the text."""


class Capture:
    """Keeps the head and the tail of one stream of bytes, and counts the rest.

    The agent keeps to the same limits inside; these hold even if it were not our agent that spoke.
    """

    def __init__(self, head_bytes: int, tail_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Bytes written in all, as far as they are known here."""

    def write(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._keep_tail(data[max(room, 0) :])

    def write_tail(self, data: bytes) -> None:
        """Take bytes of the end of the stream, which follow a gap where `settle` counts more than came."""
        self.total += len(data)
        self._keep_tail(data)

    def _keep_tail(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > self._tail_bytes:
            del self._tail[: len(self._tail) - self._tail_bytes]

    def settle(self, total: int) -> None:
        """Take the agent's word for how many bytes there were; what came is never more than that."""
        self.total = max(total, self.total)

    @property
    def missing(self) -> int:
        """Bytes between head and tail that nobody kept."""
        return self.total - len(self._head) - len(self._tail)

    def since(self, offset: int) -> Capture:
        """Return what there is from this byte of the stream on."""
        rest = Capture(self._head_bytes, self._tail_bytes)
        tail_start = self.total - len(self._tail)
        rest._head = self._head[offset:]
        rest._tail = self._tail[max(0, offset - tail_start) :]
        rest.total = max(0, self.total - offset)
        return rest

    def kept(self) -> bytes:
        """Return all that was kept, a marker line where bytes are missing."""
        gap = _marker(self.missing).encode() if self.missing else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def show(self, budget: int) -> Shown:
        """Return about `budget` bytes at most as text: head and tail, cut at lines, a marker line between."""
        kept = len(self._head) + len(self._tail)
        if not self.missing and kept <= budget:
            return Shown(clean((self._head + self._tail).decode("utf-8", "replace")), 0)
        if kept <= budget:
            head, tail = bytes(self._head), bytes(self._tail)
        else:
            beginning = bytes(self._head) if self.missing else bytes(self._head + self._tail)
            end = bytes(self._tail) if self.missing else beginning
            head = _cut_end(beginning[: budget // 2])
            tail = _cut_start(end[max(0, len(end) - (budget - budget // 2)) :])
        dropped = self.total - len(head) - len(tail)
        shown_head = clean(head.decode("utf-8", "replace"))
        shown_tail = clean(tail.decode("utf-8", "replace"))
        return Shown(shown_head + _marker(dropped) + shown_tail, dropped)


def share(budget: int, first: int, second: int) -> tuple[int, int]:
    """Split a budget between two streams of these lengths: each gets half, and what the other leaves over."""
    half = budget // 2
    if first <= half:
        return first, budget - first
    if second <= half:
        return budget - second, second
    return half, budget - half


def _marker(dropped: int) -> str:
    return f"\n[… {dropped:,} bytes left out …]\n"


def _cut_end(head: bytes) -> bytes:
    """Cut back to the last line end, where one is near; else to a whole character."""
    line = head.rfind(b"\n", len(head) // 2)
    if line >= 0:
        return head[: line + 1]
    return head[: len(head) - partial_character(head)]


def _cut_start(tail: bytes) -> bytes:
    """Cut on to the first line start, where one is near; else to a whole character."""
    line = tail.find(b"\n", 0, len(tail) // 2)
    if line >= 0:
        return tail[line + 1 :]
    skip = 0
    while skip < min(3, len(tail)) and tail[skip] & 0xC0 == 0x80:
        skip += 1
    return tail[skip:]


def partial_character(data: bytes) -> int:
    """Count the bytes at the end that begin a UTF-8 character without ending it."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        return back if length > back else 0
    return 0
