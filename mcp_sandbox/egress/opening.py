"""What opens TLS to the hosts that secrets are bound to: for one server, and of that for each of its runs.

Above: `executor`, which asks for it, and `egress.proxy`, which uses it. Below: `egress.authority`, imported once there
is something to open, and `egress.bound`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_sandbox.egress.bound import Bound, BoundSecret
from mcp_sandbox.egress.policy import bound_host

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from mcp_sandbox.egress.authority import Authority


@dataclass(frozen=True, slots=True)
class TlsOpening:
    """One run's bound secrets, in whose name programs are spoken to, and how hosts are verified."""

    bound: Bound
    authority: Authority
    towards_hosts: ssl.SSLContext


class TlsOpenings:
    """Openings for the runs of one server, under one authority."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self._authority: Authority | None = None
        self._verifying: tuple[Sequence[bytes], ssl.SSLContext] | None = None

    def authorities(self) -> list[bytes]:
        """Return the certificate that runs have to trust; none where nothing is opened."""
        return [self._own_authority().pem] if self._hosts else []

    def for_run(self, bound: Sequence[BoundSecret], also_trusted: Sequence[bytes]) -> TlsOpening | None:
        """Return what a run with these secrets needs; None where it has none.

        `also_trusted` are certificates by which hosts may be vouched for, beside the public ones.
        """
        if not bound:
            return None
        from mcp_sandbox.egress.authority import towards_hosts

        if self._verifying is None or self._verifying[0] != also_trusted:
            self._verifying = also_trusted, towards_hosts(also_trusted)  # it takes 20 ms
        return TlsOpening(Bound(bound), self._own_authority(), self._verifying[1])

    def _own_authority(self) -> Authority:
        if self._authority is None:
            from mcp_sandbox.egress.authority import Authority

            self._authority = Authority(bound_host(host)[0] for host in self._hosts)
        return self._authority
