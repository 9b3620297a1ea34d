"""The table of clients, and the snippets that are made from it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.reference import BEGIN, END, clients_markdown
from mcp_sandbox.clients.table import CLIENTS, Client

from .conftest import LAUNCH


def test_every_client_that_is_promised_is_there() -> None:
    assert list(CLIENTS) == [
        "claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "zed", "codex", "gemini", "opencode"
    ]  # fmt: skip


def test_a_snippet_is_a_whole_file_that_holds_the_entry(client: Client) -> None:
    text = client.snippet("sandbox", LAUNCH)
    data = tomllib.loads(text) if client.format == "toml" else json.loads(text)
    for key in client.servers[0]:
        data = data[key]
    assert list(data) == ["sandbox"]
    assert client.shape.launch(data["sandbox"]) == LAUNCH


def test_entries_are_as_the_clients_documents_say() -> None:
    launch = Launch("/bin/mcp-sandbox", ("serve",), {"A": "b"})
    entries = {name: client.shape.entry(launch) for name, client in CLIENTS.items()}
    plain = {"command": "/bin/mcp-sandbox", "args": ["serve"], "env": {"A": "b"}}
    for name in ("claude-desktop", "cursor", "windsurf", "zed", "codex", "gemini"):
        assert entries[name] == plain
    for name in ("claude-code", "vscode"):
        assert entries[name] == {"type": "stdio", **plain}
    assert entries["opencode"] == {
        "type": "local", "command": ["/bin/mcp-sandbox", "serve"], "environment": {"A": "b"}
    }  # fmt: skip


@pytest.mark.parametrize(
    "entry", [None, 7, [], {}, {"url": "https://x"}, {"command": {"path": "x"}}, {"command": []}]
)
def test_entries_that_start_nothing_are_passed_over(client: Client, entry: object) -> None:
    assert client.shape.launch(entry) is None


@pytest.mark.parametrize(
    "launch",
    [
        Launch("/home/a/.local/bin/mcp-sandbox"),
        Launch("mcp-sandbox", ("serve",)),
        Launch("/usr/bin/python3", ("-m", "mcp_sandbox")),
        Launch("uvx", ("mcp-sandbox",)),
        Launch("uvx", ("mcp-sandbox@1.0", "serve")),
        Launch("pipx", ("run", "mcp-sandbox==1.0")),
        Launch("C:/x/mcp-sandbox.exe"),
    ],
    ids=lambda launch: f"{launch.command} {' '.join(launch.args)}",
)
def test_what_starts_this_program_is_known(launch: Launch) -> None:
    assert launch.starts_us


@pytest.mark.parametrize(
    "launch",
    [
        Launch("npx", ("mcp-sandbox-toolkit",)),
        Launch("/bin/sandbox"),
        Launch("docker", ("run", "x/mcp-sandbox:1")),
    ],
)
def test_what_starts_another_is_not_taken_for_it(launch: Launch) -> None:
    assert not launch.starts_us


def test_variables_move_a_clients_file() -> None:
    home = Path("/home/ada")
    moved = {"XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/k"}
    files = {name: str(client.files(home, moved)[0]) for name, client in CLIENTS.items()}
    assert files["zed"] == "/x/zed/settings.json"
    assert files["codex"] == "/c/config.toml"
    assert files["claude-code"] == "/k/.claude.json"
    assert files["cursor"] == "/home/ada/.cursor/mcp.json"


def test_a_client_is_here_where_its_folder_is(client: Client, home: Path) -> None:
    home.mkdir()
    assert not client.is_here(home, {})
    folder = home / client.trace.removeprefix("~/") if client.trace else client.files(home, {})[0].parent
    folder.mkdir(parents=True)
    assert client.is_here(home, {})


def test_the_docs_are_up_to_date() -> None:
    docs = Path(__file__).parents[3] / "docs" / "clients.md"
    assert BEGIN + clients_markdown() + END in docs.read_text(), (
        "run `python -m mcp_sandbox.clients.reference`"
    )
