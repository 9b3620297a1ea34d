from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.config.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("1GB", 10**9),
        ("64kb", 64_000),
        ("64kib", 65_536),
        ("0B", 0),
        (4096, 4096),
    ],
)
def test_a_size_is_read_in_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "512",
        "512m",
        "1G",
        "",
        "MiB",
        "-1MiB",
        "1e3MiB",
        "1MiB ",
        "1 MiBs",
        "0.5B",
        "٣MiB",
        "1" * 5000 + "B",
        1.5,
        True,
        None,
        [],
    ],
)
def test_what_is_no_size_or_could_mean_two_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**50 - 1))
def test_a_written_size_reads_back_as_the_same_bytes(size: int) -> None:
    assert parse_size(format_size(size)) == size
