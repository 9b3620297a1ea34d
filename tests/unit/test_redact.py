from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.redact import RedactedStream, Redactor

SECRET = b"s3cr3t/Value+x=0123456789"
PEM = b"-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\nkiG9w0BAQEFAASC\n-----END KEY-----\n"


def streamed(redactor: Redactor, data: bytes, sizes: list[int]) -> bytes:
    stream, out, at = RedactedStream(redactor), b"", 0
    for size in [*sizes, len(data)]:
        out += stream.feed(data[at : at + size])
        at += size
    return out + stream.end(cut=False)


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        SECRET[::-1],
        SECRET.hex().encode(),
        SECRET.hex().upper().encode(),
        quote(SECRET, safe="").encode(),
        json.dumps({"key": SECRET.decode()}).encode(),
        *(base64.b64encode(b"x" * n + SECRET + b"y" * m) for n in range(3) for m in range(3)),
        *(base64.urlsafe_b64encode(b"x" * n + SECRET) for n in range(3)),
    ],
)
def test_every_stated_form_of_a_secret_is_taken_out(form: bytes) -> None:
    redacted = Redactor({"KEY": SECRET})(b"before " + form + b" after")
    assert b"[secret KEY]" in redacted
    assert redacted.startswith(b"before ")
    assert redacted.endswith(b" after")


def test_each_long_line_of_a_secret_is_taken_out_by_itself() -> None:
    redacted = Redactor({"PEM": PEM})(b"said: MIIEvQIBADANBgkqh!")
    assert redacted == b"said: [secret PEM]!"


@pytest.mark.parametrize("value", [b"", b"1", b"true", b"abcde"])
def test_a_short_secret_is_refused_rather_than_taken_out_of_everything(value: bytes) -> None:
    with pytest.raises(ConfigError, match="KEY"):
        Redactor({"KEY": value})


@given(st.lists(st.integers(1, 9), max_size=40), st.binary(max_size=30), st.binary(max_size=30))
def test_a_secret_split_across_chunks_is_taken_out(sizes: list[int], before: bytes, after: bytes) -> None:
    out = streamed(Redactor({"KEY": SECRET}), before + SECRET + after, sizes)
    assert SECRET not in out
    assert b"[secret KEY]" in out


@given(st.lists(st.integers(1, 3), max_size=60))
def test_of_secrets_that_contain_each_other_the_longer_one_goes_wherever_chunks_end(sizes: list[int]) -> None:
    redactor = Redactor({"SHORT": b"abcdef12", "LONG": b"abcdef1234"})
    assert streamed(redactor, b"<abcdef1234> <abcdef12>", sizes) == b"<[secret LONG]> <[secret SHORT]>"


@given(st.lists(st.integers(1, 3), max_size=60))
def test_a_secret_that_overlaps_the_beginning_of_another_is_taken_out(sizes: list[int]) -> None:
    redactor = Redactor({"ONE": b"xyzabcdef", "TWO": b"abcdefghi"})
    assert streamed(redactor, b"<xyzabcdef>", sizes) == b"<[secret ONE]>"


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=20))
def test_what_holds_no_secret_passes_unchanged(data: bytes, sizes: list[int]) -> None:
    redactor = Redactor({"KEY": SECRET})
    if not redactor.found_in(data):
        assert streamed(redactor, data, sizes) == data
    assert streamed(Redactor({}), data, sizes) == data


@pytest.mark.parametrize("kept", range(4, len(SECRET)))
def test_where_output_was_cut_in_a_secret_neither_half_is_left(kept: int) -> None:
    redactor = Redactor({"KEY": SECRET})
    assert redactor.cut_end(b"text " + SECRET[:kept]) == b"text [secret KEY]"
    assert redactor.cut_start(SECRET[-kept:] + b" text") == b"[secret KEY] text"
