"""What a program draws reaches a person's terminal; what reaches past it, into the person's machine, does not."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_sandbox.cli.screen import Screen

ESC = b"\x1b"
ST = b"\x1b\\"

DRAWS = {
    "text of any script": "naïve 日本語 🙂 e\u0301\r\n\ttabs\b".encode(),
    "colours": b"\x1b[0;1;38;5;208mwarm\x1b[48:2::1:2:3mexact\x1b[m",
    "cursor": b"\x1b[H\x1b[12;40H\x1b[A\x1b[3D\x1b[s\x1b[u\x1b7\x1b8\x1b[20G\x1b[5d",
    "erasing": b"\x1b[2J\x1b[K\x1b[1K\x1b[3J\x1b[4P\x1b[2X",
    "scrolling": b"\x1b[2L\x1b[2M\x1b[S\x1b[T\x1bM\x1bD",
    "the other screen": b"\x1b[?1049h\x1b[?25l\x1b[?1049l\x1b[?25h",
    "margins": b"\x1b[2;20r",
    "line drawing": b"\x1b(0lqk\x1b(B\x0e\x0f",
    "keypad and cursor keys": b"\x1b=\x1b>\x1b[?1h\x1b[?1l",
    "mouse and pasting": b"\x1b[?1000;1006h\x1b[?2004h",
    "cursor's shape": b"\x1b[5 q",
    "where is the cursor": b"\x1b[6n",
    "what are you": b"\x1b[c\x1b[0c\x1b[>c\x1b[>0c",
    "reset": b"\x1bc\x1b[!p",
    "bell": b"\x07",
}


@pytest.mark.parametrize("what", DRAWS)
def test_what_draws_passes_to_the_byte(what: str) -> None:
    assert Screen().feed(DRAWS[what]) == DRAWS[what]


REACHES_OUT = {
    "set the clipboard": ESC + b"]52;c;cm0gLXJmIH4=\x07",
    "read the clipboard": ESC + b"]52;c;?" + ST,
    "set the title": ESC + b"]0;rm -rf ~\x07",
    "set the title, as screen does": ESC + b"krm -rf ~" + ST,
    "report the title": ESC + b"[21t",
    "report the icon's": ESC + b"[20t",
    "move and resize the window": ESC + b"[3;0;0t" + ESC + b"[8;1;1t",
    "answerback": b"\x05",
    "program keys": ESC + b"P0;1|17/726d0d" + ST,
    "DECRQSS": ESC + b"P$q; rm -rf ~;" + ST,
    "XTGETTCAP": ESC + b"P+q544e" + ST,
    "tmux, pass it on": ESC + b"Ptmux;" + ESC + ESC + b"]52;c;eA==\x07" + ST,
    "print": ESC + b"[5i" + ESC + b"[4i" + ESC + b"[?5i",
    "notify": ESC + b"]9;hello\x07" + ESC + b"]777;notify;a;b\x07",
    "open, fetch, run (iTerm2)": ESC + b"]1337;File=inline=1:AAAA\x07" + ESC + b"]1337;CopyToClipboard=x\x07",
    "link elsewhere": ESC + b"]8;;file:///etc/passwd" + ST,
    "read files (kitty)": ESC + b"_Gt=f,a=T;L2V0Yy9wYXNzd2Q=" + ST,
    "ask for colours": ESC + b"]11;?\x07" + ESC + b"]4;1;?" + ST,
    "palette": ESC + b"]P0000000" + ST,
    "privacy message and string": ESC + b"^x" + ST + ESC + b"Xx" + ST,
    "another character encoding": ESC + b"%@" + ESC + b"% G",
    "eight-bit controls": ESC + b" G",
    "other keyboards": ESC + b"[>4;2m" + ESC + b"[>1u" + ESC + b"[=5u" + ESC + b"[?u",
    "locator": ESC + b"[1;2'z" + ESC + b"['|",
    "parameters": ESC + b"[x" + ESC + b"[?15n" + ESC + b"[?1$p",
    "132 columns": ESC + b"[?3h",
    "other modes": ESC + b"[?9999h" + ESC + b"[20h" + ESC + b"[12h",
    "highlight tracking": ESC + b"[1;2;3;4;5T",
    "numbers without end": ESC + b"[99999b" + ESC + b"[1;999999999999A",
    "controls of eight bits": "\x9b\x9d\x90\x9c\x9e\x85".encode(),
    "null and delete": b"\x00\x7f\x1a\x18",
}


@pytest.mark.parametrize("what", REACHES_OUT)
def test_what_reaches_past_the_screen_is_left_out(what: str) -> None:
    assert Screen().feed(b"before" + REACHES_OUT[what] + b"after") == b"beforeafter"


def test_of_modes_set_together_those_that_may_be_are() -> None:
    assert Screen().feed(b"\x1b[?25;3;1049h") == b"\x1b[?25;1049h"


def test_what_is_no_text_cannot_be_control_characters_of_another_encoding() -> None:
    assert Screen().feed(b"\x9b21t\x9d52;c;eA==\x9c") == "�21t�52;c;eA==�".encode()
    latin = Screen("iso-8859-1")
    assert latin.feed("é\x9b€\u009d".encode()) == b"\xe9?"
    assert latin.feed(b"\x9b5i") == b"?5i"


@pytest.mark.parametrize(
    "what", [DRAWS[what] for what in ("where is the cursor", "what are you", "mouse and pasting")]
)
def test_who_does_not_read_the_keys_causes_none(what: bytes) -> None:
    assert Screen(keys=False).feed(b"before" + what + b"after") == b"beforeafter"
    assert Screen(keys=False).feed(b"\x1b[?25;1;2004h\x1b[31m") == b"\x1b[?25h\x1b[31m"


def test_a_string_without_end_swallows_no_more_than_its_line() -> None:
    assert Screen().feed(b"\x1b]0;never ended\r\nnext line") == b"\r\nnext line"


PASSES = re.compile(
    rb"(?:[^\x00-\x1f\x7f-\x9f]|[\x07-\x0f]|[\xc2-\xf4][\x80-\xbf]+"
    rb"|\x1b\[[0-9:;]{0,62}[@A-MPSXZ`abdefmr]|\x1b\[[0-9]{0,4}T|\x1b\[[su]|\x1b\[\?[0-2]?[JK]|\x1b\[[56]n"
    rb"|\x1b\[>?0?c|\x1b\[4[hl]|\x1b\[\?[0-9;]+[hl]|\x1b\[[0-6]? q|\x1b\[!p|\x1b[78=>DEMc]|\x1b[()][0AB]|\x1b#8)*"
)
pieces = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([*REACHES_OUT.values(), *DRAWS.values(), ESC, ESC + b"[", ESC + b"]", b"\xc2", b"\x9b"]),
    st.text("\x1b[]?;:0123456789hlmntcPX^_\\\x07\x9b\x9cr", max_size=20).map(str.encode),
)


@given(st.lists(pieces, max_size=12))
@example([b"\x1b", b"]0;x", b"\x1b", b"[21t"])
@example([b"\x1b[", b"?", b"1049", b"h", b"\x1b", b"]52;c;x", b"\x1b", b"\\"])
def test_nothing_else_passes_however_it_is_cut(written: list[bytes]) -> None:
    cut, whole = Screen(), Screen()
    passed = [cut.feed(piece) for piece in written]
    assert all(PASSES.fullmatch(part) for part in passed)  # each a whole: the next may be our own
    assert b"".join(passed) == whole.feed(b"".join(written))
    assert PASSES.fullmatch(cut.end())


def test_it_is_given_back_as_it_was() -> None:
    screen = Screen()
    screen.feed(b"\x1b[?1049h\x1b[?1000;1006;2004h\x1b[?25l\x1b[?7l\x1b[5 q\x1b[4h\x1b[2;9r\x1b(0\x1b[41m")
    screen.feed(b"\x1b[?2004l")
    end = screen.end()
    for undone in (
        b"?1049l",
        b"?1000l",
        b"?1006l",
        b"?25h",
        b"?7h",
        b"[0 q",
        b"[4l",
        b"[r",
        b"(B",
        b"[m",
        b"\x0f",
    ):
        assert undone in end
    assert b"2004" not in end


def test_nothing_is_undone_that_was_not_done() -> None:
    assert Screen().end() == b"\x1b[m\x1b(B\x0f\x1b>"  # above all not the other screen: that moves the cursor
