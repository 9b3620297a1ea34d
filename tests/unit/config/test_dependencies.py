"""Which packages a workspace's programs find, as a file says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.unit.config.conftest import User


def test_a_lock_is_looked_for_in_the_workspaces_folder(user: User) -> None:
    folder = user.home / "papers"
    folder.mkdir()
    user.write('[workspaces.w]\npath = "~/papers"\n[workspaces.w.dependencies]\nlock = "locks/uv.lock"\n')
    configuration = user.load(workspace="w")
    assert configuration.policy.dependencies.lock == str(folder / "locks" / "uv.lock")
    assert configuration.sources["dependencies"].endswith("line 3 [workspaces.w]")


@pytest.mark.parametrize("lock", ["~/x.lock", "/etc/x.lock"])
def test_a_lock_may_lie_elsewhere_by_its_whole_path(user: User, lock: str) -> None:
    user.write(f'[workspaces.w.dependencies]\nlock = "{lock}"\n')
    assert user.load(workspace="w").policy.dependencies.lock == lock.replace("~", str(user.home))


def test_nothing_is_installed_and_no_program_may_ask_where_nothing_is_said(user: User) -> None:
    user.write('[workspaces.w]\nmemory = "2GiB"\n')
    dependencies = user.load(workspace="w").policy.dependencies
    assert (dependencies.lock, dependencies.inline, dependencies.source_builds) == ("", "deny", "deny")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('lock = "x.lock"', "the workspace has no folder"),
        ('lock = ""\ninline = "allow"', "needs `inline_names`"),
        ('inline_names = ["evil; rm"]', "must hold names of packages"),
        ('index = "https://user:secret@index.example/simple"', "without user name and password"),
        ('index = "ftp://index.example"', "must be an address such as"),
        ('allow = ["*"]', "allows everything"),
        ('size_limit = "1MiB"', "must be between"),
        ("source_builds = true", 'must be "deny" or "allow"'),
        ('locks = "x"', "did you mean `lock`?"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(user: User, line: str, words: str) -> None:
    user.write(f"[workspaces.w.dependencies]\n{line}\n")
    text = user.refused(workspace="w")
    assert words in text
    assert f"line {1 + len(line.splitlines())}" in text
    assert "secret@" not in text


def test_a_folders_own_file_cannot_name_packages(user: User) -> None:
    folder = user.home / "papers"
    folder.mkdir()
    (folder / "mcp-sandbox.toml").write_text('[dependencies]\nlock = "x.lock"\n')
    user.write('[workspaces.w]\npath = "~/papers"\n')
    assert "unknown key `dependencies`" in user.refused(workspace="w")
