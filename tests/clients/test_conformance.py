"""The official conformance suite, over HTTP: all of it, less what it can only try on a server written for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.clients.http_server import TOKEN, serving_http
from tests.clients.raw import configuration_file
from tests.clients.test_clients import HERE, installed, run

if TYPE_CHECKING:
    from pathlib import Path

GENERIC = {
    "2025-11-25": {
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "resources-list",
        "prompts-list",
        "completion-complete",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    },
    "2026-07-28": {
        "server-stateless",
        "tools-list",
        "resources-list",
        "prompts-list",
        "server-sse-multiple-streams",
        "sep-2164-resource-not-found",
        "caching",
        "http-header-validation",
        "dns-rebinding-protection",
        "completion-complete",
    },
}
"""What says something of any server, and so must be among what ran."""


@pytest.mark.engine
@pytest.mark.parametrize("version", GENERIC)
async def test_the_server_is_what_the_protocol_says(version: str, engine_host: str, tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    node = installed("conformance/node")
    with serving_http(configuration_file(tmp_path, engine_host), ["--workspace", str(folder)]) as server:
        ended = await run(
            [
                *(
                    node,
                    "--import",
                    HERE / "token.mjs",
                    node.parent / "node_modules/.bin/conformance",
                    "server",
                ),
                *("--url", server.url, "--suite", "all", "--spec-version", version),
                *("--expected-failures", HERE / "conformance.yml", "-o", tmp_path / "checks"),
            ],
            tmp_path,
            TOKEN=TOKEN,
        )
    assert ended.returncode == 0, ended.stdout[-5000:]
    checked = {
        path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("checks/*/checks.json")
    }
    for scenario in GENERIC[version]:
        assert any(name.startswith(f"server-{scenario}-") for name in checked), scenario
    on_the_wire = [
        check for checks in checked.values() for check in checks if check["id"] == "wire-schema-valid"
    ]
    assert on_the_wire
    assert {check["status"] for check in on_the_wire} == {"SUCCESS"}
