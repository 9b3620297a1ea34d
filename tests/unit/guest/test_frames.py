"""Bytes from inside: frames of our agent's, or a violation; never anything between, and never much memory."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import asdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_sandbox.guest.protocol import (
    MAX_NUMBER,
    MAX_PAYLOAD,
    NO_ARTIFACTS,
    Frame,
    FrameReader,
    Kind,
    ProtocolViolation,
    decode_artifact,
    decode_done,
    decode_end,
    decode_failed,
    decode_hello,
    decode_refusal,
    encode_request,
)
from tests.fakes import Guest

TOKEN = bytes(range(1, 17))
START = Guest.frame(Guest.NO_TOKEN, b"h", b"protocol 1\n") + Guest.frame(Guest.NO_TOKEN, b"s", b"")
RUNNING = sorted(set(Kind) - {Kind.HELLO, Kind.STARTED, Kind.FAILED}, key=lambda kind: kind.value)

running_frames = st.lists(st.builds(Frame, st.sampled_from(RUNNING), st.binary(max_size=300)), max_size=8)


def encoded(frames: list[Frame], token: bytes = TOKEN) -> bytes:
    return b"".join(Guest.frame(token, frame.kind.value, frame.payload) for frame in frames)


def whole(reader: FrameReader) -> list[Frame]:
    frames = []
    while frame := reader.next_frame():
        frames.append(frame)
    return frames


def started() -> FrameReader:
    reader = FrameReader(TOKEN)
    reader.feed(START)
    assert [frame.kind for frame in whole(reader)] == [Kind.HELLO, Kind.STARTED]
    return reader


@given(running_frames, st.data())
def test_however_frames_are_cut_they_come_out_the_same(frames: list[Frame], data: st.DataObject) -> None:
    stream = START + encoded(frames)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=20)))
    reader = FrameReader(TOKEN)
    out = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        out += whole(reader)
    assert out == [Frame(Kind.HELLO, b"protocol 1\n"), Frame(Kind.STARTED, b""), *frames]


@given(running_frames, st.binary(min_size=21, max_size=60))
def test_what_follows_true_frames_does_not_change_them(frames: list[Frame], garbage: bytes) -> None:
    reader = started()
    reader.feed(encoded(frames) + garbage)
    assert [reader.next_frame() for _ in frames] == frames
    with pytest.raises(ProtocolViolation):
        reader.next_frame()


@given(st.lists(st.binary(max_size=100), max_size=10))
@example([START, TOKEN + b"o\xff\xff\xff\xff"])
@example([START, TOKEN + b"o\0\0\0"])
def test_any_bytes_are_frames_or_a_violation(pieces: list[bytes]) -> None:
    reader = FrameReader(TOKEN)
    fed = 0
    try:
        for piece in pieces:
            reader.feed(piece)
            fed += len(piece)
            frames = whole(reader)
            assert sum(len(frame.payload) for frame in frames) <= fed
    except ProtocolViolation:
        with pytest.raises(ProtocolViolation):  # and so it stays
            reader.next_frame()


@pytest.mark.parametrize("length", [MAX_PAYLOAD + 1, 1 << 31, 0xFFFFFFFF])
def test_a_frame_too_large_is_refused_before_any_of_it_is_kept(length: int) -> None:
    reader = started()
    reader.feed(TOKEN + b"o" + struct.pack(">I", length))
    with pytest.raises(ProtocolViolation, match="larger than any"):
        reader.next_frame()


def test_the_largest_frame_is_taken() -> None:
    reader = started()
    reader.feed(encoded([Frame(Kind.STDOUT, b"x" * MAX_PAYLOAD)]))
    assert whole(reader) == [Frame(Kind.STDOUT, b"x" * MAX_PAYLOAD)]


def test_a_flood_does_not_grow() -> None:
    flood = encoded([Frame(Kind.STDOUT, b"x" * 1000)] * 250)
    reader = started()
    tracemalloc.start()
    try:
        for _ in range(200):
            reader.feed(flood)
            while reader.next_frame():
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(flood)


@pytest.mark.parametrize("kind", list(Kind))
def test_only_a_greeting_comes_first(kind: Kind) -> None:
    reader = FrameReader(TOKEN)
    reader.feed(Guest.frame(Guest.NO_TOKEN, kind.value, b""))
    if kind is Kind.HELLO:
        assert reader.next_frame() == Frame(Kind.HELLO, b"")
    else:
        with pytest.raises(ProtocolViolation, match="out of turn"):
            reader.next_frame()


@pytest.mark.parametrize("kind", list(Kind))
def test_only_a_start_or_its_failure_comes_after_the_greeting(kind: Kind) -> None:
    reader = FrameReader(TOKEN)
    reader.feed(Guest.frame(Guest.NO_TOKEN, b"h", b"") + Guest.frame(Guest.NO_TOKEN, kind.value, b""))
    assert reader.next_frame() == Frame(Kind.HELLO, b"")
    if kind in (Kind.STARTED, Kind.FAILED):
        assert reader.next_frame() == Frame(kind, b"")
    else:
        with pytest.raises(ProtocolViolation, match="out of turn"):
            reader.next_frame()


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.STARTED, Kind.FAILED])
def test_nothing_starts_twice(kind: Kind) -> None:
    reader = started()
    reader.feed(encoded([Frame(kind, b"")]))
    with pytest.raises(ProtocolViolation, match="out of turn"):
        reader.next_frame()


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("token", [Guest.NO_TOKEN, TOKEN[::-1], TOKEN[:-1] + b"\0"])
def test_once_the_program_runs_nothing_is_believed_without_the_token(kind: Kind, token: bytes) -> None:
    reader = started()
    reader.feed(encoded([Frame(kind, b"")], token))
    with pytest.raises(ProtocolViolation, match="without the run's token"):
        reader.next_frame()


def test_the_token_is_no_greeting() -> None:
    reader = FrameReader(TOKEN)
    reader.feed(Guest.frame(TOKEN, b"h", b"protocol 1\n"))
    with pytest.raises(ProtocolViolation):
        reader.next_frame()


@given(st.integers(0, 255).filter(lambda value: bytes([value]) not in {kind.value for kind in Kind}))
def test_kinds_are_a_closed_set(kind: int) -> None:
    reader = started()
    reader.feed(Guest.frame(TOKEN, bytes([kind]), b""))
    with pytest.raises(ProtocolViolation, match="unknown kind"):
        reader.next_frame()


def end(**changes: object) -> bytes:
    return Guest.fields(**{**Guest.END, **changes})


def test_the_account_of_an_end_is_taken_as_told() -> None:
    told = decode_end(end(exit_code=None, signal=9, oom_kills=None, duration_ns=MAX_NUMBER, stdout_lines=7))
    assert asdict(told) == {
        "reason": "exited",
        "exit_code": None,
        "signal": 9,
        "stdout": 0,
        "stderr": 0,
        "duration_ns": MAX_NUMBER,
        "cpu_us": 12_000,
        "peak_bytes": 9 << 20,
        "oom_kills": None,
        "stdout_lines": 7,
        "stderr_lines": None,
    }


@pytest.mark.parametrize("name", ["reason", "stdout", "stderr", "duration_ns", "cpu_us", "peak_bytes"])
def test_an_account_lacks_nothing(name: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode_end(end(**{name: None}))


@pytest.mark.parametrize(
    "number",
    [
        "",
        "-1",
        "+1",
        "1.0",
        "1e3",
        "0x10",
        "1_000",
        " 1",
        "1 ",
        "NaN",
        str(MAX_NUMBER + 1),
        "9" * 19,
        "9" * 5000,
        "\N{SUPERSCRIPT TWO}",
        "\N{ARABIC-INDIC DIGIT ONE}",
    ],
)
def test_numbers_are_decimal_and_bounded(number: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode_end(end(exit_code=number))


@pytest.mark.parametrize(
    "payload",
    [
        end() + b"exit_code 1\n",
        end(__class__="x"),
        end(reason="exited "),
        end(reason="timed_out"),
        end() + b"\n",
        end() + b"\xff 1\n",
        b"reason exited",
        b"",
    ],
)
def test_an_account_that_is_none_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_end(payload)


def test_a_greeting_names_protocol_and_python() -> None:
    assert decode_hello(b"protocol 1\npython 3.8.10\n") == "3.8.10"
    assert len(decode_hello(b"protocol 1\npython " + b"3" * 1000)) <= 32
    for other in (
        b"",
        b"protocol 2\n",
        b"python 3.11.2\n",
        b"protocol 1\nprotocol 1\n",
        b"protocol 1\nos x\n",
    ):
        with pytest.raises(ProtocolViolation):
            decode_hello(other)


@given(st.binary(max_size=200))
@example(b"file 1\nerrno 28\n")
@example(b"5 path")
@example(b"link path")
@example(b"refused 3\n")
def test_any_payload_is_understood_or_a_violation(payload: bytes) -> None:
    for decode in (decode_end, decode_hello, decode_artifact, decode_refusal, decode_done, decode_failed):
        said = ""
        try:
            decode(payload)
        except ProtocolViolation as violation:
            said = str(violation)
        # In our own words alone: it becomes part of what a model reads.
        assert said.isascii()
        assert len(said) < 120


def test_a_request_does_not_depend_on_what_its_code_holds() -> None:
    code, stdin = b"\n\ncode 5\nlanguage shell\n\n", b"\n\n\0\xff"
    frame = encode_request(
        language="python",
        code=code,
        stdin=stdin,
        token=TOKEN,
        head=1,
        tail=2,
        deadline_ms=3,
        seekable=False,
        artifacts=NO_ARTIFACTS,
    )
    kind, length = frame[:1], struct.unpack(">I", frame[1:5])[0]
    assert (kind, length) == (b"R", len(frame) - 5)
    header, _, body = frame[5:].partition(b"\n\n")
    assert body == code + stdin
    assert f"code {len(code)}".encode() in header.splitlines()
    assert TOKEN.hex().encode() in header
