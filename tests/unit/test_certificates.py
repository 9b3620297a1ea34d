"""What a run's programs trust: the public authorities, what the person named, and nothing else of that file."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

import certifi
import pytest
import trustme

from mcp_sandbox.certificates import MAX_BYTES, TRUST_ENVIRONMENT, TRUST_FILE, read_authorities, trust_file
from mcp_sandbox.config.policy import Policy
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.model import ExecutionRequest
from mcp_sandbox.plan import plan, ready_spec, spec

if TYPE_CHECKING:
    from pathlib import Path

CALL = ExecutionRequest(language="python", code="print(1)", files=(("a.txt", b"a"),))
EGRESS = {"allow": ("api.example.com",), "ca_bundle": "/etc/company.pem"}


def subjects(pem: bytes) -> set[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem.decode("ascii"))
    return {str(dict(part[0] for part in found["subject"])) for found in context.get_ca_certs()}


def test_programs_trust_the_public_authorities_and_those_that_were_added() -> None:
    own, other = trustme.CA(organization_name="Own"), trustme.CA(organization_name="Other")
    added = [authority.cert_pem.bytes() for authority in (own, other)]
    trusted = subjects(trust_file(*added))
    public = subjects(certifi.contents().encode())
    assert len(public) > 100
    assert trusted == public | subjects(added[0]) | subjects(added[1])


def test_only_certificates_leave_the_file_that_holds_them(tmp_path: Path) -> None:
    authority = trustme.CA()
    file = tmp_path / "company.pem"
    file.write_bytes(
        b"# our authority\r\n" + authority.private_key_pem.bytes() + authority.cert_pem.bytes() + b"end of it"
    )
    content = read_authorities(str(file))
    assert subjects(content) == subjects(authority.cert_pem.bytes())
    assert b"PRIVATE" not in content
    assert b"our authority" not in content


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is damaged"),
        (trustme.CA().private_key_pem.bytes(), "holds no certificate"),
        (bytes(MAX_BYTES + 1), "more than"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_run_and_is_named(
    tmp_path: Path, content: bytes, why: str
) -> None:
    file = tmp_path / "company.pem"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"`egress.ca_bundle`: {file} cannot be used: .*{why}"):
        read_authorities(str(file))


def test_what_is_no_file_stops_the_run_and_is_waited_for_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "no regular file"), ("none", "no such file"), (".", "is a directory|no reg")):
        with pytest.raises(ConfigError, match=why):
            read_authorities(str(tmp_path / name))


def test_the_file_and_the_variables_that_name_it_go_in_together() -> None:
    policy = Policy.model_validate({"egress": EGRESS})
    planned = plan(CALL, policy, authorities=[b"ours"])
    files = dict(planned.program.files)
    assert files["a.txt"] == b"a"
    assert files[TRUST_FILE].endswith(b"ours")
    assert set(TRUST_ENVIRONMENT) <= set(planned.spec.environment)
    # One that waits serves any call: what differs from run to run is the file's content alone.
    assert ready_spec(policy).environment == planned.spec.environment


@pytest.mark.parametrize("egress", [{"allow": ("api.example.com",)}, {"ca_bundle": "/etc/company.pem"}, {}])
def test_without_hosts_or_an_authority_of_its_own_a_run_is_left_as_it_is(egress: dict[str, object]) -> None:
    policy = Policy.model_validate({"egress": egress})
    assert not {name for name, _ in TRUST_ENVIRONMENT} & {name for name, _ in spec(policy).environment}
    assert [path for path, _ in plan(CALL, policy).program.files] == ["a.txt"]
