"""The forms in which people get the program: each is made, and what comes out of it starts."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import pytest

from mcp_sandbox import __version__
from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.table import CLIENTS
from tests.clients.raw import ANSWER_SECONDS, INITIALIZE

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = REPOSITORY / ".venv" / "bin"
PUBLISHED = Launch("uvx", ("mcp-sandbox", "serve"))
INSTALL_SECONDS = 8 * ANSWER_SECONDS
"""Fetching and installing what the package depends on."""

TEXT = {"type": "string", "minLength": 1}
SERVER_JSON: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["$schema", "name", "title", "description", "version", "packages"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {
            "type": "string",
            "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
            "minLength": 3,
            "maxLength": 200,
        },
        "title": {**TEXT, "maxLength": 100},
        "description": {**TEXT, "maxLength": 100},
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "packages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["registryType", "identifier", "version", "runtimeHint", "transport"],
                "properties": {
                    "registryType": {"const": "pypi"},
                    "identifier": {"const": "mcp-sandbox"},
                    "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                    "runtimeHint": {"const": "uvx"},
                    "transport": {"const": {"type": "stdio"}},
                    "packageArguments": {
                        "type": "array",
                        "items": {
                            "oneOf": [
                                {
                                    "additionalProperties": False,
                                    "required": ["type", "value"],
                                    "properties": {"type": {"const": "positional"}, "value": TEXT},
                                },
                                {
                                    "additionalProperties": False,
                                    "required": ["type", "name", "description"],
                                    "properties": {
                                        "type": {"const": "named"},
                                        "name": {"type": "string", "pattern": "^--"},
                                        "format": {"enum": ["string", "number", "boolean", "filepath"]},
                                        "description": TEXT,
                                    },
                                },
                            ]
                        },
                    },
                },
            },
        },
    },
}
"""What the registry's schema of 2025-12-11 asks of the keys that are used here, and no others."""


def said(name: str) -> Any:
    return json.loads((REPOSITORY / name).read_text("utf-8"))


def test_the_registry_would_take_the_entry() -> None:
    jsonschema.validate(said("server.json"), SERVER_JSON)
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    assert f"<!-- mcp-name: {said('server.json')['name']} -->" in readme, (
        "the registry looks for it on the index"
    )


def test_one_version_is_said_everywhere() -> None:
    assert said("server.json")["version"] == __version__
    assert [package["version"] for package in said("server.json")["packages"]] == [__version__]
    assert said("bundle/manifest.json")["version"] == __version__
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "mcp_sandbox/__init__.py"


def link(host: str) -> dict[str, str]:
    """Return what a link of the README would have a client add."""
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    [address] = re.findall(rf"\]\((https://{re.escape(host)}/[^)]*)\)", readme)
    return {name: value for name, [value] in parse_qs(urlsplit(address).query).items()}


def test_the_install_links_say_what_the_installer_would_write() -> None:
    vscode = link("insiders.vscode.dev")
    assert vscode["name"] == "sandbox"
    assert json.loads(vscode["config"]) == CLIENTS["vscode"].shape.entry(PUBLISHED)
    cursor = link("cursor.com")
    assert cursor["name"] == "sandbox"
    assert json.loads(base64.b64decode(cursor["config"], validate=True)) == CLIENTS["cursor"].shape.entry(
        PUBLISHED
    )


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which nothing of this project's is found; packages come as they do for everybody."""
    settings = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("UV_", "PIP_", "SSL_", "HTTP", "http"))
    }
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return {
        **settings,
        "HOME": str(home),
        "XDG_CACHE_HOME": cache,
        "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin",
    }


def run(*command: object, home: Path, **more: Any) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        **more,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home of a person who has uv, and nothing else."""
    (tmp_path / "bin").mkdir()
    for program in ("uv", "uvx"):
        (tmp_path / "bin" / program).symlink_to(BIN / program)
    return tmp_path


@pytest.mark.timeout(600)
def test_the_wheel_starts_where_nothing_else_is_installed(home: Path) -> None:
    run(
        BIN / "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        home / "dist",
        REPOSITORY,
        home=home,
    )
    [wheel] = (home / "dist").glob("*.whl")
    assert wheel.name == f"mcp_sandbox-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "py.typed",
        "image/Dockerfile",
        "engines/docker/seccomp/profile.json",
        "doctor/attacks/kernel.toml",
    ):
        assert f"mcp_sandbox/{needed}" in names
    assert {name.partition("/")[0] for name in names} == {
        "mcp_sandbox",
        f"mcp_sandbox-{__version__}.dist-info",
    }
    shown = run("uvx", "--from", wheel, "mcp-sandbox", "--version", home=home)
    assert shown.split()[-1] == __version__


@pytest.mark.timeout(600)
def test_the_bundle_starts_as_claude_desktop_would_start_it(home: Path) -> None:
    made = subprocess.run(
        [REPOSITORY / "scripts/bundle"], capture_output=True, text=True, check=True, timeout=INSTALL_SECONDS
    )
    bundle = REPOSITORY / made.stdout.strip()
    assert bundle.name == f"mcp-sandbox-{__version__}.mcpb"
    unpacked, workspace = home / "extension", home / "papers"
    workspace.mkdir()
    with zipfile.ZipFile(bundle) as archive:
        assert not [
            name for name in archive.namelist() if "__pycache__" in name or name.startswith((".", "tests"))
        ]
        archive.extractall(unpacked)
    start = json.loads((unpacked / "manifest.json").read_text())["server"]["mcp_config"]
    filled = json.loads(
        json.dumps(start)
        .replace("${__dirname}", str(unpacked))
        .replace("${user_config.workspace}", str(workspace))
    )
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    answer = subprocess.run(
        [filled["command"], *filled["args"]],
        env={**environment(home), **filled["env"]},
        cwd="/",
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    greeting = json.loads(answer.stdout)["result"]
    assert greeting["serverInfo"] == {"name": "mcp-sandbox", "title": "MCP Sandbox", "version": __version__}
    assert "the person's files appear in it" in greeting["instructions"]
