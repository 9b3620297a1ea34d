"""What is written down of every egress decision, and how much of egress one run has."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 (pydantic reads the annotation at run time)
from typing import Literal

from mcp_sandbox.model import Value

Verdict = Literal["allowed", "refused", "failed"]
"""`failed`: the policy allowed it, and no connection came about."""


class EgressRecord(Value):
    """One decision and what came of it: no path, query, header or body ever.

    Every text is printable and of bounded length, whatever the program sent, so a record is one line of JSON.
    """

    time: datetime
    """When the request was read, UTC."""
    host: str | None
    """Canonical name or IP address; None where the request named none that could be read."""
    port: int | None
    sni: str | None = None
    """Server name in the TLS ClientHello; None where there was none."""
    address: str | None = None
    """The address that was dialled; None where none was, or where an upstream proxy resolved the name."""
    verdict: Verdict
    rule: str | None = None
    """The allow entry that decided."""
    secrets: tuple[str, ...] = ()
    """Names of the bound secrets whose values were put into the request."""
    reason: str
    """Why it was refused, failed or cut short; else the entry that allowed it."""
    bytes_up: int
    """Bytes written to the host."""
    bytes_down: int
    """Bytes read from the host."""
    duration_ms: int
    """From the first byte of the request to the end of the connection or response, in milliseconds."""


class EgressLimits(Value):
    """How much egress one run has; sizes in bytes, times in seconds."""

    requests: int = 1000
    """Tunnels and plain requests in all."""
    connections: int = 64
    """Open at once."""
    bytes_up: int = 64 * 1024**2
    """Written to all hosts together."""
    bytes_down: int = 1024**3
    """Read from all hosts together."""
    head_bytes: int = 16 * 1024
    """Of one request head."""
    head_seconds: float = 10
    """For one request head, and for a tunnel's ClientHello, to be complete."""
    connect_seconds: float = 10
    """To resolve a name and connect."""
    idle_seconds: float = 120
    """Without a byte moving in either direction."""
    connection_seconds: float = 3600
    """For one tunnel, or one plain request and its response."""
