"""Output as bytes from inside, bounded; and as clean text for whoever reads it.

Above: `executor`. Below: nothing. This is the one choke point for text that leaves: no lone surrogate (one of
them ends the whole MCP server), no control character that acts on a terminal. What a model reads is also what a
terminal would have left on its screen: no colours, and of a progress bar its last state. The record keeps every byte.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTROL = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""Control characters to their pictures (ESC becomes ␛): visible, one character each, harmless in JSON."""

_SURROGATE = re.compile("[\ud800-\udfff]")

LAST_LINE_BYTES, LAST_LINE_CHARACTERS = 4096, 100

_ESCAPE_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # window titles, links
    rb"|[PX^_][^\x1b\n]*\x1b\\"
    rb"|[ -/]+[0-~]|[0-OQ-WYZ\\`-~]"
    rb"|(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*)?\Z)"  # one that is cut off at the end
)

_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*|[PX^_][^\x1b\n]*|[ -/]*)\Z")
_LONGEST_BEGUN = 256
"""Bytes of an escape sequence that are waited for: text that only looks like one must come all the same."""


def as_on_a_screen(data: bytes) -> bytes:
    """Return output without what only a terminal takes, and without what it would have written over."""
    if b"\x1b" in data:
        data = _ESCAPE_SEQUENCE.sub(b"", data)
    return b"\n".join(map(_last_state, data.split(b"\n"))) if b"\r" in data else data


def _last_state(line: bytes) -> bytes:
    """Return what a line holds after it was begun again; a carriage return at its end is of the line's end."""
    line = line.rstrip(b"\r")
    return line[line.rfind(b"\r") + 1 :]


def clean(text: str) -> str:
    """Return text that any encoder, JSON reader and terminal takes."""
    return _SURROGATE.sub("�", text.replace("\r\n", "\n")).translate(_CONTROL)


class Shown(NamedTuple):
    """A stream as text, and how much of it that is."""

    text: str
    dropped: int
    """Bytes of the stream that are missing from the text, other than what a terminal would not show."""


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
        self.lines: int | None = 0
        """Line ends in them; None unknown."""

    def write(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._count(data)
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._keep_tail(data[max(room, 0) :])

    def write_tail(self, data: bytes) -> None:
        """Take bytes of the end of the stream, which follow a gap where `settle` counts more than came."""
        self._count(data)
        self._keep_tail(data)

    def _count(self, data: bytes) -> None:
        self.total += len(data)
        if self.lines is not None:
            self.lines += data.count(b"\n")

    def _keep_tail(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > self._tail_bytes:
            del self._tail[: len(self._tail) - self._tail_bytes]

    def settle(self, total: int, lines: int | None = None) -> None:
        """Take the agent's word for how many bytes and lines there were; what came is never more than that."""
        if total > self.total:
            self.total = total
            self.lines = lines if lines is None or self.lines is None else max(lines, self.lines)

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
        if rest.missing:
            skipped = self._head.count(b"\n", 0, offset) if offset <= len(self._head) else None
            rest.lines = None if skipped is None or self.lines is None else self.lines - skipped
        else:
            rest.lines = rest._head.count(b"\n") + rest._tail.count(b"\n")
        return rest

    def place(self, offset: int) -> int:
        """Return where this byte of the stream is in what was kept; the marker's place where nobody kept it."""
        if offset <= len(self._head):
            return offset
        tail_start = self.total - len(self._tail)
        if offset < tail_start:
            return len(self._head)
        return offset - tail_start + len(self.kept()) - len(self._tail)

    def unfinished(self) -> int:
        """Count the bytes at the end that say nothing before the next ones have come."""
        return unfinished(bytes((self._tail or self._head)[-_LONGEST_BEGUN:]))

    def without_end(self, size: int) -> Capture:
        """Return what there is but for the last bytes."""
        rest = self.since(0)
        end = rest._tail or rest._head
        del end[len(end) - size :]
        rest.total -= size
        return rest

    def last_line(self) -> str:
        """Return the last line that says something, shortened; empty where there is none."""
        end = bytes(self._tail or self._head)[-LAST_LINE_BYTES:]
        lines = _as_text(as_on_a_screen(end)).splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:LAST_LINE_CHARACTERS]

    def kept(self) -> bytes:
        """Return all that was kept, a marker line where bytes are missing."""
        gap = _marker(self.missing).encode() if self.missing else b""
        return bytes(self._head) + gap + bytes(self._tail)

    def wanted(self) -> int:
        """Return how many bytes it would take to show the whole stream."""
        return len(as_on_a_screen(bytes(self._head))) + self.missing + len(as_on_a_screen(bytes(self._tail)))

    def show(self, budget: int, how: Callable[[int], str] | None = None) -> Shown:
        """Return about `budget` bytes at most as text: head and tail, cut at lines, a marker line between.

        `how` says how to read on from an offset in bytes.
        """
        beginning = bytes(self._head) if self.missing else bytes(self._head + self._tail)
        screen = as_on_a_screen(beginning)
        if not self.missing and len(screen) <= budget:
            return Shown(_as_text(screen), 0)
        end = bytes(self._tail)
        if len(screen) + len(as_on_a_screen(end)) <= budget:  # something is missing, and all else fits
            head, tail = beginning, end
        else:
            head = _beginning(beginning, budget // 2)
            tail = _end(end if self.missing else beginning[len(head) :], budget - budget // 2)
        dropped = self.total - len(head) - len(tail)
        lines = None if self.lines is None else self.lines - head.count(b"\n") - tail.count(b"\n")
        marker = _marker(dropped, lines, how(len(head)) if how else "")
        return Shown(_as_text(as_on_a_screen(head)) + marker + _as_text(as_on_a_screen(tail)), dropped)


def share(budget: int, first: int, second: int) -> tuple[int, int]:
    """Split a budget between two streams of these lengths: each gets half, and what the other leaves over."""
    half = budget // 2
    if first <= half:
        return first, budget - first
    if second <= half:
        return budget - second, second
    return half, budget - half


def _as_text(data: bytes) -> str:
    return clean(data.decode("utf-8", "replace"))


def _marker(dropped: int, lines: int | None = None, how: str = "") -> str:
    counted = f"{lines:,} lines, {dropped:,} bytes" if lines else f"{dropped:,} bytes"
    return f"\n[… {counted} left out{how and '; '}{how} …]\n"


def _beginning(data: bytes, budget: int) -> bytes:
    """Return as many whole lines as fit, once on a screen; where that is little, a part of the next one too."""
    end = used = 0
    while end < len(data):
        line = data[end : data.find(b"\n", end) + 1 or len(data)]
        width = len(as_on_a_screen(line))
        if used + width > budget:
            if used >= budget // 2:
                break
            part = data[: end + budget - used]
            return part[: len(part) - partial_character(part)]
        used += width
        end += len(line)
    return data[:end]


def _end(data: bytes, budget: int) -> bytes:
    """Return as many whole lines of the end as fit, once on a screen; else a part of the one before them too."""
    start, used = len(data), 0
    while start:
        begin = data.rfind(b"\n", 0, start - 1) + 1
        width = len(as_on_a_screen(data[begin:start]))
        if used + width > budget:
            if used >= budget // 2:
                break
            return _whole_character(data[max(0, start - (budget - used)) :])
        used += width
        start = begin
    return data[start:]


def _whole_character(data: bytes) -> bytes:
    """Leave out the rest of a UTF-8 character that began before."""
    skip = 0
    while skip < min(3, len(data)) and data[skip] & 0xC0 == 0x80:
        skip += 1
    return data[skip:]


def unfinished(data: bytes) -> int:
    """Count the bytes at the end that begin a character or an escape sequence without ending it."""
    begun = _BEGUN.search(data, max(0, len(data) - _LONGEST_BEGUN))
    return len(data) - begun.start() if begun else partial_character(data)


def partial_character(data: bytes) -> int:
    """Count the bytes at the end that begin a UTF-8 character without ending it."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
        return back if length > back else 0
    return 0
