"""Where a name may not point."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_sandbox.egress import addresses

if TYPE_CHECKING:
    from mcp_sandbox.egress.policy import IPAddress


def nobody(_: IPAddress) -> bool:
    return False


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.65.7", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("192.0.2.1", "documentation"),
        ("198.18.0.1", "benchmarking"),
        ("224.0.0.251", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "IPv4-mapped"),
        ("::ffff:8.8.8.8", "IPv4-mapped"),
        ("::127.0.0.1", "IPv4-compatible"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "metadata"),
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b:1::a00:1", "reserved"),
        ("2002:7f00:1::1", "6to4"),
        ("2001:0:53aa:64c:0:7f:80ff:fffe", "Teredo"),
        ("2001:db8::1", "documentation"),
        ("2001:2::1", "reserved"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("fc00::1", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("100::1", "reserved"),
        ("4000::1", "reserved"),
    ],
)
def test_an_address_that_is_not_a_public_host_is_refused_by_its_kind(address: str, kind: str) -> None:
    assert kind in str(addresses.refusal(ip_address(address), is_own=nobody))


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "93.184.216.34",
        "172.15.255.255",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "64:ff9b::808:808",
    ],
)
def test_a_public_address_may_be_dialled(address: str) -> None:
    assert addresses.refusal(ip_address(address), is_own=nobody) is None


def test_an_address_of_the_host_itself_is_refused_also_behind_nat64() -> None:
    mine = ip_address("93.184.216.34")
    for address in ("93.184.216.34", "64:ff9b::5db8:d822"):
        assert "own host" in str(addresses.refusal(ip_address(address), is_own=mine.__eq__))


def test_the_kernel_tells_which_addresses_are_its_own() -> None:
    assert addresses.is_own(IPv4Address("127.0.0.1"))
    assert not addresses.is_own(IPv4Address("192.0.2.1"))
    assert not addresses.is_own(IPv6Address("2001:db8::1"))
    # The address that the host would leave by; connecting a datagram socket sends nothing.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return  # no route out: nothing more to ask
        assert addresses.is_own(IPv4Address(probe.getsockname()[0]))


@settings(deadline=None)
@given(address=st.ip_addresses())
def test_what_the_standard_library_calls_special_is_never_dialled(address: IPAddress) -> None:
    special = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
    if special or address.is_reserved or address.is_unspecified:
        if address in addresses._NAT64:
            address = IPv4Address(int(address) & 0xFFFF_FFFF)
            if address.is_global:
                return
        assert addresses.refusal(address, is_own=nobody) is not None
