"""Which authorities a run's programs trust, as one file that goes in with the run, and the variables that name it.

Above: `executor`, which collects the authorities, and `plan`, which sends file and variables. Programs differ in which
variable they read, and most take what it names in place of what they came with: so the public authorities are in the
file as well. It goes in over the run's own stream, for the file on this machine may lie where programs must not look.
"""

from __future__ import annotations

import os
import re
import ssl

import certifi

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.files import open_regular

TRUST_FILE = "/tmp/.authorities.pem"  # noqa: S108  # inside the sandbox: beside /scratch, whose new files come out
"""Where programs find the authorities."""

TRUST_ENVIRONMENT = tuple(
    (name, TRUST_FILE)
    for name in (
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "NODE_EXTRA_CA_CERTS",
        "PIP_CERT",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_FILE",  # OpenSSL: Python's ssl, httpx, aiohttp, uv and most others
    )
)

MAX_BYTES = 1 << 20
"""Of one file of authorities; all public ones together come to a quarter of it."""

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[\sA-Za-z0-9+/=]+-----END CERTIFICATE-----")


def trust_file(*authorities: bytes) -> bytes:
    """Return the file's content: the public authorities, and these."""
    return b"\n".join([certifi.contents().encode("ascii"), *authorities])


def read_authorities(path: str) -> bytes:
    """Return the certificates that a file holds, and nothing else of it: a key beside them is nobody's business.

    Raises:
        ConfigError: It cannot be read, or holds none that can be used.
    """
    certificates = b"\n".join(_CERTIFICATE.findall(_read(path))) + b"\n"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=certificates.decode("ascii"))
    except ssl.SSLError:
        raise _unusable(path, "it holds no certificate, or one that is damaged") from None
    return certificates


def _read(path: str) -> bytes:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unusable(path, (error.strerror or "it cannot be read").lower()) from None
    if len(content) > MAX_BYTES:
        raise _unusable(path, f"it has more than {MAX_BYTES:,} bytes")
    return content


def _unusable(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"`egress.ca_bundle`: {path} cannot be used: {why}.",
        next_step="Name a file of certificates in PEM.",
    )
