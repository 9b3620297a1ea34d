"""`mcp-sandbox policy check`: what would happen to a connection, and which line of which file decides."""

from __future__ import annotations

import json
import tomllib
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from click.testing import CliRunner

from mcp_sandbox.cli import cli
from mcp_sandbox.policy_check import PolicyCheck, check
from mcp_sandbox.workspace import Invocation, find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from click.testing import Result

    from mcp_sandbox.egress.policy import IPAddress
    from tests.unit.config.conftest import User

TABLE = """\
[workspaces.other.egress]
allow = ["10.0.0.5:443"]

[workspaces.papers.egress]
# "api.example.com" is not meant
allow = [
  "wiki.example.com", # among others
  "api.example.com",
  '*.example.org:443',
  "10.0.0.5:443",
]
"""


@pytest.fixture(autouse=True)
def at_the_root(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    for variable in ("MCP_SANDBOX_CONFIG", "MCP_SANDBOX_WORKSPACE", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(variable, raising=False)


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["policy", "check", *arguments])


async def examined(
    user: User, host: str, *answers: str, port: int = 443, workspace: str = "papers"
) -> PolicyCheck:
    async def resolve(name: str) -> Sequence[IPAddress]:
        if not answers:
            raise OSError("no such name")
        return [ip_address(answer) for answer in answers]

    found = find(Invocation(None, workspace, {}, user.home, user.places))
    with anyio.fail_after(10):
        return await check(found, host, port, None, resolve=resolve)


def allowed_by(answer: PolicyCheck) -> Any:
    return tomllib.loads(answer.toml)["workspaces"]


@pytest.mark.parametrize(
    ("host", "line", "rule"),
    [
        ("wiki.example.com", 7, "wiki.example.com"),
        ("API.example.com.", 8, "api.example.com"),
        ("a.b.example.org", 9, "*.example.org:443"),
    ],
)
async def test_the_line_that_allows_is_named(user: User, host: str, line: int, rule: str) -> None:
    file = user.write(TABLE)
    answer = await examined(user, host, "93.184.216.34")
    assert (answer.allowed, answer.rule, answer.line) == (True, rule, line)
    assert answer.file == str(file)
    assert answer.addresses == ("93.184.216.34",)
    assert answer.toml == ""


async def test_the_line_that_would_allow_keeps_what_is_allowed(user: User) -> None:
    user.write(TABLE)
    answer = await examined(user, "evil.example.net")
    assert (answer.allowed, answer.rule, answer.line) == (False, None, 6)
    before = tomllib.loads(TABLE)["workspaces"]["papers"]["egress"]["allow"]
    assert allowed_by(answer) == {"papers": {"egress": {"allow": [*before, "evil.example.net:443"]}}}


async def test_a_name_that_points_inside_is_refused_unless_its_address_is_named(user: User) -> None:
    user.write(TABLE)
    refused = await examined(user, "wiki.example.com", "93.184.216.34", "10.0.0.6")
    assert not refused.allowed
    assert refused.why == "wiki.example.com resolves to 10.0.0.6, a private address."
    assert allowed_by(refused)["papers"]["egress"]["allow"][-1] == "10.0.0.6:443"
    assert (await examined(user, "wiki.example.com", "10.0.0.5")).allowed


async def test_a_name_without_an_address_is_no_connection(user: User) -> None:
    user.write(TABLE)
    answer = await examined(user, "api.example.com")
    assert (answer.allowed, answer.why, answer.line) == (False, "api.example.com has no address.", 8)
    assert answer.toml == ""


async def test_an_upstream_proxy_is_given_the_name(user: User) -> None:
    user.write(
        '[workspaces.papers.egress]\nallow = ["a.example"]\nupstream_proxy = "http://p.example:3128"\n'
    )
    answer = await examined(user, "a.example")
    assert (answer.allowed, answer.addresses) == (True, ())


async def test_a_workspace_without_hosts_is_told_which_table_it_lacks(user: User) -> None:
    user.write("[workspaces.papers]\ncpus = 2\n")
    answer = await examined(user, "a.example.com")
    assert (answer.allowed, answer.line) == (False, None)
    assert allowed_by(answer) == {"papers": {"egress": {"allow": ["a.example.com:443"]}}}


async def test_a_folder_without_an_entry_is_given_one(user: User) -> None:
    folder = user.folder('my "data"')
    answer = await examined(user, "a.example.com", workspace=str(folder))
    ((name, entry),) = allowed_by(answer).items()
    assert entry == {"path": str(folder), "egress": {"allow": ["a.example.com:443"]}}
    # It is a configuration that does what it says.
    user.write(answer.toml)
    again = await examined(user, "a.example.com", "93.184.216.34", workspace=str(folder))
    assert (again.allowed, again.workspace) == (True, name)


async def test_where_there_is_neither_folder_nor_entry_an_example_is_given(user: User) -> None:
    answer = await examined(user, "a.example.com", workspace="default")
    assert answer.file is None
    user.write(answer.toml)
    assert user.load(workspace="example").policy.egress.allow == ("a.example.com:443",)


def test_the_exit_status_tells(user: User) -> None:
    file = user.write('[workspaces.w.egress]\nallow = ["203.0.113.7:443", "http://203.0.113.7:8080"]\n')
    allowed = ask("--workspace", "w", "203.0.113.7")
    assert allowed.exit_code == 0
    assert allowed.output.splitlines() == [
        "allowed: 203.0.113.7:443 in the workspace w",
        '  allowed by "203.0.113.7:443"',
        f"  {file} line 2",
    ]
    assert ask("--workspace", "w", "http://203.0.113.7:8080/").exit_code == 0
    for refused in ("203.0.113.7:80", "https://203.0.113.7:8080", "evil.example", "0xcb007107"):
        assert ask("--workspace", "w", refused).exit_code == 1
    for nothing in ("a@b", "ftp://a", "a:99999", "a b:c"):
        assert ask("--workspace", "w", nothing).exit_code == 2
    assert ask("--workspace", "nobody", "a.example").exit_code == 125


def test_a_refusal_shows_what_to_write_and_where(user: User) -> None:
    refused = ask("evil.example:8443")
    assert f"there is no configuration file; it would be {user.places.config_file}" in refused.stdout
    assert refused.stdout.endswith(
        'What would allow it:\n\n[workspaces.example]\n[workspaces.example.egress]\nallow = ["evil.example:8443"]\n'
    )


def test_machines_are_told_the_same(user: User, tmp_path: Path) -> None:
    user.write(TABLE)
    answer = json.loads(ask("--workspace", "papers", "--json", "evil.example").stdout)
    assert (answer["allowed"], answer["host"], answer["port"], answer["line"]) == (
        False,
        "evil.example",
        443,
        6,
    )
