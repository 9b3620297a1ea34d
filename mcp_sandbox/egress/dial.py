"""How the host side resolves and connects: directly, or through an upstream proxy.

Above: `egress.proxy`, which knows only the two signatures and has decided before it calls either.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.to_thread
import h11
from anyio.abc import ByteStream

from mcp_sandbox.egress.policy import IPAddress, authority

if TYPE_CHECKING:
    from collections.abc import Sequence

Resolve: TypeAlias = "Callable[[str], Awaitable[Sequence[IPAddress]]]"
"""Returns every address of a canonical name; raises OSError where there is none."""

Dial: TypeAlias = Callable[[str, int, IPAddress | None], Awaitable[ByteStream]]
"""Connects to a canonical host, a port, and the checked address (None where nothing resolved the name here);
raises OSError where no connection comes about."""

_UPSTREAM_HEAD_BYTES: Final = 16 * 1024


class SystemResolver:
    """Resolves names the way the host does."""

    def __init__(self, at_once: int = 4) -> None:
        # Threads of its own: lookups that hang must not starve whatever else the server does in threads.
        self._threads = anyio.CapacityLimiter(at_once)

    async def __call__(self, host: str) -> Sequence[IPAddress]:
        """Return every address of `host`.

        Raises:
            OSError: It has none, or the resolver failed.
        """
        # Absolute, with a dot at the end: a search list in resolv.conf would look up another name.
        name = f"{host}." if "." in host else host
        answers = await anyio.to_thread.run_sync(
            _lookup, name.encode("ascii"), abandon_on_cancel=True, limiter=self._threads
        )
        return list(dict.fromkeys(ip_address(answer) for answer in answers))


def _lookup(name: bytes) -> list[str]:
    return [str(answer[4][0]) for answer in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


async def dial_direct(host: str, port: int, address: IPAddress | None) -> ByteStream:
    """Connect to the checked address; the name is never resolved again.

    Raises:
        OSError: Nothing answers there.
    """
    if address is None:
        raise OSError(f"{host} was not resolved")
    return await anyio.connect_tcp(str(address), port)


@dataclass(frozen=True, slots=True)
class UpstreamProxy:
    """Connects through an HTTP proxy that the host has to use.

    It is given names, since such proxies filter by name, and resolves them itself: what they resolve to
    cannot be checked here. Host, port and TLS server name still are.
    """

    host: str
    port: int
    credentials: str | None = field(default=None, repr=False)
    """`user:password` for Basic authentication."""

    async def __call__(self, host: str, port: int, address: IPAddress | None) -> ByteStream:
        """Have the proxy connect to `host`; `address` is not used.

        Raises:
            OSError: The proxy does not answer, or refuses.
        """
        stream = await anyio.connect_tcp(self.host, self.port)
        try:
            await self._connect(stream, authority(host, port).encode("ascii"))
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise
        return stream

    async def _connect(self, stream: ByteStream, target: bytes) -> None:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_UPSTREAM_HEAD_BYTES)
        headers = [(b"Host", target)]
        if self.credentials is not None:
            token = base64.b64encode(self.credentials.encode())
            headers.append((b"Proxy-Authorization", b"Basic " + token))
        request = http.send(h11.Request(method=b"CONNECT", target=target, headers=headers))
        try:
            await stream.send(request)
            event = http.next_event()
            while event is h11.NEED_DATA or isinstance(event, h11.InformationalResponse):
                if event is h11.NEED_DATA:
                    http.receive_data(await stream.receive())
                event = http.next_event()
        except (h11.RemoteProtocolError, anyio.EndOfStream, anyio.BrokenResourceError) as exc:
            raise OSError("the upstream proxy gave no proper answer") from exc
        if not isinstance(event, h11.Response) or not 200 <= event.status_code < 300:
            status = event.status_code if isinstance(event, h11.Response) else "nothing"
            raise OSError(f"the upstream proxy answered {status}")
        # In TLS and HTTP the client speaks first, so bytes here would be the proxy's own.
        if http.trailing_data[0]:
            raise OSError("the upstream proxy spoke before it was asked anything")


def upstream_proxy(url: str) -> UpstreamProxy | None:
    """Return the proxy at an address such as `http://proxy.example:3128`; None where there is none."""
    if not url:
        return None
    host, _, port = url.removeprefix("http://").rpartition(":")
    return UpstreamProxy(host, int(port))
