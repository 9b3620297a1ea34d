"""Which hosts a run may reach: an allowlist, and nothing else.

Pure: no clock, no DNS, no network. Above: `egress.proxy`, which asks before it does anything, and the
configuration, which parses the entries. A host is brought to one canonical form once, and everything after
that (matching, resolving, dialling, the log) uses that form alone, so no two readers can disagree about it.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import idna

if TYPE_CHECKING:
    from collections.abc import Iterable

IPAddress: TypeAlias = IPv4Address | IPv6Address
Host: TypeAlias = str | IPv4Address | IPv6Address
"""A canonical host: lower-case ASCII name without a trailing dot, or an IP address."""

Scheme: TypeAlias = Literal["http", "https"]
"""What runs over a connection: plain HTTP that the proxy reads, or TLS whose server name it has checked."""

_DEFAULT_PORTS: Final[dict[Scheme, int]] = {"https": 443, "http": 80}
_BOTH: Final[frozenset[Scheme]] = frozenset({"http", "https"})
_SPOKEN: Final[dict[Scheme, str]] = {"https": "TLS through CONNECT", "http": "plain HTTP without CONNECT"}

_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([1-9][0-9]{0,4}))?", re.ASCII)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
"""A last label that makes resolvers take the whole name for an IPv4 address, as WHATWG URL has it."""

_REGISTRY_LABELS: Final = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gov", "mil", "ne", "net", "nom", "or", "org"}
)
"""Second labels under which country registries sell names, as in `co.uk`."""


_LINE_CHARACTERS: Final = 400
"""Longest list of entries that is repeated: a refusal has to fit into the status line of a response."""


class InvalidHost(ValueError):
    """Not a host that can be allowed; `plain` is what to write instead, where that is known."""

    def __init__(self, reason: str, plain: IPAddress | None = None) -> None:
        super().__init__(reason)
        self.plain = plain


class InvalidEntry(ValueError):
    """An allow entry that cannot be used; the message names the entry and the reason."""


def split_authority(text: str) -> tuple[str, int | None]:
    """Split `host`, `host:port`, `[v6]` or `[v6]:port`; the host is not canonical yet.

    Raises:
        InvalidHost: It is none of these.
    """
    if "@" in text:
        raise InvalidHost("a user name or password before the host is not accepted")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise InvalidHost("it is not host:port or [IPv6]:port, with a port from 1 to 65535")
    host, port = match[1], int(match[2]) if match[2] else None
    if port is not None and port > 65535:
        raise InvalidHost("the port is not one from 1 to 65535")
    return host, port


def canonical_host(text: str) -> Host:
    """Return the one form of a host: lower case, IDNA (UTS 46), without one trailing dot.

    An IP address has one spelling that is accepted: `127.1`, `0x7f000001` or `::ffff:127.0.0.1` are read
    differently by different software, so they are refused and never translated.

    Raises:
        InvalidHost: It is neither a DNS name nor a plainly written IP address.
    """
    if len(text) > 255:
        raise InvalidHost("it is too long for a host name")
    if text.startswith("[") or ":" in text:
        return _ipv6(text)
    name = (text.lower() if text.isascii() else _idna(text)).removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidHost("it is not a host name")
    return _ipv4(name) if _NUMBER.fullmatch(labels[-1]) else name


def _idna(text: str) -> str:
    try:
        return idna.encode(text, uts46=True, std3_rules=True).decode("ascii")
    except UnicodeError as exc:
        raise InvalidHost("it is not an internationalised host name") from exc


def _ipv4(text: str) -> IPv4Address:
    try:
        return IPv4Address(text)
    except ValueError as exc:
        raise InvalidHost("it is an IP address in an unusual spelling", _inet_aton(text)) from exc


def _inet_aton(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(socket.inet_aton(text))
    except OSError:
        return None


def _ipv6(text: str) -> IPv6Address:
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" in bare:
        raise InvalidHost("an IPv6 zone is not accepted")
    try:
        address = IPv6Address(bare)
    except ValueError as exc:
        raise InvalidHost("it is not an IPv6 address") from exc
    if address.ipv4_mapped is not None:
        raise InvalidHost("it is an IPv4 address written as IPv6", address.ipv4_mapped)
    return address


def bound_host(entry: str) -> tuple[str, int]:
    """Read one host that a secret is bound to: a name, and a port where it is not 443.

    Raises:
        InvalidHost: It is none; names below a name are not one host, and an address proves nothing in TLS.
    """
    host, port = split_authority(entry)
    name = canonical_host(host)
    if not isinstance(name, str):
        raise InvalidHost("a secret can be bound to a name alone, not to an address")
    return name, port or _DEFAULT_PORTS["https"]


def authority(host: Host | str, port: int) -> str:
    """Write a canonical host and a port as `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def printable(text: str) -> str:
    """Return hostile text as at most 255 ASCII characters, with everything else escaped."""
    return text[:255].encode("unicode_escape").decode("ascii")[:255]


@dataclass(frozen=True, slots=True)
class Rule:
    """One port of one allow entry."""

    entry: str
    """The entry as it stands in the configuration."""
    host: Host
    subdomains: bool
    """True for `*.host`: every name below the host, at any depth, and not the host itself."""
    port: int
    schemes: frozenset[Scheme]

    def matches(self, host: Host, port: int) -> bool:
        """Tell whether this rule is about that host and port."""
        if port != self.port:
            return False
        if self.subdomains:
            return isinstance(host, str) and host.endswith(f".{self.host}")
        return host == self.host


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of one host and port."""

    allowed: bool
    host: str
    """Canonical; where the host is not one at all, what was asked for, escaped."""
    port: int
    rule: str | None
    """The allow entry that decided; None where none did."""
    why: str
    """One ASCII sentence or two."""
    address: IPAddress | None = None
    """The host, where an IP address was asked for."""
    missing: str = ""
    """The entry that would allow it; empty where it is allowed, or none could."""
    advice: str = ""
    """Which line of TOML has that entry, in one sentence; empty likewise."""

    @property
    def reason(self) -> str:
        """Say why, and what would allow it."""
        return f"{self.why} {self.advice}".rstrip()


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What one workspace may reach. Without rules that is nothing."""

    rules: tuple[Rule, ...]
    workspace: str
    declined: bool = False
    """True where the call itself asked to reach nothing."""
    table: str = "egress"
    """The workspace's table whose `allow` it is."""
    implied: frozenset[str] = frozenset()
    """Entries that nobody need write there."""

    @classmethod
    def parse(cls, allow: Iterable[str], *, workspace: str) -> EgressPolicy:
        """Read allow entries such as `api.example.com`, `*.example.com:443` or `http://intranet.example:8080`.

        Raises:
            InvalidEntry: One of them cannot be used.
        """
        return cls(tuple(rule for entry in allow for rule in parse_entry(entry)), workspace)

    def decide(self, host: str, port: int, scheme: Scheme | None = None) -> Decision:
        """Decide on a host as it was asked for; never raises. `scheme` None asks for either one."""
        try:
            wanted = canonical_host(host)
        except InvalidHost as exc:
            shown = printable(host)
            refused = Decision(False, shown, port, None, f'"{shown}" is refused: {exc}.')
            return refused if exc.plain is None else self.advising(refused, exc.plain, scheme)
        address = None if isinstance(wanted, str) else wanted
        about = [rule for rule in self.rules if rule.matches(wanted, port)]
        for rule in about:
            if scheme is None or scheme in rule.schemes:
                return Decision(
                    True, str(wanted), port, rule.entry, f"allowed by {json.dumps(rule.entry)}", address
                )
        why = f"{authority(wanted, port)} {self._why_not(about)}"
        return self.advising(Decision(False, str(wanted), port, None, why, address), wanted, scheme)

    def _why_not(self, about: list[Rule]) -> str:
        if about:
            only = " or ".join(_SPOKEN[spoken] for spoken in sorted(about[0].schemes))
            return f"is allowed for {only} alone."
        if self.declined:
            return 'is refused: this call asked for network "none".'
        if self.rules:
            return "is not among the hosts that the workspace allows."
        return "is refused: the workspace allows no host."

    def names(self, address: IPAddress, port: int) -> bool:
        """Tell whether an entry names that very address and port, which makes even a private one dialable."""
        return any(rule.host == address and rule.port == port for rule in self.rules)

    def advising(self, refused: Decision, host: Host, scheme: Scheme | None = None) -> Decision:
        """Add to a refusal which entry, in which line of TOML, would allow that host; nothing where none could."""
        port = refused.port
        if self.declined or not 1 <= port <= 65535 or not (isinstance(host, str) or _is_one_host(host)):
            return refused
        entry = authority(host, port)
        if scheme is not None and scheme not in _schemes(None, port):
            entry = f"{scheme}://{entry}"
        bare = re.fullmatch(r"[A-Za-z0-9_-]+", self.workspace)
        key = self.workspace if bare else json.dumps(self.workspace)
        allow = self.allow_with(entry)
        what = allow if len(allow) <= _LINE_CHARACTERS else f'add "{entry}" to `allow`'
        where = f"under [workspaces.{key}.{self.table}]"
        return replace(
            refused, missing=entry, advice=f"The user can allow it in the configuration, {where}: {what}"
        )

    def allow_with(self, entry: str) -> str:
        """Return the line of TOML that allows one entry more than this."""
        written = dict.fromkeys(rule.entry for rule in self.rules if rule.entry not in self.implied)
        return f"allow = {json.dumps([*written, entry])}"


def parse_entry(entry: str) -> tuple[Rule, ...]:
    """Read one allow entry: a rule for each port that it allows.

    Raises:
        InvalidEntry: It cannot be used; the message names it and says why.
    """
    try:
        return _parse_entry(entry)
    except InvalidHost as exc:
        instead = "" if exc.plain is None else f"; write {exc.plain}"
        raise InvalidEntry(f'egress entry "{printable(entry)}": {exc}{instead}') from exc


def _parse_entry(entry: str) -> tuple[Rule, ...]:
    if not entry or not entry.isprintable() or " " in entry:
        raise InvalidHost("it is empty, or holds a space or a control character")
    scheme, rest = _scheme(entry)
    if re.search(r"[/\\?#]", rest):
        raise InvalidHost("a path cannot be allowed (inside TLS nobody sees it): allow the host")
    name, port = split_authority(rest)
    subdomains = name.startswith("*.")
    if "*" in name.removeprefix("*."):
        raise InvalidHost(
            "`*` allows everything, which egress never does"
            if name == "*"
            else "`*` can only stand for the first labels, as in *.example.com"
        )
    host = canonical_host(name.removeprefix("*."))
    _refuse_breadth(host, subdomains=subdomains)
    if port is None:
        ports = _DEFAULT_PORTS if scheme is None else {scheme: _DEFAULT_PORTS[scheme]}
        return tuple(Rule(entry, host, subdomains, ports[one], frozenset({one})) for one in ports)
    return (Rule(entry, host, subdomains, port, _schemes(scheme, port)),)


def _scheme(entry: str) -> tuple[Scheme | None, str]:
    scheme, separator, rest = entry.partition("://")
    if not separator:
        return None, entry
    match scheme.lower():
        case "http":
            return "http", rest
        case "https":
            return "https", rest
    raise InvalidHost("only http and https can be allowed")


def _schemes(scheme: Scheme | None, port: int) -> frozenset[Scheme]:
    """Return what may run over a port: 443 means TLS and 80 plain HTTP wherever the entry does not say."""
    if scheme is not None:
        return frozenset({scheme})
    return frozenset(one for one, usual in _DEFAULT_PORTS.items() if usual == port) or _BOTH


def _refuse_breadth(host: Host, *, subdomains: bool) -> None:
    if not isinstance(host, str):
        if subdomains:
            raise InvalidHost("an IP address has no names below it")
        if not _is_one_host(host):
            raise InvalidHost("the address is not that of one host")
        return
    labels = host.split(".")
    registry = len(labels) == 2 and len(labels[1]) == 2 and labels[0] in _REGISTRY_LABELS
    if subdomains and (len(labels) == 1 or registry):
        raise InvalidHost(f"*.{host} would allow everyone who can register a name under {host}")


def _is_one_host(address: IPAddress) -> bool:
    return not (address.is_unspecified or address.is_multicast or address == IPv4Address("255.255.255.255"))
