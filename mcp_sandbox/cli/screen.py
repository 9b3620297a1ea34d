"""What of a program's output reaches a person's terminal: text, and a closed list of sequences.

Pure. A terminal does what it is told by whatever it shows, and some of that reaches the person's machine: the
clipboard (OSC 52), keys that type commands later (DECUDK), files to fetch, open or print, questions whose answers
hold what a program chose (title, DECRQSS, ENQ) and arrive as typed input, at the person's own prompt where the
program has ended by then. So nothing passes because it looks harmless: what is not listed here is left out, and what
passes is whole. What a program's parser and a terminal's would read differently never gets that far.
"""

from __future__ import annotations

import codecs
import re

_LONGEST = 64
"""Characters of a sequence that passes, at most."""
_DIGITS = 4
"""Of a number in it: with larger ones terminals have been made to compute for minutes."""

_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f]+|[\x07-\x0f]+")
"""Characters that print, and bell, backspace, tab, line ends, and the two that change the character set."""

_CONTROL_SEQUENCE = re.compile(r"\x1b\[[<-?]?[0-9:;]*[ -/]*[@-~]")
_HARMLESS = re.compile(
    r"\x1b\[(?:[0-9:;]*[@A-MPSXZ`abdefm]|[0-9]*T|[su]|\?[0-2]?[JK])"  # move, erase, insert, delete, scroll, colour
)
_ASKS = re.compile(r"\x1b\[(?:[56]n|>?0?c)")
"""Questions whose answers are digits: where the cursor is, what the terminal can do."""
_SETS_MODES = re.compile(r"\x1b\[\?([0-9;]*)([hl])")
_MODES = frozenset(
    {1, 5, 6, 7, 12, 25, 47, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004, 2026}
)
"""Cursor keys, colours, origin, wrapping, cursor, other screen, keypad, mouse, focus, pasting, drawing at once."""
_OF_KEYS = frozenset({1, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004})
"""Those of them that change what the terminal types."""
_ON_AT_FIRST = frozenset({7, 25})
_LASTS = re.compile(r"\x1b\[(?:[0-9;]*(r)|4([hl])|[0-6]? (q)|!(p))")
_UNDOES = {"r": "\x1b7\x1b[r\x1b8", "h": "\x1b[4l", "l": "", "q": "\x1b[0 q", "p": ""}
"""Margins (setting them moves the cursor), inserting, the cursor's shape; a reset."""

_ESCAPE = re.compile(r"\x1b(?:[78=>DEM]|[()][0AB]|#8)|\x1b(c)")
"""Cursor, keypad, line feeds; line drawing; the test picture; reset."""
_STRING = re.compile(r"\x1b[]PX^_k]")
"""What begins a string that a terminal acts on, up to a control character: none passes."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ENDS_STRING = re.compile(r"\x1b\\|\x07|\x9c")
_BEGUN = re.compile(r"\x1b(?:\[[<-?]?[0-9:;]*[ -/]*|[ -/]*)\Z")
_OTHER = re.compile(r"\x1b[ -/]*[0-~]|.", re.DOTALL)

_REST = "\x1b[m\x1b(B\x0f\x1b>"
"""Colours, character set and keypad as they are at first."""


class Screen:
    """One terminal that a program draws on, through a filter, and what has to be undone on it at the end.

    Where the program does not read the terminal's keys (`keys`), it asks nothing and changes nothing of what is typed:
    that would all be read by the next program, the person's shell.
    """

    def __init__(self, encoding: str = "utf-8", *, keys: bool = True) -> None:
        self._encoding = encoding
        self._keys = keys
        self._known_modes = _MODES if keys else _MODES - _OF_KEYS
        # What is no UTF-8 could be control characters of eight bits to a terminal of another encoding.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._in_string = False
        self._modes: dict[int, bool] = {}
        self._lasts: set[str] = set()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes that a program wrote, and return what the terminal is given."""
        text = self._held + self._decoder.decode(data)
        self._held = ""
        passed: list[str] = []
        at = 0
        while at < len(text):
            if self._in_string:
                at = self._skip_string(text, at)
            elif found := _TEXT.match(text, at):
                passed.append(found[0])
                at = found.end()
            else:
                at = self._sequence(text, at, passed)
        return "".join(passed).encode(self._encoding, "replace")

    def end(self) -> bytes:
        """Return what brings the terminal back to where it was, as far as the program could change it."""
        undone = [
            f"\x1b[?{mode}{'h' if mode in _ON_AT_FIRST else 'l'}"
            for mode, on in self._modes.items()
            if on != (mode in _ON_AT_FIRST)
        ]
        undone += [_UNDOES[final] for final in sorted(self._lasts)]
        return "".join([*undone, _REST]).encode("ascii")

    def _sequence(self, text: str, at: int, passed: list[str]) -> int:
        """Pass on the sequence that begins there, if it may pass; return where to go on."""
        if found := _CONTROL_SEQUENCE.match(text, at):
            passed.append(self._allowed(found[0]))
        elif found := _ESCAPE.match(text, at):
            passed.append(found[0])
            if found[1]:
                self._modes.clear()
                self._lasts.clear()
        elif found := _STRING.match(text, at):
            self._in_string = True
        elif len(text) - at < _LONGEST and _BEGUN.match(text, at):
            self._held = text[at:]
            return len(text)
        else:
            found = _OTHER.match(text, at)
        return found.end() if found else len(text)

    def _skip_string(self, text: str, at: int) -> int:
        """Return where a string ends: behind its end, or at any other control character, which no string holds."""
        found = _CONTROL.search(text, at)
        if found is None:
            return len(text)
        if text[found.start() :] == "\x1b":
            self._held = "\x1b"
            return len(text)
        self._in_string = False
        end = _ENDS_STRING.match(text, found.start())
        return end.end() if end else found.start()

    def _allowed(self, sequence: str) -> str:
        """Return what of a control sequence passes."""
        numbers = re.findall("[0-9]+", sequence)
        if len(sequence) > _LONGEST or any(len(number) > _DIGITS for number in numbers):
            return ""
        if _HARMLESS.fullmatch(sequence) or (self._keys and _ASKS.fullmatch(sequence)):
            return sequence
        if found := _SETS_MODES.fullmatch(sequence):
            return self._set_modes(found[1], found[2])
        if found := _LASTS.fullmatch(sequence):
            self._lasts.add(found[found.lastindex or 0])
            return sequence
        return ""

    def _set_modes(self, numbers: str, final: str) -> str:
        modes = [mode for mode in map(int, filter(None, numbers.split(";"))) if mode in self._known_modes]
        self._modes.update(dict.fromkeys(modes, final == "h"))
        return f"\x1b[?{';'.join(map(str, modes))}{final}" if modes else ""
