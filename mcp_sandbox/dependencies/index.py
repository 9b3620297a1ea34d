"""Where packages come from, what may be reached for them, and how pip is told.

The configuration names the index; where it does not, what the environment tells pip on this machine holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcp_sandbox.certificates import read_authorities, trust_file
from mcp_sandbox.egress.dial import upstream_proxy
from mcp_sandbox.egress.policy import EgressPolicy, authority
from mcp_sandbox.errors import PackagesUnavailable
from mcp_sandbox.guest.protocol import PROXY_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.egress.dial import UpstreamProxy

PYPI = "https://pypi.org/simple"
PYPI_FILES = "files.pythonhosted.org"
"""Where PyPI's pages say that its files are."""
RETRIES = 2

_BUNDLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Index:
    """One index, as a workspace may use it."""

    url: str = field(repr=False)
    """May hold a password, where the environment gave it."""
    policy: EgressPolicy
    upstream: UpstreamProxy | None
    ca_bundle: bytes

    def environment(self) -> dict[str, str]:
        """Return what pip finds in its environment; nothing that the image says to pip counts."""
        host = urlsplit(self.url).hostname or ""
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": self.url,
            "PIP_CERT": "/scratch/ca.pem",
            # Not HTTP_PROXY, which pip passes over for an index at an address of NO_PROXY.
            "PIP_PROXY": f"http://127.0.0.1:{PROXY_PORT}",
            "PIP_RETRIES": str(RETRIES),
            "PIP_NO_INPUT": "1",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_PROGRESS_BAR": "off",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        } | ({"PIP_TRUSTED_HOST": host} if self.url.startswith("http:") else {})

    @property
    def secrets(self) -> dict[str, bytes]:
        """What of the address nobody is to read."""
        password = urlsplit(self.url).password
        return {"PIP_INDEX_URL": password.encode()} if password else {}


def index_of(policy: Policy, environ: Mapping[str, str]) -> Index:
    """Return the index of a workspace.

    Raises:
        PackagesUnavailable: The environment names one that cannot be used.
        ConfigError: The certificates cannot be read.
    """
    url = policy.dependencies.index or environ.get("PIP_INDEX_URL", "") or PYPI
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
        own = f"{parts.scheme}://{authority(host, port)}"
        further = [PYPI_FILES] if url.rstrip("/") == PYPI else []
        implied = (own, *further)
        egress = replace(
            EgressPolicy.parse((*implied, *policy.dependencies.allow), workspace=policy.workspace),
            table="dependencies",
            implied=frozenset(implied),
        )
    except ValueError as error:
        raise PackagesUnavailable(
            f"PIP_INDEX_URL names no index that can be used: {error}.",
            next_step=f"Correct it, or name one, {toml_line(policy, 'index', PYPI)}",
        ) from None
    return Index(url, egress, upstream_proxy(policy.egress.upstream_proxy), _certificates(policy, environ))


def _certificates(policy: Policy, environ: Mapping[str, str]) -> bytes:
    """Return what pip trusts: the public authorities, and those that this machine's settings add."""
    said = policy.egress.ca_bundle or next(filter(None, map(environ.get, _BUNDLES)), "")
    return trust_file(*([read_authorities(said)] if said else []))


def toml_line(policy: Policy, key: str, value: str) -> str:
    """Write a key of this workspace's packages as it stands in the configuration."""
    return f"under [workspaces.{policy.workspace}.dependencies]: {key} = {json.dumps(value)}"
