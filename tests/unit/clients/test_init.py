"""What a person sees who configures the first folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mcp_sandbox.cli import FAILED, cli
from mcp_sandbox.workspace import load_configuration

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from mcp_sandbox.config.policy import Configuration


@pytest.fixture(autouse=True)
def reports(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start every test in a folder of a home of its own."""
    folder = home / "Quarterly Reports"
    folder.mkdir(parents=True)
    for variable in [name for name in os.environ if name.startswith(("XDG_", "MCP_SANDBOX_", "CLAUDE_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    return folder


def init(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["init", *arguments], input=typed)


def config_file(home: Path) -> Path:
    return home / ".config/mcp-sandbox/config.toml"


def load(home: Path, workspace: str) -> Configuration:
    return load_configuration(config_file=None, workspace=workspace, environ={}, cwd=home)


def test_yes_takes_the_current_folder_and_its_name(home: Path, reports: Path) -> None:
    shown = init("--yes")
    assert shown.exit_code == 0
    assert "Workspace `quarterly-reports`" in shown.stdout
    policy = load(home, "quarterly-reports").policy
    assert policy.path == str(reports)
    assert policy.profile == "standard"


def test_three_questions_are_asked(home: Path) -> None:
    (home / "data").mkdir()
    shown = init(typed="~/data\nmine\nuntrusted\n")
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("?") == 3
    policy = load(home, "mine").policy
    assert (policy.path, policy.profile) == (str(home / "data"), "untrusted")


def test_an_answer_that_is_left_out_is_the_one_suggested(home: Path, reports: Path) -> None:
    init(typed="\n\n\n")
    assert load(home, "quarterly-reports").policy.path == str(reports)


def test_nothing_is_written_where_the_questions_are_not_answered(home: Path) -> None:
    assert init(typed="").exit_code == 1
    assert not config_file(home).exists()


def test_what_is_commented_out_holds_once_the_sign_is_taken_off(home: Path) -> None:
    init("--yes")
    file = config_file(home)
    lines = file.read_text().splitlines()
    file.write_text(
        "\n".join(line[1:] if line.startswith("#") and line[1] != " " else line for line in lines)
    )
    configuration = load(home, "quarterly-reports")
    assert "#" in "".join(lines)
    assert configuration.policy.timeout_seconds == 30
    assert configuration.policy.egress.allow


def test_what_is_in_the_file_stays(home: Path) -> None:
    file = config_file(home)
    file.parent.mkdir(parents=True)
    before = '# mine\n[defaults]\ncpus = 2 # two\n\n# old\n[workspaces.a]\nmemory = "2GiB"\n\n[audit]\npath = "~/rec"\n'
    file.write_bytes(b"\xef\xbb\xbf" + before.encode())
    file.chmod(0o640)
    assert init("--yes").exit_code == 0
    assert file.read_bytes().startswith(b"\xef\xbb\xbf" + before.encode())
    assert load(home, "quarterly-reports").policy.cpus == 2
    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("before", ["memroy = 1\n", "[defaults\n", "workspaces = 7\n"])
def test_a_file_that_cannot_be_used_is_left_as_it_is(home: Path, before: str) -> None:
    file = config_file(home)
    file.parent.mkdir(parents=True)
    file.write_text(before)
    refused = init("--yes")
    assert refused.exit_code == FAILED
    assert str(file) in refused.stderr
    assert file.read_text() == before


def test_a_folder_that_is_configured_is_not_configured_twice(home: Path) -> None:
    init("--yes")
    before = config_file(home).read_text()
    refused = init("--yes")
    assert "is the folder of workspace `quarterly-reports` already" in refused.stderr
    assert config_file(home).read_text() == before


def test_a_name_that_is_taken_is_refused_and_the_suggested_one_is_another(home: Path) -> None:
    init("--yes", "--name", "a")
    (home / "A").mkdir()
    refused = init(str(home / "A"), "--yes", "--name", "a")
    assert "there is a workspace `a` already" in refused.stderr
    assert "Workspace `a-2`" in init(str(home / "A"), "--yes").stdout


@pytest.mark.parametrize("name", ["", "A b", "x.y", "default"])
def test_a_name_that_no_workspace_can_have_is_refused_with_the_reason(home: Path, name: str) -> None:
    refused = init("--yes", "--name", name)
    assert refused.exit_code == FAILED
    assert not config_file(home).exists()


@pytest.mark.parametrize("folder", ["/", "~", "/gone", "/proc", "/etc/passwd"])
def test_a_folder_that_programs_may_not_see_is_refused(home: Path, folder: str) -> None:
    refused = init(folder, "--yes")
    assert refused.exit_code == FAILED
    assert "--workspace" not in refused.stderr
    assert not config_file(home).exists()
