"""A program is read from a FIFO, which cannot be sought in: that must never show."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tokenize
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.guest.session import Program, needs_seekable_source

if TYPE_CHECKING:
    from pathlib import Path

PRINT = "print('e\N{LATIN SMALL LETTER E WITH ACUTE}')\n"

SOURCES = {
    "nothing": "",
    "no cookie": PRINT,
    "utf-8": "# coding: utf-8\n" + PRINT,
    "utf8": "# coding: utf8\n" + PRINT,
    "u8": "# coding: u8\n" + PRINT,
    "upper case": "# coding: UTF-8\n" + PRINT,
    "underscore": "# coding: utf_8\n" + PRINT,
    "signature": "# coding: utf-8-sig\n" + PRINT,
    "emacs": "# -*- coding: utf-8-unix -*-\n" + PRINT,
    "vim": "# vim: set fileencoding=latin-1 :\n" + PRINT,
    "latin-1": "# coding: latin-1\n" + PRINT,
    "second line": "#!/usr/bin/python3\n# coding: latin-1\n" + PRINT,
    "second line after a blank one": "\n# coding: latin-1\n" + PRINT,
    "second line after code": "pass\n# coding: latin-1\n" + PRINT,
    "third line": "\n\n# coding: latin-1\n" + PRINT,
    "second line, carriage returns": "#\r\n# coding: latin-1\r\n" + PRINT,
    "second line, old line ends": "#\r# coding: latin-1\r" + PRINT,
    "far into a long line": "#" + " " * 10_000 + "coding: latin-1\n" + PRINT,
    "after a long line": "#" + " " * 10_000 + "\n# coding: latin-1\n" + PRINT,
    "in a string": "'# coding: latin-1'\n" + PRINT,
    "unknown": "# coding: never-heard-of\n" + PRINT,
    "byte order mark": "\ufeff" + PRINT,
    "byte order mark and utf-8": "\ufeff# coding: utf-8\n" + PRINT,
    "byte order mark and latin-1": "\ufeff# coding: latin-1\n" + PRINT,
    "syntax error": "# coding: utf-8\nprint(\n",
}

PIECES = [
    b"#",
    b"coding",
    b":",
    b"=",
    b" ",
    b"\t",
    b"\f",
    b"\n",
    b"\r",
    b"\r\n",
    b"-*-",
    b"# coding: ",
    b"pass",
]
PIECES += [b"utf-8", b"utf8", b"UTF_8", b"utf-8-x", b"latin-1", b"ascii", b"cp1252", b"\xef\xbb\xbf", b"\0"]


def needs(code: bytes, language: str = "python") -> bool:
    program = Program(language=language, code=code, timeout_seconds=1, head_bytes=1, tail_bytes=1)  # type: ignore[arg-type]
    return needs_seekable_source(program)


def run_python(path: Path, feed: bytes | None = None) -> tuple[int, bytes, bytes]:
    """Run a program by its name, fed as the agent does where that is a FIFO; return exit code and output."""
    process = subprocess.Popen(
        [sys.executable, path.name],
        cwd=path.parent,
        env={"PYTHONIOENCODING": "utf-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if feed is not None:
        with path.open("wb", buffering=0) as fifo:
            # For its messages Python reads the source again, by name: by then that is a file.
            path.with_name("new").write_bytes(feed)
            path.with_name("new").replace(path)
            fifo.write(feed)
    stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout, stderr


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_what_is_read_from_a_fifo_runs_as_from_a_file(source: str, tmp_path: Path) -> None:
    code = source.encode()
    if needs(code):
        return  # it will be read from a file
    (tmp_path / "file").mkdir()
    (tmp_path / "fifo").mkdir()
    as_file, as_fifo = tmp_path / "file/main.py", tmp_path / "fifo/main.py"
    as_file.write_bytes(code)
    os.mkfifo(as_fifo)
    expected = run_python(as_file)
    exit_code, stdout, stderr = run_python(as_fifo, code)
    assert (exit_code, stdout, stderr.replace(b"/fifo/", b"/file/")) == expected


@pytest.mark.parametrize(
    "name", ["nothing", "no cookie", "utf-8", "upper case", "byte order mark", "third line"]
)
def test_ordinary_programs_are_read_from_the_fifo(name: str) -> None:
    assert not needs(SOURCES[name].encode())


@pytest.mark.parametrize("name", ["utf8", "latin-1", "vim", "second line", "after a long line", "unknown"])
def test_programs_in_another_encoding_are_read_from_a_file(name: str) -> None:
    assert needs(SOURCES[name].encode())


def test_a_shell_command_has_no_encoding() -> None:
    assert not needs(b"# coding: latin-1\necho", language="shell")


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=5), max_size=12).map(b"".join))
def test_what_python_finds_declared_is_never_missed(code: bytes) -> None:
    lines = code.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        declared, _ = tokenize.detect_encoding(io.BytesIO(lines).readline)
    except SyntaxError:
        return  # it runs nowhere
    if declared not in ("utf-8", "utf-8-sig"):
        assert needs(code)


@given(st.text(max_size=200).filter(lambda text: "coding" not in text))
def test_text_that_declares_nothing_is_read_from_the_fifo(text: str) -> None:
    assert not needs(text.encode("utf-8", "ignore"))
