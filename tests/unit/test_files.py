"""What is no regular file is not read, keeps nobody waiting, and costs no descriptor."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.files import open_below, open_regular

if TYPE_CHECKING:
    from collections.abc import Callable


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


KINDS: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a socket": a_socket,
    "a link to a folder": lambda path: path.symlink_to("/"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("gone"),
    "nothing": lambda path: None,
}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def refused(opening: Callable[[], int]) -> None:
    """Check that nothing is opened, and nothing left open."""
    before = descriptors()
    with pytest.raises(OSError, match=r"."):
        opening()
    assert descriptors() == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "x")
    refused(lambda: open_regular(tmp_path / "x"))
    refused(lambda: open_below(str(tmp_path), "x"))


@pytest.mark.parametrize("link", ["root", "root/sub", "root/sub/file"])
def test_nothing_is_opened_through_a_link_whatever_it_leads_to(tmp_path: Path, link: str) -> None:
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "root/sub/file").write_text("text")
    os.close(open_below(f"{tmp_path}/root", "sub/file"))
    (tmp_path / link).rename(tmp_path / "moved")
    (tmp_path / link).symlink_to(tmp_path / "moved")
    assert (tmp_path / "root/sub/file").read_text() == "text"
    refused(lambda: open_below(f"{tmp_path}/root", "sub/file"))


@pytest.mark.parametrize("name", [b"\xff\n/file", os.fsdecode(b"\xff\n/file")])
def test_names_of_any_bytes_are_opened(tmp_path: Path, name: bytes | str) -> None:
    path = tmp_path / os.fsdecode(name)
    path.parent.mkdir()
    path.write_text("text")
    with os.fdopen(open_below(str(tmp_path), name)) as file:
        assert file.read() == "text"
