"""Which file, which workspace, which folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import User

# The file


def test_the_flag_beats_the_variable_beats_the_users_folder(user: User) -> None:
    own = user.write("[defaults]\nnofile = 100")
    flag, variable = user.home / "flag.toml", user.home / "variable.toml"
    flag.write_text("[defaults]\nnofile = 101")
    variable.write_text("[defaults]\nnofile = 102")
    assert user.load().policy.nofile == 100
    assert user.load().file == own
    assert user.load(MCP_SANDBOX_CONFIG=str(variable)).policy.nofile == 102
    assert user.load(config_file=flag, MCP_SANDBOX_CONFIG=str(variable)).policy.nofile == 101


def test_a_relative_file_is_relative_to_the_current_folder(user: User) -> None:
    (user.folder("data") / "c.toml").write_text("[defaults]\nnofile = 100")
    assert user.load(config_file=Path("c.toml"), cwd=user.home / "data").policy.nofile == 100
    assert user.load(MCP_SANDBOX_CONFIG="~/data/c.toml").policy.nofile == 100


def test_a_file_that_was_named_and_is_not_there_is_an_error_not_the_defaults(user: User) -> None:
    assert "--config: /gone.toml does not exist." in user.refused(config_file=Path("/gone.toml"))
    assert "MCP_SANDBOX_CONFIG: /gone.toml does not exist." in user.refused(MCP_SANDBOX_CONFIG="/gone.toml")


def test_a_users_file_that_cannot_be_read_is_an_error_not_the_defaults(user: User) -> None:
    file = user.write("")
    file.unlink()
    file.mkdir()
    assert "not a regular file" in user.refused()
    file.rmdir()
    file.symlink_to("gone")
    assert "a symbolic link to nothing" in user.refused()


def test_an_empty_variable_is_no_variable(user: User) -> None:
    policy = user.load(MCP_SANDBOX_CONFIG="", MCP_SANDBOX_WORKSPACE="", CLAUDE_PROJECT_DIR="").policy
    assert policy.workspace == "default"


# The workspace


@pytest.fixture
def configured(user: User) -> User:
    for name in ("a", "b", "c"):
        user.folder(name)
    user.write("".join(f'[workspaces.{name}]\npath = "~/{name}"\n' for name in ("a", "b", "c")))
    return user


def test_the_flag_beats_the_variable_beats_the_project_beats_the_current_folder(configured: User) -> None:
    home = configured.home
    loaded = configured.load(cwd=home / "c")
    assert (loaded.policy.workspace, loaded.policy.path) == ("c", str(home / "c"))
    assert loaded.sources["workspace"] == "current folder"
    loaded = configured.load(cwd=home / "c", CLAUDE_PROJECT_DIR=str(home / "b"))
    assert (loaded.policy.workspace, loaded.sources["workspace"]) == ("b", "CLAUDE_PROJECT_DIR")
    environ = {"CLAUDE_PROJECT_DIR": str(home / "b"), "MCP_SANDBOX_WORKSPACE": "a"}
    loaded = configured.load(cwd=home / "c", **environ)
    assert (loaded.policy.workspace, loaded.sources["workspace"]) == ("a", "MCP_SANDBOX_WORKSPACE")
    loaded = configured.load(workspace="c", cwd=home / "b", **environ)
    assert (loaded.policy.workspace, loaded.sources["workspace"]) == ("c", "--workspace")


@pytest.mark.parametrize("spelled", ["{home}/a", "~/a", "./a", "../me/a/.", "a/", "{home}/link"])
def test_a_folder_that_is_configured_gets_its_entry_however_it_is_spelled(
    configured: User, spelled: str
) -> None:
    (configured.home / "link").symlink_to("a")
    policy = configured.load(workspace=spelled.format(home=configured.home), cwd=configured.home).policy
    assert (policy.workspace, policy.path) == ("a", str(configured.home / "a"))


def test_a_folder_that_is_not_configured_gets_the_defaults(user: User) -> None:
    user.write("[defaults]\nnofile = 99\n[workspaces.a]\nnofile = 100\n")
    folder = user.folder("My Data!")
    configuration = user.load(workspace="~/My Data!")
    assert configuration.policy.path == str(folder)
    assert configuration.policy.workspace == "my-data"
    assert configuration.policy.nofile == 99
    assert configuration.sources["path"] == "--workspace"


@pytest.mark.parametrize("name", ["a", "default"])
def test_a_strangers_folder_does_not_pass_for_a_configured_workspace(configured: User, name: str) -> None:
    policy = configured.load(workspace=str(configured.folder(f"downloads/{name}"))).policy
    assert policy.workspace.startswith(f"{name}-")


def test_a_folder_whose_name_begins_as_that_of_a_configured_one_is_another(configured: User) -> None:
    policy = configured.load(workspace=str(configured.folder("a-evil"))).policy
    assert (policy.workspace, policy.path) == ("a-evil", str(configured.home / "a-evil"))


@pytest.mark.parametrize("name", ["...", "_", "ПРОЕКТ", "x" * 200])
def test_any_folders_name_makes_a_workspaces_name(user: User, name: str) -> None:
    assert user.load(workspace=str(user.folder(name))).policy.workspace


def test_inside_a_configured_folder_the_innermost_entry_holds(user: User) -> None:
    inner = user.folder("outer/inner/deep")
    user.write('[workspaces.outer]\npath = "~/outer"\n[workspaces.inner]\npath = "~/outer/inner"\n')
    assert user.load(cwd=inner).policy.workspace == "inner"
    assert user.load(cwd=inner).policy.path == str(inner.parent)
    assert user.load(CLAUDE_PROJECT_DIR=str(inner)).policy.workspace == "inner"
    assert user.load(cwd=user.home / "outer").policy.workspace == "outer"


def test_a_folder_that_two_entries_have_is_not_guessed_at(user: User) -> None:
    user.folder("a")
    user.write('[workspaces.loose]\npath = "~/a"\n[workspaces.tight]\npath = "~/a"\nprofile = "untrusted"\n')
    error = user.refused(workspace="~/a")
    assert "is the folder of the workspaces `loose` and `tight`" in error
    assert "--workspace NAME" in error
    assert user.load(workspace="tight").policy.profile == "untrusted"


def test_a_current_folder_is_used_only_where_it_asks_for_it(user: User) -> None:
    assert user.load(cwd=user.folder("plain")).policy.path is None
    assert user.load(cwd=user.folder("asks", "nofile = 100")).policy.path == str(user.home / "asks")


def test_a_server_started_at_home_or_at_the_root_shows_no_folder(user: User) -> None:
    (user.home / "mcp-sandbox.toml").write_text("nofile = 100")
    for folder in (user.home, Path("/")):
        for policy in (user.load(cwd=folder).policy, user.load(CLAUDE_PROJECT_DIR=str(folder)).policy):
            assert (policy.workspace, policy.path, policy.nofile) == ("default", None, 1024)


def test_defaults_hold_without_a_folder_too(user: User) -> None:
    user.write('[defaults]\nprofile = "untrusted"')
    assert user.load().policy.profile == "untrusted"
    assert user.load(workspace="default").policy.profile == "untrusted"


def test_a_workspace_needs_no_folder(user: User) -> None:
    user.write("[workspaces.a]\nnofile = 100")
    assert user.load(workspace="a").policy.path is None


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("salse", "there is no workspace `salse`; did you mean `sales`?"),
        ("other", "there is no workspace `other`. Configured workspaces: sales."),
        ("", "there is no workspace ``."),
        ("\x1b[2J", "there is no workspace `\\x1b[2J`"),
    ],
)
def test_an_unknown_workspace_is_an_error_with_the_nearest_name(user: User, asked: str, told: str) -> None:
    user.write("[workspaces.sales]")
    assert told in user.refused(workspace=asked)


def test_a_folder_is_not_mistaken_for_a_name(user: User) -> None:
    folder = user.folder("data")
    assert "Name a folder as ./data." in user.refused(workspace="data", cwd=folder.parent)


# The folder


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/", "is the root of the file system"),
        ("/./../", "is the root of the file system"),
        ("~", "is or holds your home folder"),
        ("~/", "is or holds your home folder"),
        ("~/..", "is or holds your home folder"),
        ("~/../me/x/..", "is or holds your home folder"),
        ("~/link-home", "is or holds your home folder"),
        ("~/link-root", "is the root of the file system"),
        ("/proc", "lies in /proc"),
        ("/proc/self/root", "is the root of the file system"),
        ("/proc/self/../1", "lies in /proc"),
        ("/sys/fs", "lies in /sys"),
        ("/dev", "lies in /dev"),
        ("~/gone", "does not exist"),
        ("~/file", "is not a folder"),
        ("~/file/x", "cannot be used: Not a directory"),
        ("~/loop", "cannot be used: Too many levels of symbolic links"),
        ("~/" + "x" * 300, "cannot be used: File name too long"),
        ("~/.local/state/mcp-sandbox", "holds, or lies in, this program's own state"),
        ("~/.local", "holds, or lies in, this program's own state"),
        ("~/record", "holds, or lies in, the record of runs"),
        ("~/record/blobs", "holds, or lies in, the record of runs"),
        ("~/engine", "holds, or lies in, a socket that commands an engine"),
        ("~/.docker", "holds, or lies in, a socket that commands an engine"),
        ("~/remote", "holds, or lies in, a socket that commands an engine"),
        ("~/agent", "holds, or lies in, the socket of your SSH agent"),
    ],
)
def test_a_folder_that_no_program_may_see_is_refused(user: User, path: str, told: str) -> None:
    for name in (
        "x",
        "record/blobs",
        "engine/run",
        ".docker/run",
        "remote",
        "agent",
        ".local/state/mcp-sandbox",
    ):
        user.folder(name)
    (user.home / "file").touch()
    (user.home / "loop").symlink_to("loop")
    (user.home / "link-home").symlink_to(user.home)
    (user.home / "link-root").symlink_to("/")
    file = user.write(
        f'[engine]\nhost = "unix://{user.home}/engine/run/docker.sock"\n[audit]\npath = "~/record"\n'
        f'[workspaces.a]\npath = "{path}"\n'
    )
    environ = {
        "DOCKER_HOST": f"unix://{user.home}/remote/docker.sock",
        "SSH_AUTH_SOCK": f"{user.home}/agent/s",
    }
    error = user.refused(workspace="a", **environ)
    assert f"{file}, line 6: `workspaces.a.path`: {path} " in error
    assert told in error
    assert told in user.refused(workspace=path, **environ)


def test_the_other_workspaces_folders_may_be_away(configured: User) -> None:
    (configured.home / "b").rmdir()
    assert configured.load(workspace="a").policy.path
    assert "does not exist" in configured.refused(workspace="b")


def test_a_variable_that_the_client_did_not_fill_in_is_told(user: User) -> None:
    assert "the client did not fill in the variable" in user.refused(
        MCP_SANDBOX_WORKSPACE="${workspaceFolder}/x"
    )


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "a\u202eb", os.fsdecode(b"a\xff")])
def test_a_folder_whose_name_would_reach_the_model_as_something_else_is_refused(
    user: User, name: str
) -> None:
    folder = user.home / name
    folder.mkdir()
    assert "has a character in its name that cannot be shown" in user.refused(workspace=str(folder))
    link = user.home / "link"
    link.symlink_to(folder)
    assert "name cannot be shown" in user.refused(workspace=str(link))


def test_a_real_socket_is_found_through_a_link(user: User, tmp_path: Path) -> None:
    folder = user.folder("run")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        (tmp_path / "link.sock").symlink_to(folder / "s")
        user.write(f'[engine]\nhost = "unix://{tmp_path}/link.sock"')
        assert "a socket that commands an engine" in user.refused(workspace="~/run")


@pytest.mark.parametrize("home", ["relative", "."])
def test_a_home_that_means_another_place_in_every_folder_is_refused(
    user: User, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    assert "is not an absolute path. Correct HOME" in user.refused()


def test_a_user_without_a_home_is_told(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert "This user has no home folder. Set HOME." in user.refused()
