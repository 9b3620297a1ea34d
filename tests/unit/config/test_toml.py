"""Lines are told truthfully, and no file keeps the reader busy or brings it down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_sandbox.config.toml import MAX_FILE_SIZE, parse, read_bytes
from mcp_sandbox.errors import ConfigError

TRICKY = '''\
# comment with [server] in it

[defaults] # not [x]
image = "has = sign and # hash"
runtime = """
memory = "not a key"
[workspaces.not-a-table]
"""
memory = "1GiB"
  "cpus"   = 2
[workspaces]
a.path = "/a"
a.memory = "2GiB"
[workspaces.b]
list = [
  "memory = 3", # ]
  [1],
]
path = \'\'\'/b\'\'\'
[workspaces."c.d"]
path = "/c"
[engine]
host = { x = 1 }
'''


@pytest.mark.parametrize(
    ("key_path", "line"),
    [
        (("defaults",), 3),
        (("defaults", "image"), 4),
        (("defaults", "runtime"), 5),
        (("defaults", "memory"), 9),
        (("defaults", "cpus"), 10),
        (("workspaces",), 11),
        (("workspaces", "a"), 12),
        (("workspaces", "a", "memory"), 13),
        (("workspaces", "b"), 14),
        (("workspaces", "b", "list"), 15),
        (("workspaces", "b", "path"), 19),
        (("workspaces", "c.d", "path"), 21),
        (("engine", "host", "x"), 23),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_key_is_found_on_its_line(key_path: tuple[str, ...], line: int, newline: str) -> None:
    assert parse(TRICKY.replace("\n", newline).encode(), "f").line(*key_path) == line


def test_a_missing_key_is_told_by_the_line_of_its_table() -> None:
    assert parse(b"\n[defaults]\ncpus = 1\n", "f").line("defaults", "memory") == 2


def test_a_line_that_cannot_be_told_is_not_made_up() -> None:
    document = parse(b"cpus = 1\nlist = [\n" + b"1,\n" * 50 + b"]\nmemory = 1\n", "f")
    assert document.line("cpus") == 1
    assert document.line("memory") is None


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"[defaults]\nmemory = \n", "f, line 2: column 10: not valid TOML: "),
        (b"[defaults]\nmemory = 1\nmemory = 2\n", "f, line 3: column "),
        (b'[defaults]\nimage = """\n\n', "f, line 2: column "),
        (b"[defaults]\nimage = \xff\n", "f, line 2: not valid UTF-8"),
        (b"[defaults]\nimage = \x00\n", "f, line 2: column 9: not valid TOML: "),
    ],
)
def test_what_is_not_toml_is_told_by_line_and_column(content: bytes, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(content, "f")
    assert where in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"a" + b".a" * 30_000 + b" = 1",  # tomllib's time grows with the square of the parts
        b"x = " + b"[" * 5_000,
        b"[" * 60_000,
        b"x = " + b"{a=" * 300 + b"1" + b"}" * 300,
        b"x = " + b"[" * 500 + b"]" * 500,
        b"x = " + b"1" * 5_000,
        b"x = '\x1b[2J'",
    ],
)
def test_a_file_made_to_break_the_reader_is_refused_in_one_clean_line(content: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(content, "f")
    assert str(caught.value).isprintable()


def test_a_byte_order_mark_is_not_part_of_the_first_key() -> None:
    assert parse(b"\xef\xbb\xbfcpus = 1", "f").table == {"cpus": 1}


def test_a_fifo_does_not_hang_the_reader(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_bytes(fifo)


def test_a_device_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        read_bytes(Path("/dev/zero"))


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"#" * (MAX_FILE_SIZE + 1))
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        read_bytes(file)


def test_a_link_to_nothing_is_not_taken_for_no_file(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError, match="symbolic link to nothing"):
        read_bytes(link)


def test_a_name_with_a_nul_is_an_error_in_words() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_bytes(Path("a\0b"))
