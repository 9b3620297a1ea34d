"""Which addresses a name may resolve to.

A name that is allowed says nothing about where it points: whoever runs its DNS can make it point at this
host, at the network behind it, or at a cloud's metadata service (DNS rebinding). So every resolved address is
checked, and the checked address is the one that is dialled. Only an address that an allow entry names
literally is exempt, which `policy.EgressPolicy.names` knows.

The tables are our own, from the IANA special-purpose registries, because `ipaddress.is_global` has changed
its mind between patch releases of Python.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mcp_sandbox.egress.policy import Decision, EgressPolicy, IPAddress

_METADATA: Final[frozenset[IPAddress]] = frozenset(
    {
        IPv4Address("169.254.169.254"),  # AWS, Azure, Google, OpenStack and most others
        IPv4Address("169.254.170.2"),  # AWS ECS credentials
        IPv4Address("169.254.170.23"),  # AWS EKS pod identity
        IPv4Address("100.100.100.200"),  # Alibaba
        IPv4Address("168.63.129.16"),  # Azure's host agent: a public address that is only ever local
        IPv4Address("192.0.0.192"),  # Oracle
        IPv6Address("fd00:ec2::254"),  # AWS
        IPv6Address("fd00:ec2::23"),  # AWS EKS pod identity
        IPv6Address("fd20:ce::254"),  # Google
        IPv6Address("fe80::a9fe:a9fe"),  # OpenStack
    }
)

_NOT_PUBLIC_V4: Final = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified"),
        ("10.0.0.0/8", "a private"),
        ("100.64.0.0/10", "a carrier-grade NAT"),
        ("127.0.0.0/8", "a loopback"),
        ("169.254.0.0/16", "a link-local"),
        ("172.16.0.0/12", "a private"),
        ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private"),
        ("198.18.0.0/15", "a benchmarking"),
        ("198.51.100.0/24", "a documentation"),
        ("203.0.113.0/24", "a documentation"),
        ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
    )
)

_NOT_PUBLIC_V6: Final = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "an unspecified"),
        ("::1/128", "a loopback"),
        ("::ffff:0:0/96", "an IPv4-mapped"),
        ("::/96", "an IPv4-compatible"),
        ("fc00::/7", "a private"),
        ("fe80::/10", "a link-local"),
        ("fec0::/10", "a site-local"),
        ("ff00::/8", "a multicast"),
        ("2001::/32", "a Teredo"),
        ("2001::/23", "a reserved"),
        ("2001:db8::/32", "a documentation"),
        ("2002::/16", "a 6to4"),
        ("3fff::/20", "a documentation"),
    )
)

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""The only part of IPv6 that IANA has given out for hosts: all else is refused, whatever it becomes."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""How an IPv6-only network shows IPv4 hosts; the last four bytes are the address that is meant."""


def refusal(address: IPAddress, *, is_own: Callable[[IPAddress], bool]) -> str | None:
    """Say what kind of address that is, where it may not be dialled; None where it may."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        address = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _METADATA:
        return "a cloud metadata address"
    kind = _kind_v4(address) if isinstance(address, IPv4Address) else _kind_v6(address)
    if kind is not None:
        return f"{kind} address"
    return "an address of the server's own host" if is_own(address) else None


def decide_on(
    decision: Decision,
    answers: Iterable[IPAddress],
    policy: EgressPolicy,
    *,
    is_own: Callable[[IPAddress], bool],
) -> Decision:
    """Return the decision about an allowed name once it has resolved: one bad answer refuses them all.

    Which of them is dialled would else be up to whoever answers.
    """
    for address in answers:
        kind = refusal(address, is_own=is_own)
        if kind is not None and not policy.names(address, decision.port):
            why = f"{decision.host} resolves to {address}, {kind}."
            return policy.advising(replace(decision, allowed=False, why=why), address)
    return decision


def _kind_v4(address: IPv4Address) -> str | None:
    return next((kind for network, kind in _NOT_PUBLIC_V4 if address in network), None)


def _kind_v6(address: IPv6Address) -> str | None:
    kind = next((kind for network, kind in _NOT_PUBLIC_V6 if address in network), None)
    return kind or (None if address in _GLOBAL_UNICAST else "a reserved")


def is_own(address: IPAddress) -> bool:
    """Tell whether this host answers for that address.

    Asked of the kernel each time, since a laptop's addresses come and go: only an own address can be bound.
    Where the kernel gives no clear answer, it is taken for one. No packet is sent.
    """
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as exc:
        return exc.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return True
