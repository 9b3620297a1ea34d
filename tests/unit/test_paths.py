"""Which paths may cross the border of a sandbox, on the way in and on the way out."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.artifacts import mime_type, readable_path
from mcp_sandbox.paths import MAX_NAME_BYTES, MAX_PATH_BYTES, is_plain_path

PLAIN = [
    "a",
    "plot.png",
    "a/b/c.txt",
    ".hidden",
    "...",
    "..a/b..",
    "with space",
    "日本語/한국어.csv",
    "é",
    "-rf",
    "~",
    "C:",
    "x" * MAX_NAME_BYTES,
    "/".join("d" * 40),
]
TRICKS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../a",
    "a/..",
    "a/../b",
    ".",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "a\\b",
    "..\\a",
    "a\nb",
    "a\tb",
    "a\0b",
    "a\x1b[31mb",
    "a\x7fb",
    "a\x85b",
    "a\u202egpj.exe",
    "a\u200bb",
    "a\ufeffb",
    "a\u2028b",
    "\ud800",
    "x" * (MAX_NAME_BYTES + 1),
    "é" * 128,
    "/".join(["abcdefgh"] * 114),
]


@pytest.mark.parametrize("path", PLAIN)
def test_an_ordinary_path_is_taken(path: str) -> None:
    assert is_plain_path(path)
    assert readable_path(path.encode()) == path


@pytest.mark.parametrize("path", TRICKS)
def test_a_path_that_leaves_the_folder_or_cannot_be_shown_is_not(path: str) -> None:
    assert not is_plain_path(path)
    assert readable_path(path.encode("utf-8", "surrogatepass")) is None


@given(st.text(max_size=40))
def test_whatever_is_taken_stays_below_where_it_starts(path: str) -> None:
    if is_plain_path(path):
        assert posixpath.normpath(posixpath.join("/start", path)) == f"/start/{path}"
        assert path.isprintable()
        assert len(path.encode()) <= MAX_PATH_BYTES


@given(st.binary(max_size=60))
def test_any_bytes_become_a_path_that_is_taken_or_nothing(path: bytes) -> None:
    name = readable_path(path)
    assert name is None or (is_plain_path(name) and name.encode() == path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("plot.png", "image/png"),
        ("PLOT.PNG", "image/png"),
        ("photo.jpeg", "image/jpeg"),
        ("x.webp", "image/webp"),
        ("x.gif", "image/gif"),
        ("drawing.svg", "image/svg+xml"),
        ("table.csv", "text/csv"),
        ("page.html", "text/html"),
        ("notes.txt", "text/plain"),
        ("data.json", "application/json"),
        ("archive.tar.gz", "application/octet-stream"),
        ("no-ending", "application/octet-stream"),
        (".png", "application/octet-stream"),
    ],
)
def test_a_files_type_is_told_by_its_name_alone(name: str, kind: str) -> None:
    assert mime_type(name) == kind
