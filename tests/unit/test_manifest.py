"""What the record says that a workspace held."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox import manifest
from mcp_sandbox.manifest import ManifestTaker, Patience, changes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose files have been there a while: what is new may change within its time stamp's grain."""
    for name, text in (("a.txt", "one"), ("inner/b.txt", "two"), ("inner/deep/c.txt", "three")):
        path = tmp_path / "ws" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "ws"


def take(folder: Path, hidden: frozenset[str] = frozenset()) -> manifest.Manifest:
    return ManifestTaker(str(folder)).take(hidden)


def paths(taken: manifest.Manifest) -> list[str]:
    return [json.loads(line)[0] for line in taken.lines.splitlines()]


def test_every_file_is_listed_with_its_size_and_hash(folder: Path) -> None:
    taken = take(folder)
    entries = {path: (size, digest) for path, size, _, digest in map(json.loads, taken.lines.splitlines())}
    assert set(entries) == {"a.txt", "inner/b.txt", "inner/deep/c.txt"}
    assert entries["a.txt"] == (3, hashlib.sha256(b"one").hexdigest())
    assert taken.facts() == {"sha256": taken.digest, "files": 3, "hashed": 3, "complete": True}


def test_the_same_folder_gives_the_same_digest(folder: Path) -> None:
    assert take(folder).digest == take(folder).digest


def test_what_is_hidden_from_runs_is_neither_named_nor_hashed(folder: Path) -> None:
    (folder / ".env").write_text("TOKEN=hunter2")
    hidden = frozenset({f"{folder}/.env", f"{folder}/inner"})
    taken = take(folder, hidden)
    assert paths(taken) == ["a.txt"]


def test_links_are_listed_and_not_followed(folder: Path) -> None:
    (folder / "out").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    entries = {path: digest for path, _, _, digest in map(json.loads, take(folder).lines.splitlines())}
    assert entries["out"] is None
    assert entries["loop"] is None
    assert len(entries) == 5


def test_a_pipe_does_not_hold_it_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert "pipe" in paths(take(folder))


def test_names_that_are_no_text_are_listed(folder: Path) -> None:
    (folder / os.fsdecode(b"\xff\n")).write_text("odd")
    assert len(paths(take(folder))) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "a.txt").write_text("ONE"), ["a.txt: other content"]),
        (lambda folder: (folder / "a.txt").unlink(), ["a.txt: gone"]),
        (lambda folder: (folder / "new").write_text(""), ["new: new"]),
        (lambda folder: (folder / "a.txt").chmod(0o755), ["a.txt: mode 100644 then, 100755 now"]),
    ],
)
def test_each_change_is_told_as_what_it_is(folder: Path, change: object, said: list[str]) -> None:
    (folder / "a.txt").chmod(0o644)
    before = take(folder).lines
    change(folder)  # type: ignore[operator]
    assert changes(before, take(folder).lines) == said


def test_a_file_that_changed_is_hashed_again_though_size_and_time_are_the_same(folder: Path) -> None:
    taker = ManifestTaker(str(folder))
    file = folder / "a.txt"
    before = taker.take().lines
    status = file.stat()
    file.write_text("ONE")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert changes(before, taker.take().lines) == ["a.txt: other content"]


def test_more_files_than_are_listed_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MAX_FILES", 2)
    taken = take(folder)
    assert (taken.files, taken.complete) == (2, False)


def test_what_was_too_large_to_hash_is_said_and_a_change_of_size_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "MAX_HASHED_BYTES", 4)
    taken = take(folder)
    assert taken.hashed < taken.files
    (folder / "inner/deep/c.txt").write_text("three and more")
    assert changes(taken.lines, take(folder).lines) == ["inner/deep/c.txt: 5 bytes then, 14 now"]


# While somebody waits


def test_the_end_of_the_run_is_soon_the_end_of_the_listing_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "AFTER_SECONDS", -1.0)
    patience = Patience()
    assert ManifestTaker(str(folder)).take(patience=patience).complete
    patience.run_ended()
    taken = ManifestTaker(str(folder)).take(patience=patience)
    assert (taken.files, taken.complete) == (0, False)


def test_what_there_was_no_time_to_hash_is_hashed_by_the_next_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "FRESH_SECONDS", 0)
    for path in folder.rglob("*.txt"):
        os.utime(path, (0, 0))
    taker = ManifestTaker(str(folder))
    few = Few(looks=5)  # one for each file that is listed, two for one that is hashed
    taken = taker.take(patience=few)
    assert (taken.files, taken.hashed, taken.complete) == (3, 1, True)
    taken = taker.take(patience=Few(looks=7))
    assert (taken.files, taken.hashed) == (3, 3)


class Few(Patience):
    """Patience for so many looks at the clock."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def is_over(self, began: float) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_of_incomplete_manifests_only_files_that_both_name_are_compared(folder: Path) -> None:
    before = take(folder).lines
    (folder / "a.txt").write_text("other")
    (folder / "new").write_text("")
    (folder / "inner/b.txt").unlink()
    assert changes(before, take(folder).lines, complete=False) == ["a.txt: other content"]
