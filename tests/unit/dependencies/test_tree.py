"""What comes out of the sandbox that installed is hostile: it becomes a plain build context, or nothing."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_sandbox.dependencies.tree import Tree
from mcp_sandbox.errors import PackagesUnavailable
from tests.full_disk import files_of_at_most

if TYPE_CHECKING:
    from pathlib import Path

BASE = "sha256:" + "0" * 64
PYTHON = b"/usr/bin/python3.11"


def take(
    folder: Path, entries: bytes, *files: tuple[bytes, bytes]
) -> dict[str, tuple[bytes, int, bytes, str]]:
    """Return what a tree makes of these: name to kind, mode, content and link."""
    tree = Tree(folder, BASE, {"io.mcp-sandbox.layer": "k"})
    try:
        for path, content in ((b"entries", entries), *files):
            tree.begin(path, len(content))
            for start in range(0, len(content), 700):
                tree.write(content[start : start + 700])
        with tarfile.open(fileobj=tree.finish()) as archive:
            found = {}
            for entry in archive:
                file = archive.extractfile(entry) if entry.isfile() else None
                found[entry.name] = (entry.type, entry.mode, file.read() if file else b"", entry.linkname)
            return found
    finally:
        tree.close()


def test_files_keep_names_contents_and_what_may_be_run(tmp_path: Path) -> None:
    long = "deep/" * 60 + "file.py"
    entries = b"\0".join([PYTHON, b"644 a.py", b"755 bin/tool", f"644 {long}".encode(), b""])
    found = take(
        tmp_path,
        entries,
        (b"files/000000", b"x" * 1500),
        (b"files/000001", b""),
        (b"files/000002", b"y" * 512),
    )
    assert found["environment/a.py"] == (tarfile.REGTYPE, 0o644, b"x" * 1500, "")
    assert found["environment/bin/tool"][:3] == (tarfile.REGTYPE, 0o755, b"")
    assert found[f"environment/{long}"][2] == b"y" * 512
    assert found["environment/bin/python3"][::3] == (tarfile.SYMTYPE, "/usr/bin/python3.11")
    assert found["environment/bin"][:2] == (tarfile.DIRTYPE, 0o755)
    recipe = found["Dockerfile"][2].decode()
    assert recipe.splitlines()[0] == f"FROM {BASE}"
    assert "RUN" not in recipe
    assert not list(tmp_path.iterdir())


def refused(folder: Path, entries: bytes, *files: tuple[bytes, bytes]) -> str:
    with pytest.raises(PackagesUnavailable) as raised:
        take(folder, entries, *files)
    assert not list(folder.iterdir())
    return raised.value.message


ONE = (b"files/000000", b"x")


@pytest.mark.parametrize(
    "record",
    [
        b"644 ../Dockerfile",
        b"644 /etc/passwd",
        b"644 a/../../b",
        b"644 ",
        b"644 a//b",
        b"644 a\nRUN b",
        b"644 \xff",
        b"644 a\\b",
        b"4755 bin/tool",
        b"777 a",
        b"a.py",
        b"644 bin/python3",
        b"644 " + b"n" * 300,
    ],
)
def test_a_name_or_mode_that_none_may_have_ends_it(tmp_path: Path, record: bytes) -> None:
    assert "a name or a mode that none may have" in refused(tmp_path, PYTHON + b"\0" + record + b"\0", ONE)


@pytest.mark.parametrize(
    "entries",
    [
        b"",
        PYTHON,
        PYTHON + b"\x00644 a.py",
        b"\x00644 a.py\0",
        b"python\x00644 a.py\0",
        b"/usr/bin/python3\nRUN x\x00644 a.py\0",
    ],
)
def test_without_a_proper_list_there_is_nothing(tmp_path: Path, entries: bytes) -> None:
    assert "is no installation" in refused(tmp_path, entries, ONE)


@pytest.mark.parametrize(
    "files",
    [
        [],
        [(b"files/000001", b"x")],
        [ONE, ONE],
        [ONE, (b"files/000001", b"x")],
        [(b"entries", PYTHON + b"\x00644 b\0"), ONE],
        [(b"../x", b"x")],
    ],
)
def test_files_that_were_not_announced_end_it(tmp_path: Path, files: list[tuple[bytes, bytes]]) -> None:
    assert "is no installation" in refused(tmp_path, PYTHON + b"\x00644 a.py\0", *files)


def test_a_file_that_was_kept_back_ends_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path, BASE, {})
    tree.refused(b"files/000000", "too_large")
    with pytest.raises(PackagesUnavailable, match="not all files came out: too large"):
        tree.finish()
    tree.close()


@pytest.mark.parametrize("size", [1, 200_000], ids=["found at the end", "found as it is written"])
def test_a_disk_that_is_full_is_told_as_that(tmp_path: Path, size: int) -> None:
    with files_of_at_most(1000), pytest.raises(PackagesUnavailable, match="file too large") as raised:
        take(tmp_path, PYTHON + b"\x00644 a\x00", (b"files/000000", b"x" * size))
    assert "Make room" in str(raised.value)


def test_the_same_name_twice_ends_it(tmp_path: Path) -> None:
    assert "none may have" in refused(
        tmp_path, PYTHON + b"\x00644 a\x00644 a\0", ONE, (b"files/000001", b"x")
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from([b"entries", b"files/000000", b"x"]), st.binary(max_size=60)), max_size=6
    )
)
def test_whatever_comes_no_name_leaves_the_folder(tmp_path: Path, files: list[tuple[bytes, bytes]]) -> None:
    try:
        found = take(tmp_path, PYTHON + b"\x00644 a\0", *files)
    except PackagesUnavailable:
        return
    assert all(name == "Dockerfile" or name.split("/")[0] == "environment" for name in found)
