"""Which names secrets may have, where they may be written, and what of them is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .conftest import User

SECRETS = "[workspaces.w]\n[workspaces.w.secrets]\n{name} = {source}\n"


def test_the_policy_knows_names_alone(user: User) -> None:
    user.write(SECRETS.format(name="API_KEY", source='{ file = "~/.token" }'))
    configuration = user.load(workspace="w")
    assert configuration.policy.secrets == ("API_KEY",)
    assert str(configuration.secrets["API_KEY"]) == f"the file {user.home}/.token"
    assert ".token" not in configuration.policy.model_dump_json()
    assert "[workspaces.w]" in configuration.sources["secrets"]


def test_other_workspaces_have_none(user: User) -> None:
    user.write(SECRETS.format(name="API_KEY", source='{ env = "X" }') + "[workspaces.other]\n")
    for workspace in ("other", "default"):
        configuration = user.load(workspace=workspace)
        assert configuration.policy.secrets == ()
        assert configuration.secrets == {}


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "ENV", "IFS",
     "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "PROXY", "NODE_OPTIONS", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO",
     "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_INDEX_URL", "NODE_EXTRA_CA_CERTS"],
)  # fmt: skip
def test_a_name_that_changes_how_programs_run_is_refused(user: User, name: str) -> None:
    user.write(SECRETS.format(name=name, source='{ env = "X" }'))
    assert f"`{name}` is reserved" in user.refused(workspace="w")


@pytest.mark.parametrize("name", ["lower", "1ST", '"A B"', '"A=B"', '""', "A-B", "A" * 65, '"Ä"'])
def test_a_name_that_is_no_plain_variable_is_refused(user: User, name: str) -> None:
    user.write(SECRETS.format(name=name, source='{ env = "X" }'))
    assert "must be 1 to 64 of the characters A-Z, 0-9 and _" in user.refused(workspace="w")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{}", "exactly one of env, file, command and keyring"),
        ('{ env = "X", file = "/x" }', "exactly one of env, file, command and keyring"),
        ('{ env = "a=b" }', "the name of an environment variable"),
        ('{ file = "relative" }', "an absolute path"),
        ('{ file = "" }', "must not be empty"),
        ('{ command = "pass show x" }', "must be a list in brackets"),
        ("{ command = [] }", "API_KEY.command"),
        ('{ keyring = "service" }', "a service and a user"),
        ('{ value = "s3cr3t-value" }', "unknown key"),
        ('"s3cr3t-value"', "must be a table"),
    ],
)
def test_a_source_that_is_none_is_an_error_that_shows_no_value(user: User, source: str, words: str) -> None:
    user.write(SECRETS.format(name="API_KEY", source=source))
    told = user.refused(workspace="w")
    assert words in told
    assert "s3cr3t" not in told


def test_a_folder_cannot_have_itself_given_secrets(user: User) -> None:
    user.folder("a", '[secrets]\nAPI_KEY = { env = "X" }\n')
    assert "`secrets` is never accepted in a folder's own file" in user.refused(workspace="~/a")


BOUND = """
[workspaces.w.egress]
allow = ["api.example.com", "*.wild.example:8443", "http://plain.example"]
[workspaces.w.secrets]
API_KEY = {{ env = "X", hosts = [{host}] }}
"""


@pytest.mark.parametrize("host", ['"api.example.com"', '"API.example.com.:443"', '"a.wild.example:8443"', ""])
def test_a_secret_is_bound_to_hosts_that_the_workspace_allows(user: User, host: str) -> None:
    user.write(BOUND.format(host=host))
    policy = user.load(workspace="w").policy
    assert len(policy.bound_hosts) == bool(host)
    assert policy.secrets_of("python").keys() == policy.secrets_of("shell").keys() == {"API_KEY"}


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ('"evil.example"', "egress.allow does not name"),
        ('"api.example.com:8443"', "egress.allow does not name"),
        ('"plain.example"', "egress.allow does not name"),
        ('"wild.example:8443"', "egress.allow does not name"),
        ('"*.wild.example:8443"', "it is not a host name"),
        ('"10.0.0.1"', "to a name alone"),
        ('"https://api.example.com"', "is not host:port"),
        ('"user@api.example.com"', "a user name"),
    ],
)
def test_a_secret_is_bound_to_no_other(user: User, host: str, words: str) -> None:
    user.write(BOUND.format(host=host))
    assert words in user.refused(workspace="w")


def test_a_secret_is_for_the_tools_that_are_named(user: User) -> None:
    user.write(SECRETS.format(name="API_KEY", source='{ env = "X", tools = ["execute_python"] }'))
    policy = user.load(workspace="w").policy
    assert policy.secrets_of("python").keys() == {"API_KEY"}
    assert policy.secrets_of("shell") == {}
    for tools in ("[]", '["run"]', '"execute_python"'):
        user.write(SECRETS.format(name="API_KEY", source=f'{{ env = "X", tools = {tools} }}'))
        assert "API_KEY.tools" in user.refused(workspace="w")
