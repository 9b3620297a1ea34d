"""What of a folder is to be hidden: found by name, by link, anew each time, and never missed for want of time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox import masks
from mcp_sandbox.config.settings import MASK
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.masks import Masks, Patterns, find_in


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret")


def hidden(folder: Path, *patterns: str, unmasked: tuple[str, ...] = ()) -> list[str]:
    return found_by(Masks(str(folder), patterns or MASK, unmasked), folder)


def found_by(finder: Masks, folder: Path) -> list[str]:
    return [each.path.removeprefix(f"{folder}/") + "/" * each.is_folder for each in finder.find()]


@pytest.mark.parametrize(
    ("pattern", "path", "is_folder", "meant"),
    [
        (".env*", ".env", False, True),
        (".env*", "a/b/.env.local", False, True),
        (".env*", "a.env", False, False),
        ("*.key", "SERVER.KEY", False, True),
        ("*.key", "key", False, False),
        (".ssh/", "a/.ssh", True, True),
        (".ssh/", "a/.ssh", False, False),
        (".docker/config.json", "a/.docker/config.json", False, True),
        (".docker/config.json", "docker/config.json", False, False),
        (".docker/config.json", "config.json", False, False),
        ("a/*/c", "x/a/b/c", False, True),
        ("a/*/c", "x/a/b/b/c", False, False),
        ("[ab].txt", "b.txt", False, True),
        ("*", "anything", False, True),
    ],
)
def test_a_pattern_means_names_at_any_depth(pattern: str, path: str, is_folder: bool, meant: bool) -> None:
    assert Patterns([pattern]).match(path, is_folder=is_folder) is meant


@given(
    st.lists(st.text("ab*?[]/.", min_size=1, max_size=6).filter(lambda text: text.strip("/")), max_size=4),
    st.text("ab.", min_size=1, max_size=6),
)
def test_many_patterns_mean_what_each_of_them_means(patterns: list[str], name: str) -> None:
    each = [Patterns([pattern]).match(name, is_folder=True) for pattern in patterns]
    assert Patterns(patterns).match(name, is_folder=True) is any(each)


def test_what_lies_in_a_hidden_folder_is_hidden_with_it(tmp_path: Path) -> None:
    put(tmp_path, ".ssh/id_rsa", ".ssh/deep/er/x.pem", "a/b.pem", "a/c.txt")
    assert hidden(tmp_path) == [".ssh/", "a/b.pem"]


def test_files_without_credentials_are_not_hidden(tmp_path: Path) -> None:
    put(
        tmp_path,
        "main.py",
        "environment.yml",
        "keys.md",
        "a/pem.txt",
        ".gitignore",
        "tokenizer.json",
        "secrets.py",
        "turkey",
    )
    assert hidden(tmp_path) == []


def test_what_is_shown_by_name_is_not_hidden(tmp_path: Path) -> None:
    put(tmp_path, "a/public.pem", "private.pem")
    assert hidden(tmp_path, "*.pem", unmasked=("a/public.pem",)) == ["private.pem"]
    assert hidden(tmp_path, "*.pem", unmasked=("*",)) == []


def test_what_a_link_of_that_name_leads_to_is_hidden(tmp_path: Path) -> None:
    put(tmp_path, "conf/prod", "drawer/x", "unrelated")
    (tmp_path / ".env").symlink_to("conf/prod")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/.ssh").symlink_to("../drawer")
    (tmp_path / ".npmrc").symlink_to("/etc/passwd")  # leads nowhere inside
    (tmp_path / ".netrc").symlink_to("gone")
    (tmp_path / "x.pem").symlink_to("x.pem")
    (tmp_path / "y.pem").symlink_to(".")
    assert hidden(tmp_path) == ["conf/prod", "drawer/"]


def test_every_hard_link_of_a_hidden_file_is_hidden(tmp_path: Path) -> None:
    put(tmp_path, ".env", "other")
    (tmp_path / "sub").mkdir()
    os.link(tmp_path / ".env", tmp_path / "sub/copy.txt")
    finder = Masks(str(tmp_path), MASK)
    assert found_by(finder, tmp_path) == [".env", "sub/copy.txt"]
    os.link(tmp_path / ".env", tmp_path / "later.txt")
    assert found_by(finder, tmp_path) == [".env", "later.txt", "sub/copy.txt"]


def test_every_hard_link_of_a_file_in_a_hidden_folder_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, ".ssh/deep/id", ".ssh/config", "other")
    os.link(tmp_path / ".ssh/deep/id", tmp_path / "notes.txt")
    finder = Masks(str(tmp_path), MASK)
    assert found_by(finder, tmp_path) == [".ssh/", "notes.txt"]
    os.link(tmp_path / ".ssh/config", tmp_path / "config.txt")
    assert found_by(finder, tmp_path) == [".ssh/", "config.txt", "notes.txt"]
    monkeypatch.setattr(masks, "MAX_KEYS", 1)
    assert found_by(finder, tmp_path) == [".ssh/"]


def test_a_file_that_is_hidden_in_one_folder_is_hidden_in_every_other_that_is_seen(tmp_path: Path) -> None:
    put(tmp_path, "a/.env", "b/plain.txt", "c/server.key")
    os.link(tmp_path / "a/.env", tmp_path / "b/linked.txt")
    os.link(tmp_path / "c/server.key", tmp_path / "a/linked.txt")
    finders = [Masks(str(tmp_path / name), MASK) for name in "abc"]
    found = [[each.path.removeprefix(f"{tmp_path}/") for each in hidden] for hidden in find_in(finders)]
    assert found == [["a/.env", "a/linked.txt"], ["b/linked.txt"], ["c/server.key"]]


@pytest.mark.parametrize(
    ("line", "is_hidden"),
    [
        ("url = https://me:token@example.com/x.git", True),
        ("url = https://ghp_abc@github.com/x.git", True),
        ("extraheader = AUTHORIZATION: basic eA==", True),
        ("smtppass = x", True),
        ("url = git@github.com:x/y.git", False),
        ("url = https://github.com/x/y.git", False),
    ],
)
@pytest.mark.parametrize("place", [".git/config", "sub/.git/config", ".git/modules/sub/config"])
def test_a_repositorys_settings_are_hidden_where_they_hold_a_credential(
    tmp_path: Path, place: str, line: str, is_hidden: bool
) -> None:
    put(tmp_path, place)
    (tmp_path / place).write_text(f"[x]\n\t{line}\n")
    finder = Masks(str(tmp_path), MASK)
    assert found_by(finder, tmp_path) == ([place] if is_hidden else [])
    (tmp_path / place).write_text(
        "[x]\n\turl = https://a:b@c\n"
    )  # its folder's time of change is what it was
    assert found_by(finder, tmp_path) == [place]


def test_settings_too_long_to_look_through_are_hidden(tmp_path: Path) -> None:
    put(tmp_path, ".git/config")
    (tmp_path / ".git/config").write_text("# comment\n" * 10_000)
    assert hidden(tmp_path) == [".git/config"]


def test_settings_that_are_a_folder_are_hidden_and_leave_nothing_open(tmp_path: Path) -> None:
    put(tmp_path, ".git/config/x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert hidden(tmp_path) == hidden(tmp_path) == [".git/config/"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def aged(folder: Path) -> None:
    """Let a folder look as if it had not changed for long."""
    for path in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
        os.utime(path, (1, 1))


def test_files_that_come_and_go_are_found_by_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "SETTLED_NS", 0)  # as if every folder had last changed long ago
    put(tmp_path, "a/b/c.txt", "d/e.txt")
    finder = Masks(str(tmp_path), MASK)
    assert found_by(finder, tmp_path) == []
    put(tmp_path, "a/b/.env")
    assert found_by(finder, tmp_path) == ["a/b/.env"]
    (tmp_path / "d/e.txt").rename(tmp_path / "d/e.pem")
    assert found_by(finder, tmp_path) == ["a/b/.env", "d/e.pem"]
    put(tmp_path, "new/folder/x.key")
    (tmp_path / "a/b/.env").unlink()
    assert found_by(finder, tmp_path) == ["d/e.pem", "new/folder/x.key"]
    (tmp_path / "new").rename(tmp_path / "moved")
    assert found_by(finder, tmp_path) == ["d/e.pem", "moved/folder/x.key"]


def test_a_file_that_took_anothers_place_is_told_from_it(tmp_path: Path) -> None:
    put(tmp_path, ".env")
    finder = Masks(str(tmp_path), MASK)
    seen = {finder.find()[0].identity}
    for _ in range(3):
        put(tmp_path, "new")
        (tmp_path / "new").rename(tmp_path / ".env")
        seen.add(finder.find()[0].identity)
    assert len(seen) == 4


def test_a_second_look_reads_no_folder_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        put(tmp_path, f"{number}/x.txt")
    monkeypatch.setattr(masks, "SETTLED_NS", 0)
    finder = Masks(str(tmp_path), MASK)
    finder.find()
    scandir, read = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda path: read.append(path) or scandir(path))
    finder.find()
    assert read == []
    put(tmp_path, "7/.env")
    finder.find()
    assert read == [f"{tmp_path}/7"]


def test_a_folder_that_changed_just_now_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a/x.txt")
    finder = Masks(str(tmp_path), MASK)
    finder.find()
    scandir, read = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda path: read.append(path) or scandir(path))
    finder.find()
    assert len(read) == 2


def test_a_folder_that_cannot_be_looked_into_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "open/x.txt", "shut/.env")
    scandir = os.scandir

    def shut(path: str) -> object:
        if path.endswith("/shut"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", shut)
    assert hidden(tmp_path) == ["shut/"]


def test_a_workspace_that_cannot_be_looked_into_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shut(path: str) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", shut)
    with pytest.raises(RequestRefused, match="cannot be read: permission denied"):
        hidden(tmp_path)


@pytest.mark.parametrize(("bound", "value"), [("MAX_ENTRIES", 50), ("MAX_SECONDS", -1.0)])
def test_what_is_too_much_to_look_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: float
) -> None:
    put(tmp_path, *(f"{number}/x" for number in range(60)))
    monkeypatch.setattr(masks, bound, value)
    with pytest.raises(RequestRefused, match="too many files to look for") as caught:
        hidden(tmp_path)
    assert "smaller folder" in caught.value.next_step


def test_a_name_that_no_engine_can_be_told_is_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.pem")).write_text("secret")
    with pytest.raises(RequestRefused, match="not UTF-8"):
        hidden(tmp_path)
