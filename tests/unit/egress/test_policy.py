"""What an allowlist allows, and that nothing else gets through it in any spelling."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_sandbox.egress.policy import (
    EgressPolicy,
    InvalidEntry,
    InvalidHost,
    Rule,
    canonical_host,
    parse_entry,
)


def policy(*allow: str) -> EgressPolicy:
    return EgressPolicy.parse(allow, workspace="lab")


@pytest.mark.parametrize(
    ("entry", "host", "port", "scheme"),
    [
        ("api.example.com", "api.example.com", 443, "https"),
        ("api.example.com", "api.example.com", 80, "http"),
        ("api.example.com:443", "api.example.com", 443, "https"),
        ("api.example.com:80", "api.example.com", 80, "http"),
        ("api.example.com:8443", "api.example.com", 8443, "https"),
        ("api.example.com:8443", "api.example.com", 8443, "http"),
        ("https://host.example", "host.example", 443, "https"),
        ("https://host.example:80", "host.example", 80, "https"),
        ("http://intranet.example:8080", "intranet.example", 8080, "http"),
        ("HTTP://Intranet.Example:8080", "intranet.example", 8080, "http"),
        ("intranet:8080", "intranet", 8080, "http"),
        ("*.example.com:443", "a.example.com", 443, "https"),
        ("*.example.com", "a.b.example.com", 80, "http"),
        ("X.com", "x.COM.", 443, "https"),
        ("x.com.", "X.COM", 443, "https"),
        ("bücher.example", "xn--bcher-kva.example", 443, "https"),
        ("xn--bcher-kva.example", "BÜCHER.example", 443, "https"),
        ("my_bucket.example.com", "my_bucket.example.com", 443, "https"),
        ("192.0.2.7:8080", "192.0.2.7", 8080, "http"),
        ("127.0.0.1:8080", "127.0.0.1", 8080, "http"),
        ("[2001:db8::1]:443", "2001:db8::1", 443, "https"),
        ("[2001:db8::1]:443", "[2001:DB8:0::0001]", 443, "https"),
        ("[2001:db8::1]", "2001:db8::1", 443, "https"),
    ],
)
def test_what_an_entry_names_is_allowed(entry: str, host: str, port: int, scheme: str) -> None:
    decision = policy(entry).decide(host, port, scheme)
    assert decision.allowed
    assert decision.rule == entry
    assert policy(entry).decide(host, port).allowed


@pytest.mark.parametrize(
    ("entry", "host", "port", "scheme"),
    [
        # NW16: names that only look alike
        ("*.x.com", "x.com", 443, None),
        ("*.x.com", "evilx.com", 443, None),
        ("*.x.com", "a.x.com.evil.com", 443, None),
        ("*.x.com", ".x.com", 443, None),
        ("*.x.com", "*.x.com", 443, None),
        ("x.com", "a.x.com", 443, None),
        ("x.com", "x.com.evil.com", 443, None),
        ("x.com", "x.com..", 443, None),
        ("x.com", "[x.com]", 443, None),
        ("x.com", "a@x.com", 443, None),
        ("x.com", "x.com\0", 443, None),
        ("x.com", "x.com\0.evil.com", 443, None),
        ("x.com", "x.com\r\n", 443, None),
        ("x.com", "x.com\n", 443, None),
        ("x.com", " x.com", 443, None),
        ("x.com", "x%2ecom", 443, None),
        ("x.com", "x.com/", 443, None),
        ("x.com", "x.com:443", 443, None),
        ("x.com", "х.com", 443, None),  # noqa: RUF001 (a Cyrillic letter is the attack)
        ("x.com", "", 443, None),
        ("x.com", ".", 443, None),
        # NW06: an allowed host on another port, or with the other protocol
        ("x.com", "x.com", 22, None),
        ("x.com", "x.com", 25, None),
        ("x.com", "x.com", 0, None),
        ("x.com", "x.com", 99999, None),
        ("x.com", "x.com", -1, None),
        ("x.com", "x.com", 80, "https"),
        ("x.com", "x.com", 443, "http"),
        ("x.com:8443", "x.com", 443, None),
        ("https://x.com:8443", "x.com", 8443, "http"),
        ("http://x.com:8443", "x.com", 8443, "https"),
        # NW03, NW05: addresses that nobody named
        ("x.com", "169.254.169.254", 80, None),
        ("x.com", "[fd00:ec2::254]", 80, None),
        ("x.com", "168.63.129.16", 80, None),
        ("x.com", "metadata.google.internal", 80, None),
        ("x.com", "1.1.1.1", 443, None),
        ("192.0.2.7:8080", "192.0.2.8", 8080, None),
        ("192.0.2.7:8080", "192.0.2.7", 80, None),
    ],
)
def test_what_no_entry_names_is_refused(entry: str, host: str, port: int, scheme: str | None) -> None:
    decision = policy(entry).decide(host, port, scheme)
    assert not decision.allowed
    assert decision.rule is None
    assert decision.reason.isascii()
    assert decision.reason.isprintable()


@pytest.mark.parametrize(
    "spelling",
    [
        "2130706433",
        "0177.0.0.1",
        "0x7f000001",
        "0X7F.1",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "00127.0.0.1",
        "[::ffff:127.0.0.1]",
        "::ffff:7f00:1",
        "[::127.0.0.1]",
        "[::1]",
        "::1%lo",
        "[::1%25lo]",
        "[127.0.0.1]",
        "127.0.0.1.",
        "１２７.0.0.1",  # noqa: RUF001 (full-width digits are the attack)
        "127。0。0。1",
        "0.0.0.0",
        "0",
        "localhost",
    ],
)
def test_loopback_is_refused_in_every_spelling_unless_named(spelling: str) -> None:
    assert not policy("x.com:80", "*.example.com:80").decide(spelling, 80).allowed


@pytest.mark.parametrize(
    "spelling",
    [
        "2130706433",
        "0177.0.0.1",
        "0x7f000001",
        "127.1",
        "127.0.0.01",
        "::ffff:127.0.0.1",
        "[127.0.0.1]",
        "::1",
    ],
)
def test_an_address_that_is_named_is_reached_in_its_plain_spelling_alone(spelling: str) -> None:
    named = policy("127.0.0.1:80")
    assert named.decide("127.0.0.1", 80).allowed
    assert not named.decide(spelling, 80).allowed


@pytest.mark.parametrize("spelling", ["0x7f000001", "127.1", "::ffff:127.0.0.1"])
def test_a_refused_spelling_is_told_the_plain_one(spelling: str) -> None:
    assert 'allow = ["x.com", "127.0.0.1:80"]' in policy("x.com").decide(spelling, 80).reason


def test_an_empty_allowlist_allows_nothing() -> None:
    for host in ("example.com", "localhost", "127.0.0.1", "", "*"):
        for port in (80, 443):
            assert not policy().decide(host, port).allowed


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "empty"),
        ("*", "everything"),
        ("*:443", "everything"),
        ("https://*", "everything"),
        ("*.com", "everyone"),
        ("*.com:443", "everyone"),
        ("*.com.", "everyone"),
        ("*.co.uk", "everyone"),
        ("*.рф", "everyone"),
        ("*.127.0.0.1", "no names below"),
        ("*.*.example.com", "first labels"),
        ("a.*.example.com", "first labels"),
        ("a*.example.com", "first labels"),
        ("*example.com", "first labels"),
        ("ftp://example.com", "http and https"),
        ("ssh://example.com:22", "http and https"),
        ("://example.com", "http and https"),
        ("https://user:pw@example.com", "user name"),
        ("user@example.com", "user name"),
        ("https://example.com/", "path"),
        ("example.com/api", "path"),
        ("example.com?x", "path"),
        ("example.com#x", "path"),
        ("example.com\\x", "path"),
        ("example.com\0", "control character"),
        ("example.com\n", "control character"),
        ("exa mple.com", "space"),
        ("example.com:0", "port"),
        ("example.com:", "port"),
        ("example.com:65536", "port"),
        ("example.com:http", "port"),
        ("example.com:٤٤٣", "port"),
        ("example..com", "not a host name"),
        ("-example.com", "not a host name"),
        ("exa$mple.com", "not a host name"),
        ("a" * 64 + ".com", "not a host name"),
        ("a." * 126 + "com", "not a host name"),
        ("a" * 300, "too long"),
        ("2001:db8::1", "[IPv6]"),
        ("127.1:80", "write 127.0.0.1"),
        ("0x7f000001:80", "write 127.0.0.1"),
        ("[::ffff:10.0.0.1]:80", "write 10.0.0.1"),
        ("[fe80::1%eth0]:80", "zone"),
        ("[example.com]", "IPv6"),
        ("0.0.0.0:80", "one host"),
        ("[::]:80", "one host"),
        ("224.0.0.1:80", "one host"),
        ("255.255.255.255:80", "one host"),
    ],
)
def test_an_entry_that_is_too_wide_or_malformed_is_refused_with_the_reason(entry: str, why: str) -> None:
    with pytest.raises(InvalidEntry, match=re.escape(why)) as caught:
        parse_entry(entry)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).isascii()


def test_a_refusal_names_the_line_that_would_allow_it_beside_what_is_allowed() -> None:
    decision = policy("x.com", "y.com:443").decide("API.example.com.", 8443)
    line = 'allow = ["x.com", "y.com:443", "api.example.com:8443"]'
    assert decision.reason.endswith(f"under [workspaces.lab.egress]: {line}")


def test_of_a_long_list_a_refusal_repeats_nothing() -> None:
    decision = policy(*(f"host-{number}.example.com" for number in range(100))).decide("x.com", 443)
    assert decision.reason.endswith('under [workspaces.lab.egress]: add "x.com:443" to `allow`')


def test_the_line_is_toml_whatever_the_workspace_is_called() -> None:
    reason = EgressPolicy((), 'my "lab"').decide("x.com", 443).reason
    table = tomllib.loads(reason[reason.index("[workspaces") :].replace("]: allow", "]\nallow"))
    assert table["workspaces"]['my "lab"']["egress"]["allow"] == ["x.com:443"]


def test_a_call_that_declined_reaches_nothing_and_is_not_told_to_ask_for_more() -> None:
    declined = EgressPolicy((), "lab", declined=True)
    decision = declined.decide("x.com", 443)
    assert not decision.allowed
    assert decision.reason == 'x.com:443 is refused: this call asked for network "none".'
    assert "allow =" not in declined.decide("0x7f000001", 443).reason


labels = st.from_regex(r"[a-z0-9_]([a-z0-9-]{0,8}[a-z0-9_])?", fullmatch=True)
names = st.lists(labels, min_size=1, max_size=4).map(".".join)
anything = st.one_of(st.text(), names, st.ip_addresses().map(str))


@settings(deadline=None)
@given(entry=anything)
def test_an_entry_is_parsed_or_refused_and_nothing_else(entry: str) -> None:
    message = ""
    rules: tuple[Rule, ...] = ()
    try:
        rules = parse_entry(entry)
    except InvalidEntry as exc:
        message = str(exc)
    assert bool(rules) != bool(message)
    assert message.isascii()
    assert all(1 <= rule.port <= 65535 for rule in rules)


@settings(deadline=None)
@given(host=anything, port=st.integers(), scheme=st.sampled_from([None, "http", "https"]))
def test_the_advised_line_allows_what_was_refused(host: str, port: int, scheme: str | None) -> None:
    decision = policy("allowed.example").decide(host, port, scheme)
    assert decision.reason.isascii()
    assert decision.reason.isprintable()
    assert decision.host.isascii()
    advice = re.search(r"allow = (\[.*\])$", decision.reason)
    if advice and "unusual spelling" not in decision.reason and "written as IPv6" not in decision.reason:
        advised = policy(*json.loads(advice[1]))
        assert advised.decide(host, port, scheme).allowed
        assert advised.decide("allowed.example", 443).allowed


@settings(deadline=None)
@given(host=anything)
def test_a_canonical_host_is_its_own_canonical_form(host: str) -> None:
    try:
        canonical = canonical_host(host)
    except InvalidHost:
        return
    assert canonical_host(str(canonical)) == canonical
    if isinstance(canonical, str):
        assert re.fullmatch(r"[a-z0-9_.-]+", canonical)


@settings(deadline=None)
@given(host=anything, port=st.integers(0, 65536))
def test_only_hosts_below_a_wildcard_match_it(host: str, port: int) -> None:
    decision = policy("*.example.com:443").decide(host, port)
    assert decision.allowed == (port == 443 and decision.host.endswith(".example.com") and host != "")
