"""What is kept of output, and what is shown of that: bounded, true, and harmless."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_sandbox.capture import Capture, clean, share

MARKER = re.compile(r"\n\[… (?:[0-9,]+ lines, )?([0-9,]+) bytes left out …\]\n")

pieces = st.lists(
    st.binary(max_size=40) | st.sampled_from([b"\n", b"line\n", "héé\n".encode(), "€".encode()]), max_size=20
)
text_pieces = st.lists(st.text("ab\né€😀", max_size=30).map(str.encode), max_size=20)
sizes = st.integers(0, 60)


def captured(stream: list[bytes], head: int, tail: int) -> Capture:
    capture = Capture(head, tail)
    for piece in stream:
        capture.write(piece)
    return capture


@given(pieces, sizes, sizes)
def test_head_and_tail_are_kept_and_the_rest_is_counted(stream: list[bytes], head: int, tail: int) -> None:
    whole = b"".join(stream)
    capture = captured(stream, head, tail)
    assert capture.total == len(whole)
    missing = max(0, len(whole) - head - tail)
    assert capture.missing == missing
    kept = capture.kept()
    if not missing:
        assert kept == whole
    else:
        marker = f"\n[… {missing:,} bytes left out …]\n".encode()
        assert kept == whole[:head] + marker + whole[len(whole) - tail :]


@given(pieces, sizes, sizes)
def test_it_is_kept_the_same_when_the_guest_sends_the_tail_apart(
    stream: list[bytes], head: int, tail: int
) -> None:
    whole = b"".join(stream)
    # As the agent does it: the head as it comes, then the end, then the count.
    capture = Capture(head, tail)
    capture.write(whole[:head])
    rest = whole[head:]
    end = rest[max(0, len(rest) - tail) :]
    for start in range(0, len(end), 7):
        capture.write_tail(end[start : start + 7])
    capture.settle(len(whole))
    expected = captured(stream, head, tail)
    assert capture.kept() == expected.kept()
    assert capture.total == expected.total


@given(pieces, st.integers(0, 2000))
def test_a_count_below_what_came_is_not_believed(stream: list[bytes], claimed: int) -> None:
    capture = captured(stream, 10, 10)
    came = capture.total
    capture.settle(claimed)
    assert capture.total == max(came, claimed)
    assert capture.missing >= 0


@given(st.text("ab\n", max_size=300), sizes, sizes, st.integers(0, 150))
@example("x" * 100, 100, 0, 0)
@example("x" * 100, 100, 0, 1)
def test_what_is_shown_is_the_beginning_and_the_end_and_says_exactly_what_is_missing(
    whole: str, head: int, tail: int, budget: int
) -> None:
    shown = captured([whole.encode()], head, tail).show(budget)
    if len(whole) <= min(budget, head + tail):
        assert (shown.text, shown.dropped) == (whole, 0)
        return
    (marker,) = MARKER.finditer(shown.text)
    before, after = shown.text[: marker.start()], shown.text[marker.end() :]
    assert whole.startswith(before)
    assert whole.endswith(after)
    assert len(before) <= head + tail
    assert len(before) + len(after) <= budget
    assert int(marker[1].replace(",", "")) == shown.dropped == len(whole) - len(before) - len(after)


@given(pieces, st.integers(1, 5000), st.integers(0, 300))
def test_bytes_that_never_came_are_counted_as_missing(stream: list[bytes], beyond: int, budget: int) -> None:
    capture = captured(stream, 50, 50)
    capture.settle(capture.total + beyond)
    shown = capture.show(budget)
    assert shown.dropped >= beyond
    assert f"{shown.dropped:,} bytes left out" in shown.text


@given(text_pieces, st.integers(0, 200))
def test_text_is_never_cut_within_a_character(stream: list[bytes], budget: int) -> None:
    whole = b"".join(stream)
    shown = captured(stream, 10_000, 0).show(budget)
    assert "\ufffd" not in shown.text
    if shown.dropped:
        (marker,) = MARKER.finditer(shown.text)
        before, after = shown.text[: marker.start()], shown.text[marker.end() :]
        assert whole.startswith(before.encode())
        assert whole.endswith(after.encode())
        assert len(before.encode()) + len(after.encode()) + shown.dropped == len(whole)


def test_output_is_cut_at_line_ends() -> None:
    lines = b"".join(b"line %04d\n" % number for number in range(1000))
    shown = captured([lines], 10_000, 0).show(205)
    before, dropped, after = MARKER.split(shown.text)
    assert before.splitlines() == [f"line {number:04}" for number in range(10)]
    assert after.splitlines() == [f"line {number:04}" for number in range(990, 1000)]
    assert dropped == "9,800"


def test_the_marker_tells_lines_and_bytes_and_how_to_read_on() -> None:
    capture = captured([b"".join(b"line %04d\n" % number for number in range(1000))], 10_000, 0)
    shown = capture.show(205, lambda offset: f"go on at {offset}")
    assert "\n[… 980 lines, 9,800 bytes left out; go on at 100 …]\n" in shown.text
    rest = capture.since(9_900).show(1000)
    assert (rest.text.splitlines()[0], rest.dropped) == ("line 0990", 0)


def test_lines_that_never_came_are_counted_where_the_agent_tells_and_not_guessed_where_it_does_not() -> None:
    for lines, told in ((1000, "998 lines, 9,980 bytes"), (None, "9,980 bytes")):
        capture = Capture(10, 10)
        capture.write(b"line 0000\n")
        capture.write_tail(b"line 0999\n")
        capture.settle(10_000, lines)
        assert f"[… {told} left out …]" in capture.show(1000).text


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (b"\x1b[1;31mred\x1b[0m plain\n", "red plain\n"),
        (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "textlink\n"),
        (b"\x1b[?25l\x1b[2K\x1b(Bdone\x1b[?25h\n", "done\n"),
        (b"begin\n\r  0%|    |\r 50%|##  |\r100%|####|\nend\n", "begin\n100%|####|\nend\n"),
        (b"\r 10%\r 20%", " 20%"),
        (b"working\r", "working"),
        (b"dos\r\nlines\r\n", "dos\nlines\n"),
        (b"all of \x1b[3", "all of "),
        (b"tab\tbell\x07 escape\x1b\n", "tab\tbell␇ escape␛\n"),
    ],
)
def test_output_is_shown_as_a_screen_would_have_it_and_kept_as_it_was(written: bytes, seen: str) -> None:
    capture = captured([written], 1000, 0)
    assert capture.show(1000) == (seen, 0)
    assert capture.kept() == written


def test_no_output_takes_long_to_be_made_readable() -> None:
    # Where the effort grew with the square of the length, the time limit of all tests would end this.
    for hostile in (
        b"a" * (1 << 20) + b"\r\n",
        b"\x1b[" + b"0" * (1 << 20),
        b"\x1b]" * (1 << 19),
        b"\r" * (1 << 20),
    ):
        assert captured([hostile], 1 << 20, 1 << 20).show(20_000).text is not None


def test_a_progress_bar_takes_no_more_room_than_its_last_state() -> None:
    bar = b"".join(b"\r%3d%%|%-100s|" % (percent, b"#" * percent) for percent in range(101))
    capture = captured([b"first\n", bar, b"\nlast\n"], 1 << 20, 0)
    shown = capture.show(200)
    assert shown == (f"first\n100%|{'#' * 100}|\nlast\n", 0)
    assert capture.wanted() < 200


@given(
    st.lists(
        st.sampled_from([b"\x1b", b"[", b"]", b"3", b"m", b"\r", b"\n", b"\x07", b"a", b"\\"]), max_size=60
    )
)
def test_what_is_made_readable_in_parts_is_what_is_made_readable_whole(stream: list[bytes]) -> None:
    data = b"".join(stream)
    text = captured([data], 1000, 0).show(1000).text
    assert text.count("\n") == data.count(b"\n")
    assert len(text) <= len(data)
    harmless(text)


def test_a_line_longer_than_what_is_shown_is_cut_within() -> None:
    shown = captured([b"x" * 1000], 1000, 0).show(100)
    assert shown.text == "x" * 50 + "\n[… 900 bytes left out …]\n" + "x" * 50


@given(st.binary(max_size=300), st.integers(0, 300))
def test_what_is_shown_harms_no_reader(data: bytes, budget: int) -> None:
    text = captured([data], 200, 50).show(budget).text
    harmless(text)


@given(st.text(max_size=200))
@example("\ud800")
@example("\x1b[31m\x07\x00\x7f\x9b")
@example("\r\n\r")
def test_clean_text_harms_no_reader(text: str) -> None:
    harmless(clean(text))
    assert len(clean(text)) <= len(text)


def harmless(text: str) -> None:
    text.encode("utf-8")
    assert json.loads(json.dumps(text, ensure_ascii=False).encode()) == text
    for character in text:
        assert character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs")


@given(st.text().filter(lambda text: not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)))
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert clean(text) == text


def test_control_characters_are_made_visible() -> None:
    assert clean("\x1b[2J\x00\x07\x7f\r\tend\r\n") == "␛[2J␀␇␡␍\tend\n"


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_two_streams_share_a_budget(budget: int, first: int, second: int) -> None:
    one, other = share(budget, first, second)
    assert one + other == budget
    assert min(one, other) >= 0
    if first + second <= budget:
        assert one >= first
        assert other >= second
    # Neither starves: each has its half, unless it needs less.
    assert one >= min(first, budget // 2)
    assert other >= min(second, budget // 2)


@pytest.mark.parametrize(
    ("first", "second", "shares"), [(10, 1000, (10, 90)), (1000, 10, (90, 10)), (1000, 1000, (50, 50))]
)
def test_what_one_stream_leaves_the_other_gets(first: int, second: int, shares: tuple[int, int]) -> None:
    assert share(100, first, second) == shares
