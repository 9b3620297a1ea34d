"""What a person sees who asks what is in force, what is wrong, and what to trust."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mcp_sandbox.cli import FAILED, cli
from mcp_sandbox.config import Policy
from mcp_sandbox.config.reference import example_toml

if TYPE_CHECKING:
    from click.testing import Result

    from .conftest import User


@pytest.fixture(autouse=True)
def at_the_root(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for variable in ("MCP_SANDBOX_CONFIG", "MCP_SANDBOX_WORKSPACE", "CLAUDE_PROJECT_DIR", "DOCKER_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "300")


def run(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["config", *arguments], input=typed)


def test_show_says_every_value_in_human_units_and_where_it_was_said(user: User) -> None:
    file = user.write("[defaults]\ncpus = 2\n")
    shown = run("show").stdout
    rows = {
        line.split()[0]: line.rstrip().split(maxsplit=2)[1:] for line in shown.splitlines() if line.strip()
    }
    assert rows["file:"] == [str(file)]
    assert rows["memory"] == ["1GiB", "built in"]
    assert rows["cpus"] == ["2", f"{file} line 2 [defaults]"]
    assert rows.keys() >= set(Policy.model_fields) | {"engine.host", "server.max_parallel", "audit.path"}
    assert "UNSAFE" not in shown


def test_show_marks_what_weakens(user: User) -> None:
    user.write("[audit]\nunsafe_run_unrecorded = true\n[defaults]\nunsafe_allow_unconfined_seccomp = true\n")
    marked = [line.split()[0] for line in run("show").stdout.splitlines() if "UNSAFE" in line]
    assert marked == ["unsafe_allow_unconfined_seccomp", "audit.unsafe_run_unrecorded"]


def test_show_is_complete_in_a_narrow_terminal(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = user.write("[defaults]\ncpus = 2\n")
    shown = "".join("".join(line.split()) for line in run("show").stdout.splitlines())
    assert "unsafe_allow_unconfined_seccomp" in shown
    assert file.name in shown


def test_show_tells_machines_bytes(user: User) -> None:
    shown = json.loads(run("show", "--json").stdout)
    assert shown["file"] is None
    assert shown["values"]["memory"] == {"value": 2**30, "source": "built in"}
    assert shown["policy_hash"] == user.load().policy.policy_hash()


def test_show_uses_the_file_and_the_workspace_it_is_given(user: User) -> None:
    other = user.home / "other.toml"
    other.write_text("[workspaces.a]\nnofile = 100\n")
    shown = json.loads(run("show", "--config", str(other), "--workspace", "a", "--json").stdout)
    assert shown["values"]["nofile"]["value"] == 100


def test_a_mistake_is_an_error_and_not_a_traceback(user: User) -> None:
    user.write("[defaults]\nmemry = 1\n")
    for command in ("show", "check"):
        result = run(command)
        assert result.exit_code == FAILED
        assert "line 2: unknown key `defaults.memry`; did you mean `memory`?" in result.stderr
        assert "Traceback" not in result.output


def test_check_says_what_is_valid(user: User) -> None:
    assert "There is no configuration file" in run("check").stdout
    file = user.write("[defaults]\ncpus = 2\n")
    assert run("check").stdout == f"{file} is valid.\n"
    assert run("check", str(file)).exit_code == 0
    assert run("check", "/gone.toml").exit_code == FAILED


def test_check_looks_at_every_workspace(user: User) -> None:
    user.write(
        '[workspaces.a]\npath = "/"\n[workspaces.b]\nprofile = "untrusted"\nmemory = "1GiB"\n'
        '[workspaces.c]\ntimeout_seconds = 301\n[workspaces.d]\npath = "~/gone"\n'
    )
    lines = run("check").stderr.splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:5]] == ["line 2", "line 5", "line 7", "line 9"]


def test_check_looks_at_a_folders_own_file(user: User) -> None:
    folder = user.folder("a", "cpus = 0.5")
    assert run("check", f"{folder}/mcp-sandbox.toml").exit_code == 0
    user.folder("a", "cpus = 5")
    assert "is looser than your own configuration allows" in run("check", f"{folder}/mcp-sandbox.toml").stderr
    assert "does not exist" in run("check", f"{user.home}/mcp-sandbox.toml").stderr


def test_example_prints_the_example(user: User) -> None:
    assert run("example").stdout == example_toml()


def test_trust_shows_what_it_means_and_holds_once_said(user: User) -> None:
    folder = user.folder("a", '# please\nmemory = "4GiB"\ncpus = 0.5\n')
    result = run("trust", str(folder), typed="y\n")
    assert result.exit_code == 0
    assert '   2  memory = "4GiB"' in result.stdout
    assert "LOOSER  memory: 1GiB becomes 4GiB" in result.stdout
    assert "tighter  cpus: 1 becomes 0.5" in result.stdout
    assert user.load(workspace=str(folder)).policy.memory == 4 * 2**30


@pytest.mark.parametrize("typed", ["n\n", "\n", ""])
def test_trust_is_not_given_by_anything_but_a_yes(user: User, typed: str) -> None:
    folder = user.folder("a", 'memory = "4GiB"')
    assert run("trust", str(folder), typed=typed).exit_code == 1
    assert "config trust" in user.refused(workspace=str(folder))


def test_trust_asks_nothing_where_yes_was_said(user: User) -> None:
    folder = user.folder("a", 'memory = "4GiB"')
    assert run("trust", "--yes", str(folder)).exit_code == 0
    assert user.load(workspace=str(folder)).policy.memory == 4 * 2**30


def test_trust_is_not_asked_for_where_nothing_is_loosened(user: User) -> None:
    folder = user.folder("a", "cpus = 0.5")
    assert "loosens nothing" in run("trust", str(folder)).stdout
    assert not (user.places.state / "trusted").exists()


def test_trust_cannot_make_an_unusable_file_usable(user: User) -> None:
    folder = user.folder("a", "unsafe_allow_unconfined_seccomp = true")
    assert "is never accepted" in run("trust", "--yes", str(folder)).stderr
    user.folder("a", 'profile = "untrusted"\nmemory = "1GiB"')
    assert "looser than the untrusted profile allows" in run("trust", "--yes", str(folder)).stderr
    assert "has no mcp-sandbox.toml" in run("trust", str(user.folder("b"))).stderr


def test_a_hostile_file_cannot_hide_what_it_says_from_the_one_who_is_asked(user: User) -> None:
    folder = user.folder("a", 'memory = "4GiB" # \u202e\u2066 harmless\r\n# \u200b\ncpus = 0.5')
    shown = run("trust", str(folder), typed="n\n").stdout
    assert '   1  memory = "4GiB" # \\u202e\\u2066 harmless\n' in shown
    assert all(line.isprintable() for line in shown.splitlines())


def test_trust_records_what_was_shown_not_what_is_there_when_the_answer_comes(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = user.folder("a", 'memory = "2GiB"')

    def swap_then_agree(*_: object, **__: object) -> bool:
        user.folder("a", 'memory = "64GiB"')
        return True

    monkeypatch.setattr("click.confirm", swap_then_agree)
    assert run("trust", str(folder)).exit_code == 0
    assert "config trust" in user.refused(workspace=str(folder))


def test_trust_that_cannot_be_recorded_is_an_error(user: User) -> None:
    folder = user.folder("a", 'memory = "4GiB"')
    user.places.state.parent.mkdir(parents=True)
    user.places.state.write_text("a file where the folder should be")
    assert "cannot be written" in run("trust", "--yes", str(folder)).stderr
