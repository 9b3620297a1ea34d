"""Secrets that a run may use at some hosts without ever holding them.

The run holds a placeholder. In requests over TLS to the hosts that a secret is bound to, the proxy puts the value in
the placeholder's place: in the values of headers, and in what Basic authorization encodes. What comes back is searched
for the value, in the forms that `redact` knows, and stars are written over it: as many as it has bytes, so that no
length that HTTP states changes.

Pure. Above: `egress.proxy` and `egress.relay`. Below: `redact`.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import h11

from mcp_sandbox.egress.policy import bound_host
from mcp_sandbox.redact import RedactedStream, Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IN_A_HEADER = re.compile(rb"[!-~](?:[ -~]*[!-~])?")
"""What a header can carry: printable ASCII, no space at either end."""
_NOT_SEARCHABLE = "the host answered in an encoding that cannot be searched for secrets"


@dataclass(frozen=True, slots=True)
class BoundSecret:
    """One secret, the hosts that may have it, and what one run holds in its place."""

    name: str
    value: bytes = field(repr=False)
    hosts: frozenset[tuple[str, int]]
    placeholder: bytes

    @classmethod
    def make(cls, name: str, value: bytes, hosts: Iterable[str]) -> BoundSecret:
        """Return it with a placeholder that nobody can have known before."""
        placeholder = f"mcp-sandbox-{name}-{secrets.token_hex(16)}".encode("ascii")
        return cls(name, value, frozenset(map(bound_host, hosts)), placeholder)


class HostSecrets:
    """The secrets that one host may have."""

    def __init__(self, bound: Sequence[BoundSecret]) -> None:
        self.names = tuple(secret.name for secret in bound)
        self._bound = bound
        self._stars = _Stars({secret.name: secret.value for secret in bound})

    def put_in(self, request: h11.Request) -> tuple[h11.Request, tuple[str, ...]]:
        """Return a request with values for placeholders, and the names of those that it now holds."""
        used: set[str] = set()
        headers = [
            (name, self._authorization(value, used) if name == b"authorization" else self._value(value, used))
            for name, value in request.headers
            if name != b"accept-encoding"
        ]
        headers.append(
            (b"accept-encoding", b"identity")
        )  # what is compressed cannot be searched on its way back
        return h11.Request(method=request.method, target=request.target, headers=headers), tuple(sorted(used))

    def returning(self) -> Returning:
        """Return what one response passes through."""
        return Returning(self._stars)

    def _value(self, value: bytes, used: set[str]) -> bytes:
        for secret in self._bound:
            if secret.placeholder in value:
                used.add(secret.name)
                value = value.replace(secret.placeholder, secret.value)
        return value

    def _authorization(self, value: bytes, used: set[str]) -> bytes:
        scheme, _, encoded = value.partition(b" ")
        if scheme.lower() != b"basic":
            return self._value(value, used)
        try:
            decoded = base64.b64decode(encoded.strip(), validate=True)
        except binascii.Error:
            return value
        return scheme + b" " + base64.b64encode(self._value(decoded, used))


class Returning:
    """One response on its way to a program that must not learn a secret from it."""

    def __init__(self, stars: Redactor) -> None:
        self._stars = stars
        self._body = RedactedStream(stars)

    def head(self, response: h11.Response) -> h11.Response:
        """Return the head without secrets.

        Raises:
            ValueError: The body that follows could not be searched.
        """
        for name, value in response.headers:
            if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                raise ValueError(_NOT_SEARCHABLE)
        return h11.Response(
            status_code=response.status_code,
            headers=[(name, self._stars(value)) for name, value in response.headers],
            reason=self._stars(bytes(response.reason)),
        )

    def data(self, data: bytes) -> bytes:
        """Return what of the body so far holds no part of a secret."""
        return self._body.feed(data)

    def rest(self) -> bytes:
        """Return the rest of the body."""
        return self._body.end(cut=False)


class Bound:
    """The bound secrets of one run."""

    def __init__(self, bound: Sequence[BoundSecret] = ()) -> None:
        self._bound = bound

    def at(self, host: str, port: int) -> HostSecrets | None:
        """Return what a host may have; None where that is nothing, and its TLS nobody's business."""
        found = [secret for secret in self._bound if (host, port) in secret.hosts]
        return HostSecrets(found) if found else None


class _Stars(Redactor):
    """Writes over secrets instead of naming them."""

    def _mark(self, form: bytes) -> bytes:
        return b"*" * len(form)
