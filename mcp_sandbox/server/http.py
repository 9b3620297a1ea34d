"""The server over HTTP, for clients that cannot start a program: on this machine's loopback, and never without a token.

The SDK's app speaks the protocol, asks for the token before it reads a body, and refuses other names in Host and
Origin, by which a web page would reach it. Here is what it listens on, which token is one, and how it ends.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import signal
import socket
from typing import TYPE_CHECKING

import anyio
import uvicorn
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.server import create_server, flying
from mcp_sandbox.server.wire import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.server.flight import Flights

LOOPBACK = "127.0.0.1"
PATH = "/mcp"
MAX_SESSIONS = 1000
"""Clients that have said hello and not goodbye; older protocol versions keep such a state."""
MAX_CONNECTIONS = 200
END_SECONDS = 1
"""Longest wait, at the end, for clients to take what they are still told."""


async def serve_http(
    configuration: Configuration, *, port: int, token: str, announce: Callable[[str], None]
) -> int:
    """Serve any number of clients that have the token; return the exit status, 128 + N after signal N.

    `announce` is told the address once it answers.

    Raises:
        ConfigError: The port cannot be had.
    """
    with _listening(port) as listener:
        port = listener.getsockname()[1]
        async with flying(configuration) as flights, anyio.create_task_group() as tasks:
            server = create_server(
                flights,
                token_verifier=_OneToken(token),
                # The SDK wants an issuer; none is ever named to a client, for there is nowhere to get a token from.
                auth=AuthSettings(issuer_url=f"http://{LOOPBACK}", resource_server_url=None),
            )
            app = server.streamable_http_app(
                streamable_http_path=PATH,
                max_request_body_size=MAX_LINE_BYTES,
                max_sessions=MAX_SESSIONS,
                transport_security=_only_for(port),
            )
            http = _Http(
                uvicorn.Config(
                    app,
                    http="h11",
                    ws="none",
                    lifespan="on",
                    log_config=None,
                    access_log=False,
                    proxy_headers=False,
                    server_header=False,
                    limit_concurrency=MAX_CONNECTIONS,
                    timeout_graceful_shutdown=END_SECONDS,
                )
            )
            tasks.start_soon(http.end_at_a_signal, flights)
            announce(f"http://{LOOPBACK}:{port}{PATH}")
            await http.serve([listener])
            tasks.cancel_scope.cancel()
    return 128 + http.signal if http.signal else 0


class _OneToken(TokenVerifier):
    """Knows the one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode("ascii")

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return who has it; None for another one."""
        # In constant time: how long it takes to refuse must not tell how much of a guess was right.
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            return None
        return AccessToken(token=token, client_id="holder of the token", scopes=[])


class _Http(uvicorn.Server):
    """uvicorn, ended from here: its own way of taking a signal kills the process before sandboxes have ended."""

    signal: int | None = None
    """The signal that ended it, if one did."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def end_at_a_signal(self, flights: Flights) -> None:
        """End in order at the first signal."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                self.signal = self.signal or number
                flights.stop()  # first, so that calls are answered with what their runs came to
                self.handle_exit(number, None)


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise ConfigError(
            f"port {port} of {LOOPBACK} cannot be had: {os.strerror(error.errno or 0).lower()}.",
            next_step="Name another with --port; 0 takes any that is free.",
        ) from None
    with listener:
        yield listener


def _only_for(port: int) -> TransportSecuritySettings:
    """Return the names by which a client on this machine, and no web page, reaches us."""
    names = [f"{LOOPBACK}:{port}", f"localhost:{port}"]
    return TransportSecuritySettings(
        allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names]
    )
