"""The authority in whose name the proxy opens TLS to the hosts that secrets are bound to.

Made in memory for one server, and gone with it: no file ever holds a key. Only its runs trust it, and by its own
constraint it can speak for those hosts alone. Above: `executor`, which sends its certificate into runs, and
`egress.proxy`.
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable

_SKEW = timedelta(days=1)
"""A sandbox's clock may be another machine's."""
_YEARS = timedelta(days=3650)
"""Longer than a server lives."""


class Authority:
    """Signs for some hosts, to programs that were told to trust it."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mcp-sandbox, bound secrets")])
        key_usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        allowed = x509.NameConstraints([x509.DNSName(host) for host in sorted(set(hosts))], None)
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage, critical=True)
            .add_extension(allowed, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def pem(self) -> bytes:
        """Its certificate, for programs to trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def towards_programs(self, host: str) -> ssl.SSLContext:
        """Return what speaks TLS as that host."""
        if host not in self._contexts:
            self._contexts[host] = self._speak_for(host)
        return self._contexts[host]

    def _speak_for(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(x509.Name([]), key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_alpn_protocols(["http/1.1"])
        _load(
            context,
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _YEARS)
        )


def towards_hosts(authorities: Iterable[bytes] = ()) -> ssl.SSLContext:
    """Return what verifies a host as every client does; `authorities` are trusted beside the public ones."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())  # some systems' Pythons come without
    for more in authorities:
        context.load_verify_locations(cadata=more.decode("ascii"))
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load certificate and key through pipes: `ssl` takes names of files alone, and no file is to hold a key."""
    ends = [_piped(content) for content in (certificate, key)]
    try:
        context.load_cert_chain(*(f"/dev/fd/{end}" for end in ends))
    finally:
        for end in ends:
            os.close(end)


def _piped(content: bytes) -> int:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(content)  # less than any pipe holds
    return reader
