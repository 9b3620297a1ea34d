"""Finding the engine: configuration, DOCKER_HOST, the docker context, then the usual sockets. Never PATH.

A client such as Claude Desktop starts us with hardly any environment, so nothing here needs one.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.context import ContextAPI
from docker.context.config import get_current_context_name
from docker.errors import DockerException
from docker.utils import kwargs_from_env

from mcp_sandbox.errors import ConfigError, EngineDenied, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROBE_SECONDS = 2.0
_OTHER_CONTEXT = "Choose another one with `docker context use`, or set [engine] host in the configuration."


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine is, and how we came to think so."""

    url: str
    source: str
    tls: Any = field(default=False, repr=False)
    """A docker `TLSConfig`, or False."""

    @property
    def local(self) -> bool:
        """Tell whether the engine shares this machine's files, as far as the address tells."""
        return self.url.startswith("unix://")


def find_engine(configured: str, environ: Mapping[str, str], home: Path) -> Address:
    """Return the first engine named, or the first usual socket that somebody listens on.

    Raises:
        ConfigError: What was named cannot be used; nothing else is tried in its place.
        EngineDenied: There are sockets, and this user may open none of them.
        EngineUnreachable: Nobody listens anywhere.
    """
    if configured:
        return _checked(Address(configured, "[engine] host"))
    if environ.get("DOCKER_HOST"):
        return _checked(Address(environ["DOCKER_HOST"], "DOCKER_HOST", _tls(environ)))
    context = _context(environ)
    if context:
        return _checked(_of_context(context))
    return _first_listening(list(usual_sockets(environ, home)))


def variables_of(configured: str, environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the variables that lead a server to the engine that is found now; none where the configuration names one.

    A client starts servers with hardly any environment, so what leads there from a shell has to come along.

    Raises:
        ConfigError, EngineDenied, EngineUnreachable: As `find_engine`.
    """
    address = find_engine(configured, environ, home)
    if configured:
        return {}
    if environ.get("DOCKER_HOST"):
        return _given(("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"), environ)
    context = _context(environ)
    if context:
        return {"DOCKER_CONTEXT": context} | _given(("DOCKER_CONFIG",), environ)
    return {"DOCKER_HOST": address.url}


def _given(names: tuple[str, ...], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in names if environ.get(name)}


def _tls(environ: Mapping[str, str]) -> Any:
    try:
        return kwargs_from_env(environment=dict(environ)).get("tls", False)
    except DockerException as error:
        raise ConfigError(
            f"DOCKER_TLS_VERIFY or DOCKER_CERT_PATH is set, and the certificates cannot be used ({error}).",
            next_step="Correct these variables, or set [engine] host in the configuration.",
        ) from error


def _context(environ: Mapping[str, str]) -> str:
    """Return the docker context in use; empty for the one that every docker has."""
    name: str = environ.get("DOCKER_CONTEXT") or get_current_context_name() or ""
    return "" if name == "default" else name


def _of_context(name: str) -> Address:
    try:
        context: Any = ContextAPI.get_context(name)  # None where there is none, whatever its stubs say
        url = context.Host if context else None
    except Exception as error:  # the SDK raises just that where the context's files cannot be read
        raise ConfigError(
            f"the docker context {name} cannot be read ({error}).", next_step=_OTHER_CONTEXT
        ) from error
    if not url:
        raise ConfigError(f"there is no docker context {name} with an engine.", next_step=_OTHER_CONTEXT)
    return Address(url, f"docker context {name}", context.TLSConfig or False)


def _checked(address: Address) -> Address:
    if not address.url.startswith(("unix://", "tcp://", "http://", "https://")):
        raise ConfigError(
            f"the engine's address {address.url} ({address.source}) is of a kind that is not supported.",
            next_step="Use unix:// or tcp:// with TLS; for ssh, forward the socket: "
            "`ssh -NL /tmp/engine.sock:/var/run/docker.sock HOST` and unix:///tmp/engine.sock.",
        )
    return address


def usual_sockets(environ: Mapping[str, str], home: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and socket paths of the engines that people have, most usual first."""
    runtime_dir = environ.get("XDG_RUNTIME_DIR")
    yield "Docker", Path("/var/run/docker.sock")
    yield "Docker Desktop", home / ".docker/run/docker.sock"
    yield "Docker Desktop", home / ".docker/desktop/docker.sock"
    if runtime_dir:
        yield "rootless Docker", Path(runtime_dir) / "docker.sock"
    yield "Colima", home / ".colima/default/docker.sock"
    yield "Colima", home / ".config/colima/default/docker.sock"
    yield "OrbStack", home / ".orbstack/run/docker.sock"
    yield "Rancher Desktop", home / ".rd/docker.sock"
    if runtime_dir:
        yield "Podman", Path(runtime_dir) / "podman/podman.sock"
    yield "Podman", Path("/run/podman/podman.sock")
    yield "Podman", home / ".local/share/containers/podman/machine/podman.sock"


def _first_listening(candidates: list[tuple[str, Path]]) -> Address:
    denied: list[str] = []
    for name, path in candidates:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(_PROBE_SECONDS)
                probe.connect(str(path))
        except PermissionError:
            denied.append(f"{path} ({name})")
        except OSError:
            continue
        else:
            return Address(f"unix://{path}", name)
    if denied:
        raise EngineDenied(f"this user may not open the engine's socket at {' or '.join(denied)}.")
    raise EngineUnreachable(
        "no container engine was found: DOCKER_HOST and [engine] host are not set, and nobody listens on "
        + ", ".join(str(path) for _, path in candidates)
        + "."
    )
