"""More folders of a workspace, and what is hidden in them: only what a person may show, and never less hidden."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.config.settings import MASK

if TYPE_CHECKING:
    from .conftest import User


def workspace(*mounts: tuple[str, str]) -> str:
    text = '[workspaces.a]\npath = "~/a"\n'
    for source, target in mounts:
        text += f"[[workspaces.a.mounts]]\nsource = {json.dumps(source)}\ntarget = {json.dumps(target)}\n"
    return text


def test_more_folders_are_taken_as_they_really_are(user: User) -> None:
    user.folder("a")
    real = user.folder("models")
    (user.home / "link").symlink_to("models")
    user.write(workspace(("~/link", "/models"), ("~/a", "/mnt/again")))
    mounts = user.load(workspace="a").policy.mounts
    assert [(mount.source, mount.target) for mount in mounts] == [
        (str(real), "/models"),
        (str(user.home / "a"), "/mnt/again"),
    ]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("/", "is the root of the file system"),
        ("~", "is or holds your home folder"),
        ("/proc/self", "lies in /proc"),
        ("/dev", "lies in /dev"),
        ("/var/run", "a socket that commands an engine"),
        ("~/nowhere", "does not exist"),
        ("~/file", "is not a folder"),
        ("~/.local/state/mcp-sandbox", "this program's own state"),
        ("~/.local", "this program's own state"),
        ("relative", "must be an absolute path"),
    ],
)
def test_a_folder_that_no_program_may_see_is_refused(user: User, source: str, told: str) -> None:
    user.folder("a")
    user.folder(".local/state/mcp-sandbox")
    (user.home / "file").write_text("")
    user.write(workspace((source, "/data")))
    message = user.refused(workspace="a")
    assert told in message
    assert "line 3" in message or "line 4" in message


@pytest.mark.parametrize(
    "target", ["/", "data", "/etc", "/etc/ssl", "/usr/lib/x", "/workspace", "/workspace/x", "/scratch/x", "/tmp/x",
               "/proc/x", "/data/../etc", "/data//x", "/data/", "/dev/shm", "/data\n", "/lib64", "/home/me"]
)  # fmt: skip
def test_a_place_that_is_the_sandboxs_own_is_refused(user: User, target: str) -> None:
    user.folder("a")
    user.folder("models")
    user.write(workspace(("~/models", target)))
    assert "mounts" in user.refused(workspace="a")


def test_places_that_hide_each_other_are_refused(user: User) -> None:
    user.folder("a")
    user.write(workspace(("~/a", "/data"), ("~/a", "/data/inner")))
    assert "none lies in another" in user.refused(workspace="a")


def test_a_misspelt_key_of_a_mount_is_told(user: User) -> None:
    user.folder("a")
    user.write('[workspaces.a]\npath = "~/a"\n[[workspaces.a.mounts]]\nsource = "~/a"\ntraget = "/a"\n')
    message = user.refused(workspace="a")
    assert "`workspaces.a.mounts.0.target` is missing" in message
    assert "unknown key `workspaces.a.mounts.0.traget`" in message


def test_what_is_written_is_added_to_what_is_hidden_and_takes_nothing_away(user: User) -> None:
    folder = user.folder("a", 'mask = ["folder.txt"]')
    user.write(
        f'[defaults]\nmask = ["all.txt", "*.pem"]\n[workspaces.a]\npath = "{folder}"\nmask = ["one.txt"]\n'
    )
    assert user.load(workspace="a").policy.mask == (*MASK, "all.txt", "one.txt", "folder.txt")
    assert user.load().policy.mask == (*MASK, "all.txt")


def test_a_folder_shows_nothing_that_is_hidden(user: User) -> None:
    user.folder("a", 'unsafe_unmask = ["*.pem"]')
    user.write('[workspaces.a]\npath = "~/a"\n')
    assert "never accepted in a folder's own file" in user.refused(workspace="a")


def test_a_folder_has_no_more_copied_than_the_person_says(user: User) -> None:
    user.folder("a", 'workspace_copy_ignore = [".git/"]')
    user.write('[workspaces.a]\npath = "~/a"\n')
    assert "at least" in user.refused(workspace="a")
    user.folder("a", 'workspace_copy_ignore = [".git/", "node_modules/", "__pycache__/", ".venv/", "big/"]')
    assert "big/" in user.load(workspace="a").policy.workspace_copy_ignore


@pytest.mark.parametrize("glob", ["", "/", "../x", "a//b", "./a", "/abs", "**/x", "a\n", "x" * 201])
def test_a_pattern_that_could_mean_something_else_is_refused(user: User, glob: str) -> None:
    user.write(f"[defaults]\nmask = [{json.dumps(glob)}]\n")
    assert "`defaults.mask`" in user.refused()


@pytest.mark.parametrize(
    ("value", "told"), [('"*.pem"', "must be a list"), ("[1]", "must be text in quotes")]
)
def test_what_is_no_list_of_patterns_is_told(user: User, value: str, told: str) -> None:
    user.write(f"[defaults]\nmask = {value}\n")
    assert told in user.refused()


def test_an_untrusted_workspace_shows_nothing_that_is_hidden(user: User) -> None:
    user.write('[workspaces.a]\nprofile = "untrusted"\nunsafe_unmask = ["*.pem"]\n')
    assert "`unsafe_unmask" in user.refused(workspace="a")


def test_room_for_copies_counts_as_memory_where_files_are_copied(user: User) -> None:
    user.write('[defaults]\nworkspace_transfer = "copy"\nworkspace_copy_limit = "200MiB"\n')
    assert "or the four to 512MiB together" in user.refused()
    user.write('[defaults]\nworkspace_transfer = "copy"\n')
    assert user.load().policy.workspace_copy_limit == 128 << 20
