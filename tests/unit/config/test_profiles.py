from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.config.profiles import PROFILES, looser
from mcp_sandbox.config.settings import PolicySettings

if TYPE_CHECKING:
    from .conftest import User

STANDARD = PolicySettings()
UNORDERED = {"profile", "image", "user", "preload", "workspace_transfer", "mask", "workspace_copy_ignore"}
ORDERED = set(PolicySettings.model_fields) - UNORDERED


def test_untrusted_says_something_of_every_key_that_has_a_direction() -> None:
    assert set(PROFILES["untrusted"]) == ORDERED


@pytest.mark.parametrize("key", sorted(ORDERED))
def test_untrusted_is_nowhere_looser_than_standard(key: str) -> None:
    assert not looser(key, PROFILES["untrusted"][key], getattr(STANDARD, key))


def test_untrusted_agrees_with_itself() -> None:
    assert Policy(profile="untrusted", **PROFILES["untrusted"]).runtime == "runsc"  # type: ignore[arg-type]


def test_choosing_untrusted_takes_all_its_limits(user: User) -> None:
    user.write('[defaults]\nprofile = "untrusted"')
    configuration = user.load()
    for key, value in PROFILES["untrusted"].items():
        assert getattr(configuration.policy, key) == value
        assert configuration.sources[key] == "profile untrusted"


def test_an_untrusted_workspace_can_be_tightened(user: User) -> None:
    user.write('[workspaces.a]\nprofile = "untrusted"\ntimeout_seconds = 5\nscratch_size = "16MiB"')
    policy = user.load(workspace="a").policy
    assert (policy.timeout_seconds, policy.scratch_size) == (5, 16 * 2**20)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'memory = "513MiB"',
            '`memory = "513MiB"` is looser than the untrusted profile allows: at most "512MiB".',
        ),
        ('runtime = "runc"', '`runtime = "runc"` is looser than the untrusted profile allows: only "runsc".'),
        ('runtime = ""', '`runtime = ""` is looser than the untrusted profile allows: only "runsc".'),
        ("timeout_seconds = 11", "at most 10."),
        ("cpus = 1.1", "at most 1."),
        ("unsafe_allow_unconfined_seccomp = true", "only false."),
    ],
)
@pytest.mark.parametrize("header", ["[defaults]", "[workspaces.a]"])
def test_an_untrusted_workspace_cannot_be_loosened(user: User, header: str, line: str, told: str) -> None:
    user.write(f'{header}\nprofile = "untrusted"\n{line}')
    error = user.refused(workspace="a" if "a" in header[-2:] else None)
    assert "line 3: " in error
    assert told in error


def test_a_workspace_cannot_loosen_the_untrusted_profile_of_the_defaults(user: User) -> None:
    user.write('[defaults]\nprofile = "untrusted"\n[workspaces.a]\nmemory = "2GiB"')
    assert 'line 4: `memory = "2GiB"` is looser than the untrusted profile' in user.refused(workspace="a")


def test_defaults_that_are_looser_give_way_to_a_workspaces_untrusted_profile_and_tighter_ones_stay(
    user: User,
) -> None:
    user.write(
        '[defaults]\nmemory = "8GiB"\nruntime = "runc"\ntimeout_seconds = 3\n'
        "unsafe_allow_unconfined_seccomp = true\n"
        '[workspaces.a]\nprofile = "untrusted"'
    )
    policy = user.load(workspace="a").policy
    assert (policy.memory, policy.runtime, policy.timeout_seconds) == (512 * 2**20, "runsc", 3)
    assert policy.unsafe == ()


def test_an_untrusted_workspace_does_not_run_unrecorded(user: User) -> None:
    user.write('[audit]\nunsafe_run_unrecorded = true\n[workspaces.a]\nprofile = "untrusted"')
    assert user.load().audit.unsafe_run_unrecorded
    assert "line 2: `audit.unsafe_run_unrecorded` cannot be true" in user.refused(workspace="a")
