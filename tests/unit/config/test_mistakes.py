"""A person with a typo is told the file, the line, the key, what is wrong, and what they meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import User


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[defaults]\nmemry = "1GiB"', "line 2: unknown key `defaults.memry`; did you mean `memory`?"),
        ('[default]\nmemory = "1GiB"', "line 1: unknown key `default`; did you mean `defaults`?"),
        ('[workspace.a]\npath = "/a"', "line 1: unknown key `workspace`; did you mean `workspaces`?"),
        (
            'memory = "1GiB"',
            "line 1: unknown key `memory`; it belongs under [defaults] or [workspaces.NAME].",
        ),
        ('[workspaces.a]\npth = "/a"', "line 2: unknown key `workspaces.a.pth`; did you mean `path`?"),
        ("[defaults]\nmax_paralel = 2", "did you mean `max_parallel`, which belongs under [server]?"),
        (
            '[defaults]\npath = "/a"',
            "unknown key `defaults.path`; it belongs under [audit] or [workspaces.NAME].",
        ),
        (
            '\n\n[defaults]\nmemory = "1KiB"',
            "line 4: `defaults.memory` must be between 64MiB and 1TiB, not 1KiB.",
        ),
        ('[defaults]\nmemory = "512m"', "`defaults.memory` must end in KiB, MiB, GiB or TiB"),
        ("[defaults]\nmemory = 512", "`defaults.memory` must be between 64MiB and 1TiB, not 512B."),
        ("[defaults]\nmemory = true", "`defaults.memory` must be a size with its unit, in quotes"),
        ('[defaults]\ncpus = "2"', "`defaults.cpus` must be a number."),
        ("[defaults]\ncpus = true", "`defaults.cpus` must be a number."),
        ("[defaults]\ncpus = nan", "`defaults.cpus` must be a finite number."),
        ("[defaults]\ncpus = 0", "`defaults.cpus` must be between 0.1 and 512, not 0"),
        ("[defaults]\nnofile = 1.5", "`defaults.nofile` must be a whole number."),
        (f"[defaults]\nnofile = 0x{'f' * 1000}", "`defaults.nofile` must be between 64 and 1048576."),
        ("[audit]\nunsafe_run_unrecorded = 1", "`audit.unsafe_run_unrecorded` must be true or false."),
        ('[defaults]\nprofile = "strict"', '`defaults.profile` must be "standard" or "untrusted".'),
        ("[defaults]\nimage = 3", "`defaults.image` must be text in quotes."),
        ('[defaults]\nimage = "-v/:/host"', "`defaults.image` must be the name of an image"),
        ('[defaults]\nruntime = "../sh"', "`defaults.runtime` must be the name of a runtime"),
        ('[defaults]\nuser = "0:1000"', "`defaults.user` must not be root (0)."),
        ('[defaults]\nuser = "1000:0"', "`defaults.user` must not be root (0)."),
        ('[defaults]\nuser = "me"', '`defaults.user` must be two numbers, "uid:gid"'),
        (
            '[engine]\nhost = "/var/run/docker.sock"',
            "`engine.host` must be a unix:///, tcp:// or ssh:// address.",
        ),
        ('[audit]\npath = "record"', "`audit.path` must be an absolute path, or one that starts with ~/."),
        ("[server]\nmax_parallel = 0", "`server.max_parallel` must be between 1 and 256, not 0."),
        ("engine = 3", "line 1: `engine` must be a table of its own, under the header [engine]."),
        ("workspaces = []", "`workspaces` must be a table of its own, under the header [workspaces.NAME]."),
        ('[workspaces]\npath = "/a"', "`workspaces.path` must be a table of its own"),
        ("[workspaces.'My Data']", "line 1: the name `My Data` must be 1 to 64 of the characters a-z"),
        ('[workspaces."a\\n"]', "the name `a\\n` must be"),
        ("[workspaces.default]", "the name `default` is taken by the workspace that has no folder"),
        (
            "[defaults]\ntimeout_seconds = 400",
            "line 2: timeout_seconds (400) is more than max_timeout_seconds (300): "
            "lower the first or raise the second.",
        ),
        (
            '[defaults]\nscratch_size = "1GiB"',
            "line 2: scratch_size, tmp_size and shm_size come to 1152MiB, more than half of memory (1GiB), "
            "and what is written there is held in memory: "
            "set memory to at least 2304MiB, or the three to 512MiB together.",
        ),
    ],
)
def test_a_mistake_is_told_in_plain_words(user: User, text: str, told: str) -> None:
    file = user.write(text)
    error = user.refused()
    assert told in error
    assert str(file) in error
    assert "Input should" not in error
    assert "pydantic" not in error


def test_all_mistakes_of_a_file_are_told_at_once_in_their_order(user: User) -> None:
    user.write('[server]\nmax_queued = -1\n[defaults]\nmemory = "1TB"\nnofile = 1\ncpu = 1\n')
    lines = user.refused().splitlines()
    assert lines[0].endswith("config.toml has 3 problems:")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["line 2", "line 5", "line 6"]


def test_no_more_than_ten_mistakes_are_told(user: User) -> None:
    user.write("\n".join(f"key{number} = 1" for number in range(1000)))
    lines = user.refused().splitlines()
    assert "has 1000 problems" in lines[0]
    assert len(lines) == 12
    assert "990 more." in lines[-1]


def test_a_key_made_of_control_characters_cannot_rewrite_the_terminal(user: User) -> None:
    user.write('[defaults]\n"\\u001b]0;x\\u0007\\u202e" = 1\n')
    error = user.refused()
    assert error.isprintable()
    assert "\\x1b" in error


@pytest.mark.parametrize(
    "key", ["network", "network_mode", "mounts", "volumes", "binds", "privileged", "cap_add", "devices", "pid_mode",
            "ipc_mode", "uts_mode", "userns_mode", "cgroup_parent", "security_opt", "command", "entrypoint", "env"]
)  # fmt: skip
def test_what_would_open_the_sandbox_cannot_be_said(user: User, key: str) -> None:
    user.write(f'[defaults]\n{key} = "host"\n')
    assert f"unknown key `defaults.{key}`" in user.refused()
