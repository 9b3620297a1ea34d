"""What a person sees who tells clients of this server, and takes it out again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from mcp_sandbox.cli import FAILED, cli
from mcp_sandbox.clients.file import client_file
from mcp_sandbox.clients.table import CLIENTS

from .conftest import existing, lay

if TYPE_CHECKING:
    from click.testing import Result

    from mcp_sandbox.clients.launch import Launch

NOWHERE = "unix:///nonexistent/docker.sock"
COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))


@pytest.fixture(autouse=True)
def _a_user_of_our_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests off the developer's own clients and configuration."""
    home.mkdir()
    for variable in list(os.environ):
        if variable.startswith(("XDG_", "MCP_SANDBOX_", "DOCKER_")) or variable in (
            "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CLAUDE_PROJECT_DIR"
        ):  # fmt: skip
            monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.chdir("/")


def run(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*arguments], input=typed)


def configure(home: Path, *workspaces: str) -> None:
    file = home / ".config/mcp-sandbox/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    for workspace in workspaces:
        (home / workspace).mkdir()
    file.write_text("".join(f'[workspaces.{each}]\npath = "~/{each}"\n' for each in workspaces))


def ours(name: str, home: Path) -> dict[str, Launch]:
    return client_file(CLIENTS[name], home, {}).ours


def files(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_the_entry_has_absolute_paths_and_the_address_of_the_engine(home: Path) -> None:
    result = run("install", "cursor")
    assert "Cursor: `sandbox` is in ~/.cursor/mcp.json" in result.stdout
    launch = ours("cursor", home)["sandbox"]
    assert Path(launch.command).is_absolute()
    assert os.access(launch.command, os.X_OK)
    assert launch.args == ("serve",)
    assert launch.env == {"DOCKER_HOST": NOWHERE}


def test_without_an_engine_the_entry_is_written_and_the_doctor_says_what_is_missing(home: Path) -> None:
    result = run("install", "cursor")
    assert result.exit_code == 1
    assert "engine" in result.stdout
    assert "checks failed" in result.stdout
    assert ours("cursor", home)


def test_the_one_workspace_that_is_configured_is_the_servers(home: Path) -> None:
    configure(home, "reports")
    run("install", "zed")
    assert ours("zed", home)["sandbox"].args == ("serve", "--workspace", "reports")


def test_of_several_workspaces_one_has_to_be_named_and_more_stand_side_by_side(home: Path) -> None:
    configure(home, "reports", "sales")
    refused = run("install", "zed")
    assert refused.exit_code == FAILED
    assert "several workspaces are configured: reports, sales." in refused.stderr
    assert not ours("zed", home)
    run("install", "zed", "--workspace", "reports", "--workspace", "sales")
    assert {name: launch.args[-1] for name, launch in ours("zed", home).items()} == {
        "sandbox-reports": "reports",
        "sandbox-sales": "sales",
    }


def test_a_folder_is_made_absolute(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "my data").mkdir()
    monkeypatch.chdir(home)
    run("install", "zed", "--workspace", "./my data")
    assert ours("zed", home)["sandbox-my-data"].args == ("serve", "--workspace", f"{home}/my data")


def test_a_workspace_that_is_not_there_is_refused_before_anything_is_written(home: Path) -> None:
    before = files(home)
    refused = run("install", "--workspace", "gone", "zed", "cursor")
    assert refused.exit_code == FAILED
    assert "there is no workspace `gone`" in refused.stderr
    assert files(home) == before


def test_a_folder_that_a_client_would_not_take_literally_is_refused(home: Path) -> None:
    (home / "a$HOME").mkdir()
    refused = run("install", "gemini", "--workspace", f"{home}/a$HOME")
    assert "has a part that some clients replace" in refused.stderr
    assert not ours("gemini", home)


def test_what_says_where_the_configuration_is_comes_along(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    other = home / "other.toml"
    other.write_text("[workspaces.a]\n")
    run("install", "cursor", "--config", str(other))
    launch = ours("cursor", home)["sandbox"]
    assert launch.args == ("serve", "--config", str(other), "--workspace", "a")
    assert launch.env["XDG_STATE_HOME"] == str(home / "state")


def test_print_gives_the_snippet_alone_and_writes_nothing(home: Path) -> None:
    before = files(home)
    shown = run("install", "vscode", "--print")
    entry = json.loads(shown.stdout)["servers"]["sandbox"]
    assert entry["type"] == "stdio"
    assert entry["args"] == ["serve"]
    assert shown.exit_code == 0
    assert files(home) == before


def test_dry_run_shows_the_difference_and_writes_nothing(home: Path) -> None:
    lay(CLIENTS["zed"], home, existing(CLIENTS["zed"]))
    before = files(home)
    shown = run("install", "zed", "cursor", "--dry-run")
    assert shown.exit_code == 0
    assert '+    "sandbox": {' in shown.stdout
    assert "--- /dev/null" in shown.stdout
    assert not [
        line for line in shown.stdout.splitlines() if line.startswith("-") and not line.startswith("---")
    ]
    assert files(home) == before
    run("install", "zed")
    before = files(home)
    shown = run("uninstall", "zed", "--dry-run")
    assert '-    "sandbox": {' in shown.stdout
    assert files(home) == before


def test_a_difference_cannot_take_over_the_terminal(home: Path) -> None:
    lay(CLIENTS["cursor"], home, b'{\n  "mcpServers": {\n    "x": {} // \x1b]0;owned\x07\n  }\n}\n')
    shown = run("install", "cursor", "--dry-run").stdout
    assert "\x1b" not in shown
    assert "\\x1b]0;owned\\x07" in shown


def test_one_broken_file_keeps_no_other_client_back(home: Path) -> None:
    broken = lay(CLIENTS["claude-desktop"], home, b"{")
    (home / ".cursor").mkdir()
    result = run("install", "--all")
    assert result.exit_code == FAILED
    assert "Claude Desktop: config_invalid:" in result.stderr
    assert "Nothing was written." in result.stderr
    assert broken.read_bytes() == b"{"
    assert ours("cursor", home)


def test_all_is_every_client_that_is_found(home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".gemini").mkdir()
    run("install", "--all")
    assert set(files(home)) >= {".codex/config.toml", ".gemini/settings.json"}
    assert not (home / ".cursor").exists()


def test_all_of_none_is_an_error(home: Path) -> None:
    result = run("install", "--all")
    assert result.exit_code == 2
    assert "no client is found here" in result.stderr


def test_a_client_that_is_not_found_here_is_said(home: Path) -> None:
    shown = run("install", "windsurf")
    assert ours("windsurf", home)
    assert "Windsurf was not found here: its file is new." in shown.stdout


def test_without_a_client_what_is_found_and_configured_is_listed(home: Path) -> None:
    configure(home, "reports")
    run("install", "zed", "--workspace", "reports")
    lay(CLIENTS["cursor"], home, b"{")
    shown = run("install")
    assert shown.exit_code == 0
    rows = {line.split()[0]: line for line in shown.stdout.splitlines() if line}
    assert "yes" in rows["zed"]
    assert "sandbox-reports in ~/.config/zed/settings.json" in rows["zed"]
    assert "not valid JSON" in rows["cursor"]
    assert rows["windsurf"].split()[-2:] == ["no", "-"]


def test_install_twice_changes_nothing_the_second_time(home: Path) -> None:
    run("install", "codex")
    before = files(home / ".codex")
    assert "Codex: nothing to change in ~/.codex/config.toml" in run("install", "codex").stdout
    assert files(home / ".codex") == before


def test_uninstall_takes_every_entry_of_ours_and_no_other(home: Path) -> None:
    configure(home, "reports", "sales")
    path = lay(CLIENTS["zed"], home, existing(CLIENTS["zed"]))
    run("install", "zed", "--workspace", "reports", "--workspace", "sales")
    shown = run("uninstall", "zed")
    assert shown.exit_code == 0
    assert "Zed: `sandbox-reports` and `sandbox-sales` are out of ~/.config/zed/settings.json" in shown.stdout
    assert path.read_bytes() == existing(CLIENTS["zed"])
    assert "nothing to change" in run("uninstall", "zed").stdout


def test_uninstall_of_one_workspace_leaves_the_others(home: Path) -> None:
    configure(home, "reports", "sales")
    run("install", "zed", "--workspace", "reports", "--workspace", "sales")
    run("uninstall", "zed", "--workspace", "sales")
    assert set(ours("zed", home)) == {"sandbox-reports"}
    run("uninstall", "zed", "--name", "sandbox-reports")
    assert not ours("zed", home)


def test_a_name_of_ones_own_is_for_one_entry(home: Path) -> None:
    configure(home, "reports", "sales")
    assert (
        run("install", "zed", "--name", "box", "--workspace", "reports", "--workspace", "sales").exit_code
        == 2
    )
    run("install", "zed", "--name", "box", "--workspace", "reports")
    assert set(ours("zed", home)) == {"box"}


def test_a_module_in_the_clients_folder_is_not_started_in_our_place(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = sys.executable
    (home / "mcp_sandbox").mkdir()
    (home / "mcp_sandbox/__main__.py").write_text("print('hijacked')")
    monkeypatch.setattr(sys, "executable", str(home / "python"))  # with no script beside it
    monkeypatch.setattr(sys, "argv", ["-m"])
    run("install", "cursor")
    launch = ours("cursor", home)["sandbox"]
    assert launch.command == str(home / "python")
    words = [python, *launch.args[: launch.args.index("serve")], "--version"]
    shown = subprocess.run(words, cwd=home, capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.startswith("mcp-sandbox, version ")


def test_a_home_that_is_nobodys_is_no_crash(home: Path) -> None:
    for command in ("install", "uninstall"):
        result = run(command, "cursor", "--workspace", "~nobody-of-that-name/x")
        assert not isinstance(result.exception, RuntimeError)


def test_a_name_that_some_client_would_not_take_is_refused(home: Path) -> None:
    for name in ("", "a b", "a\x1b[2J", "ä", "x" * 49):
        assert run("install", "zed", "--name", name).exit_code == 2
    assert not ours("zed", home)


def test_names_from_a_file_cannot_take_over_the_terminal(home: Path) -> None:
    lay(CLIENTS["cursor"], home, b'{"mcpServers": {"\\u001b]0;x\\u0007": {"command": "mcp-sandbox"}}}')
    assert "\x1b" not in run("install").stdout
    assert "\\x1b]0;x" in run("uninstall", "cursor").stdout
    assert not ours("cursor", home)


def test_a_copy_in_a_cache_is_not_what_a_client_is_told_to_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = home / ".cache/uv"
    (cache / "archive-v0/x").mkdir(parents=True)
    (cache / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    monkeypatch.setattr(sys, "prefix", str(cache / "archive-v0/x"))
    refused = run("install", "cursor")
    assert "lies in a cache that is emptied" in refused.stderr
    assert "uv tool install mcp-sandbox" in refused.stderr
    assert not ours("cursor", home)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Take an engine's place that has no image, and note what is to be built."""
    noted: list[dict[str, object]] = []

    async def nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr("mcp_sandbox.app.image_now", nothing)
    monkeypatch.setattr("mcp_sandbox.cli.image.build.callback", lambda **given: noted.append(given))
    return noted


def test_a_missing_image_is_built_where_that_was_said(
    home: Path, builds: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = home / "ca.pem"
    certificates.touch()
    monkeypatch.setenv("PIP_CERT", str(certificates))
    other = home / "other.toml"
    other.write_text('[defaults]\nimage = "mcp-sandbox/minimal"\n')
    run("install", "cursor", "--yes", "--config", str(other))
    assert [(built["minimal"], built["config_file"], built["ca_bundle"]) for built in builds] == [
        (True, other, certificates)
    ]


def test_nothing_is_built_unasked(home: Path, builds: list[dict[str, object]]) -> None:
    run("install", "cursor")
    (home / "other.toml").write_text('[defaults]\nimage = "my/own"\n')
    run("install", "cursor", "--yes", "--config", str(home / "other.toml"))
    assert builds == []


def test_check_says_which_entry_starts_nothing(home: Path) -> None:
    run("install", "cursor")
    path = home / ".cursor/mcp.json"
    entry = ours("cursor", home)["sandbox"]
    path.write_text(path.read_text().replace(entry.command, f"{home}/gone/mcp-sandbox"))
    shown = run("install", "--check")
    assert shown.exit_code == 1
    assert "Cursor: `sandbox` does not work: it did not start: " in shown.stderr
    assert "No such file or directory" in shown.stderr


def test_the_commands_start_without_what_they_do_not_need() -> None:
    program = (
        "import sys; from mcp_sandbox.cli import cli; cli(['uninstall', '--help'], standalone_mode=False)\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'docker', 'mcp', 'tomlkit', 'pydantic'})"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.endswith("set()\n")
