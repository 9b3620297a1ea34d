from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from mcp_sandbox.config import Configuration, Policy

if TYPE_CHECKING:
    from .conftest import User


def test_a_policy_is_a_value(user: User) -> None:
    assert hash(Policy()) == hash(Policy())
    with pytest.raises(ValidationError):
        Policy().memory = 1  # type: ignore[misc]


def test_a_policy_that_contradicts_itself_cannot_exist() -> None:
    with pytest.raises(ValidationError, match="more than half of memory"):
        Policy(memory=64 * 2**20)


@pytest.mark.parametrize("user_ids", ["", "0:0", "1000:0", "0:1000", "root"])
def test_a_policy_never_names_root(user_ids: str) -> None:
    with pytest.raises(ValidationError):
        Policy(user=user_ids)


def test_the_hash_says_whether_two_policies_are_the_same(user: User) -> None:
    user.write('[defaults]\ntimeout_seconds = 30\ncpus = 1\nmemory = "1024MiB"')
    assert user.load().policy.policy_hash() == Policy(user=user.load().policy.user).policy_hash()
    assert Policy(nofile=1000).policy_hash() != Policy().policy_hash()


def test_a_policy_survives_json() -> None:
    policy = Policy(path="/data", workspace="data")
    assert Policy.model_validate(json.loads(policy.model_dump_json())) == policy


def test_weakened_keys_are_named(user: User) -> None:
    assert Policy().unsafe == ()
    user.write("[defaults]\nunsafe_allow_unconfined_seccomp = true")
    assert user.load().policy.unsafe == ("unsafe_allow_unconfined_seccomp",)


def test_root_runs_programs_as_somebody_else(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    monkeypatch.setattr("os.getgid", lambda: 0)
    assert user.load().policy.user == "1000:1000"


def test_everybody_else_runs_programs_with_their_own_ids_and_never_in_roots_group(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getuid", lambda: 1234)
    monkeypatch.setattr("os.getgid", lambda: 0)
    assert user.load().policy.user == "1234:1234"


def test_defaults_hold_where_nothing_is_said(user: User) -> None:
    configuration = user.load()
    assert configuration.file is None
    assert (configuration.policy.workspace, configuration.policy.path) == ("default", None)
    assert configuration.policy == Policy(user=configuration.policy.user)
    assert configuration.audit.path == str(user.home / ".local/state/mcp-sandbox")
    assert Configuration().server == configuration.server


def test_every_value_has_a_source(user: User) -> None:
    folder = user.folder("data", "nofile = 64")
    file = user.write(
        f'[server]\nmax_parallel = 2\n[defaults]\ncpus = 2\n[workspaces.data]\npath = "{folder}"\n'
    )
    configuration = user.load(workspace="data")
    assert set(configuration.sources) == set(Policy.model_fields) | {
        "engine.host",
        "server.max_parallel",
        "server.max_queued",
        "server.reply_within_seconds",
        "audit.path",
        "audit.unsafe_run_unrecorded",
    }
    assert configuration.sources["memory"] == "built in"
    assert configuration.sources["workspace"] == "--workspace"
    assert configuration.sources["path"] == f"{file} line 6 [workspaces.data]"
    assert configuration.sources["cpus"] == f"{file} line 4 [defaults]"
    assert configuration.sources["server.max_parallel"] == f"{file} line 2 [server]"
    assert configuration.sources["nofile"] == f"{folder}/mcp-sandbox.toml line 1"
