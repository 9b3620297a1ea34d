"""Whoever can write to a folder can write its mcp-sandbox.toml: it can take away, and never give."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.config.files import loosenings, read_folder_file
from mcp_sandbox.config.layers import resolve
from mcp_sandbox.config.trust import Trust

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import User


def agree(user: User, folder: Path) -> None:
    folder_file = read_folder_file(folder)
    assert folder_file is not None
    Trust(user.places.state).record(folder_file)


def test_a_folder_can_ask_for_less(user: User) -> None:
    user.folder("a", 'memory = "800MiB"\ncpus = 0.5\nruntime = "runsc"\ntimeout_seconds = 3\n')
    policy = user.load(workspace="~/a").policy
    assert (policy.memory, policy.cpus, policy.runtime, policy.timeout_seconds) == (
        800 * 2**20,
        0.5,
        "runsc",
        3,
    )


def test_a_folder_can_ask_to_be_distrusted(user: User) -> None:
    user.write('[defaults]\nmemory = "8GiB"\nnofile = 100\n')
    user.folder("a", 'profile = "untrusted"\n')
    policy = user.load(workspace="~/a").policy
    assert (policy.profile, policy.runtime, policy.memory) == ("untrusted", "runsc", 512 * 2**20)
    assert policy.nofile == 100


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'memory = "4GiB"',
            '`memory = "4GiB"` is looser than your own configuration allows: at most "1GiB".',
        ),
        (
            "timeout_seconds = 31",
            "`timeout_seconds = 31` is looser than your own configuration allows: at most 30.",
        ),
        ('reply_limit = "21KiB"', 'at most "20KiB".'),
        (
            'image = "evil"',
            '`image = "evil"` is looser than your own configuration allows: only "mcp-sandbox/standard".',
        ),
        ('runtime = "sh"', '`runtime = "sh"` is looser than your own configuration allows: only "".'),
        ('user = "1:1"', '`user = "1:1"` is looser than your own configuration allows: only "'),
    ],
)
def test_a_folder_cannot_give_itself_more(user: User, line: str, told: str) -> None:
    folder = user.folder("it's", f"# see\n{line}\n")
    error = user.refused(workspace=str(folder))
    assert f"{folder}/mcp-sandbox.toml, line 2: " in error
    assert told in error
    assert f"""`mcp-sandbox config trust '{user.home}/it'"'"'s'`""" in error


def test_a_folder_cannot_leave_the_untrusted_profile(user: User) -> None:
    user.write('[workspaces.a]\npath = "~/a"\nprofile = "untrusted"\n')
    user.folder("a", 'profile = "standard"\n')
    assert (
        '`profile = "standard"` is looser than your own configuration allows: only "untrusted".'
        in user.refused(workspace="a")
    )


def test_a_folder_cannot_undo_gvisor(user: User) -> None:
    user.write('[defaults]\nruntime = "runsc"\n')
    user.folder("a", 'runtime = ""\n')
    assert '`runtime = ""` is looser' in user.refused(workspace="~/a")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('engine.host = "tcp://evil:2375"', "`engine` is never accepted in a folder's own file"),
        ("[server]\nmax_parallel = 256", "`server` is never accepted"),
        ("[audit]\nunsafe_run_unrecorded = true", "`audit` is never accepted"),
        ('path = "/"', "`path` is never accepted"),
        ('[workspaces.a]\npath = "/"', "`workspaces` is never accepted"),
        ("unsafe_allow_unconfined_seccomp = true", "`unsafe_allow_unconfined_seccomp` is never accepted"),
        ("unsafe_allow_unconfined_seccomp = false", "`unsafe_allow_unconfined_seccomp` is never accepted"),
        ("unsafe_anything = true", "`unsafe_anything` is never accepted"),
        ('[defaults]\nmemory = "64MiB"', "in a folder's own file the keys stand at the top, under no header"),
        ('network = "host"', "unknown key `network`"),
        ('mounts = ["/:/h"]', "unknown key `mounts`"),
        ('memry = "1GiB"', "unknown key `memry`; did you mean `memory`?"),
        ('memory = "4MiB"', "`memory` must be between 64MiB and 1TiB"),
    ],
)
def test_what_a_folder_may_not_say_is_refused_even_when_it_is_trusted(
    user: User, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    user.folder("a", text)
    assert told in user.refused(workspace="~/a")
    monkeypatch.setattr(Trust, "covers", lambda self, folder_file: True)
    assert told in user.refused(workspace="~/a")


def test_all_that_is_wrong_is_told_at_once(user: User) -> None:
    user.folder("a", 'path = "/"\nmemry = 1\ncpus = "x"\n')
    assert "has 3 problems" in user.refused(workspace="~/a")


def test_trust_covers_what_was_agreed_to(user: User) -> None:
    folder = user.folder("a", 'memory = "4GiB"\nimage = "python:3"\n')
    agree(user, folder)
    policy = user.load(workspace="~/a").policy
    assert (policy.memory, policy.image) == (4 * 2**30, "python:3")


def test_trust_ends_when_a_byte_changes_and_returns_with_it(user: User) -> None:
    folder = user.folder("a", 'memory = "4GiB"')
    agree(user, folder)
    user.folder("a", 'memory = "4GiB" ')
    assert "config trust" in user.refused(workspace="~/a")
    user.folder("a", 'memory = "4GiB"')
    assert user.load(workspace="~/a").policy.memory == 4 * 2**30


def test_trust_in_one_folder_is_not_trust_in_another(user: User) -> None:
    agree(user, user.folder("a", 'memory = "4GiB"'))
    user.folder("b", 'memory = "4GiB"')
    assert "config trust" in user.refused(workspace="~/b")


def test_trust_does_not_open_the_untrusted_profile(user: User) -> None:
    user.write('[workspaces.a]\npath = "~/a"\nprofile = "untrusted"\n')
    agree(user, user.folder("a", 'memory = "4GiB"'))
    assert "is looser than the untrusted profile allows" in user.refused(workspace="a")


@pytest.mark.skipif(
    os.getuid() != 0, reason="giving a file to another user takes root: `sudo ./scripts/test`"
)
def test_an_agreement_that_somebody_else_wrote_is_none(user: User) -> None:
    agree(user, user.folder("a", 'memory = "4GiB"'))
    for agreement in (user.places.state / "trusted").iterdir():
        os.chown(agreement, 1234, 1234)
    assert "config trust" in user.refused(workspace="~/a")


def test_only_the_user_can_see_what_they_agreed_to(user: User) -> None:
    agree(user, user.folder("a", 'memory = "4GiB"'))
    assert (user.places.state / "trusted").stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_the_file_is_not_followed(user: User, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password = hunter2")
    (user.folder("a") / "mcp-sandbox.toml").symlink_to(secret)
    error = user.refused(workspace="~/a")
    assert "a symbolic link, which is not followed here" in error
    assert "hunter2" not in error


def test_a_fifo_in_place_of_the_file_hangs_nothing(user: User) -> None:
    os.mkfifo(user.folder("a") / "mcp-sandbox.toml")
    assert "not a regular file" in user.refused(workspace="~/a")


def test_a_file_too_large_to_look_at_is_refused(user: User) -> None:
    user.folder("a", "#" * 1000 + "\n" + "#\n" * 8000)
    assert "larger than 16 KiB" in user.refused(workspace="~/a")


def test_what_loosens_is_found_even_where_the_file_does_not_name_it(user: User) -> None:
    folder_file = read_folder_file(user.folder("a", "cpus = 0.5"))
    assert folder_file is not None
    allowed, wanted = resolve([]), resolve([folder_file.layer])
    wanted.values["memory"] = 2**40
    assert [problem.words.split()[0] for problem in loosenings(folder_file, allowed, wanted)] == ["`memory"]


def test_a_folder_around_the_workspace_has_no_say(user: User) -> None:
    user.folder("a", 'memory = "4GiB"')
    assert user.load(workspace=str(user.folder("a/b"))).policy.memory == 2**30
