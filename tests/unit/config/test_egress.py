"""Which hosts a workspace's programs may reach, and how, as a file says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.egress.policy import EgressPolicy

if TYPE_CHECKING:
    from tests.unit.config.conftest import User


def test_a_workspace_that_says_nothing_reaches_nothing(user: User) -> None:
    user.write('[workspaces.w]\nmemory = "2GiB"\n[workspaces.x.egress]\nallow = ["a.example.com"]\n')
    assert user.load(workspace="w").policy.egress.allow == ()
    assert user.load(workspace="x").policy.egress.allow == ("a.example.com",)


def test_a_list_of_no_hosts_reaches_nothing(user: User) -> None:
    user.write("[workspaces.w.egress]\nallow = []\n")
    egress = user.load(workspace="w").policy.egress
    assert egress.allow == ()
    assert not EgressPolicy.parse(egress.allow, workspace="w").decide("example.com", 443).allowed


def test_a_file_of_authorities_in_the_home_folder_is_found_there(user: User) -> None:
    user.write('[workspaces.w.egress]\nca_bundle = "~/company.pem"\n')
    assert user.load(workspace="w").policy.egress.ca_bundle == str(user.home / "company.pem")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('allow = ["*"]', "allows everything"),
        ('allow = ["api.example.com/v1"]', "a path cannot be allowed"),
        ('upstream_proxy = "socks5://proxy.example:1080"', "must be an address such as"),
        ('upstream_proxy = "http://user:s3cr3t@proxy.example:3128"', "must be an address such as"),
        ('ca_bundle = "company.pem"', "must be an absolute path"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(user: User, line: str, words: str) -> None:
    user.write(f"[workspaces.w.egress]\n{line}\n")
    assert words in user.refused(workspace="w")
    assert "line 2" in user.refused(workspace="w")
    assert "s3cr3t" not in user.refused(
        workspace="w"
    )  # or what is shown of a policy, and recorded, would hold it
