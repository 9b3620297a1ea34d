"""One engine: its address, what it can do, and SDK clients to speak with it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docker import APIClient
from docker.transport import UnixHTTPAdapter

from mcp_sandbox.engines.docker.address import Address, find_engine
from mcp_sandbox.engines.docker.errors import translated
from mcp_sandbox.errors import EngineUnreachable, EngineUnsafe, RuntimeMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

HTTP_SECONDS = 30
"""Longest wait for one answer of the engine's."""
LOOK_SECONDS = 5.0
"""How long it may take until a rebuilt image, or an engine started anew, is seen: a look costs a round trip."""
_IDLE_CLIENTS = 8


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself."""

    version: str
    api_version: str
    runtimes: frozenset[str]
    default_runtime: str
    security_options: tuple[str, ...]
    cpus: int
    memory_bytes: int
    cgroup_version: str
    storage_driver: str
    operating_system: str
    warnings: tuple[str, ...]
    product: Literal["Docker", "Podman"] = "Docker"

    @property
    def filters_system_calls(self) -> bool:
        """Tell whether containers get a seccomp profile where none is named."""
        options = [option for option in self.security_options if option.startswith("name=seccomp")]
        return any("unconfined" not in option for option in options)

    @property
    def rootless(self) -> bool:
        """Tell whether the engine itself runs without root."""
        return "name=rootless" in self.security_options


class _OneSocket(UnixHTTPAdapter):
    """Keeps one connection to the engine; the SDK's own keeps one for each URL, 25 in all, for each client."""

    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        return super().get_connection("http+docker://localhost", proxies)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What a name stood for when it was looked at."""

    id: str
    volumes: tuple[str, ...]
    platform: str
    """Such as `linux/amd64`."""
    looked_at: float


class Connection:
    """Clients for one engine, found when first needed and then kept to.

    The SDK's client rests on a `requests.Session`, which is not promised to be safe across threads, so each
    borrower has one to itself.
    """

    def __init__(self, find: Callable[[], Address], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._lock = threading.Lock()
        self._address: Address | None = None
        self._facts: EngineFacts | None = None
        self._facts_at = 0.0
        self._images: dict[str, ImageFacts] = {}
        self._idle: list[APIClient] = []

    @property
    def address(self) -> Address:
        """The engine's address, found at the first use; an engine once found is not exchanged for another.

        Raises:
            EngineError: There is none.
        """
        if self._address is None:
            self._address = self._find()
        return self._address

    @contextmanager
    def client(self) -> Iterator[APIClient]:
        """Lend a client to one thread, its exceptions translated.

        Raises:
            EngineError: The engine failed.
        """
        address = self.address
        try:
            with translated(address.url):
                client = self._take() or self._new(address)
                try:
                    yield client
                except BaseException:
                    client.close()
                    raise
        except (EngineUnreachable, EngineUnsafe, RuntimeMissing):
            self._forget()  # it may be mended by the next call, which looks again
            raise
        self._give_back(client)

    def facts(self, client: APIClient) -> EngineFacts:
        """Return what the engine says of itself, asked again when that is some seconds old.

        It may have been started anew since, with less that it enforces, and a client notices nothing.
        """
        if self._facts is None or self._clock() - self._facts_at > LOOK_SECONDS:
            self._facts, self._facts_at = _facts(client), self._clock()
        return self._facts

    def image(self, client: APIClient, name: str) -> ImageFacts:
        """Return what the engine's image of this name is, looked at again when that is some seconds old.

        Raises:
            docker.errors.ImageNotFound: There is none.
        """
        known = self._images.get(name)
        if known is None or self._clock() - known.looked_at > LOOK_SECONDS:
            found: dict[str, Any] = client.inspect_image(name)
            volumes = tuple(sorted(found["Config"].get("Volumes") or ()))
            parts = (str(found.get(key) or "") for key in ("Os", "Architecture", "Variant"))
            platform = "/".join(filter(None, parts))
            known = self._images[name] = ImageFacts(found["Id"], volumes, platform, self._clock())
        return known

    def forget_image(self, name: str) -> None:
        """Look again the next time: it is not there any more."""
        self._images.pop(name, None)

    def close(self) -> None:
        """Close the clients that nobody has borrowed."""
        self._forget()

    def _new(self, address: Address) -> APIClient:
        version = self._facts.api_version if self._facts else "auto"
        client = APIClient(address.url, version=version, timeout=HTTP_SECONDS, tls=address.tls)
        if address.local:
            client.trust_env = False  # else each request asks the environment and ~/.netrc for a proxy's say
            client.mount("http+docker://", _OneSocket(address.url.removeprefix("unix://"), HTTP_SECONDS))
        return client

    def _take(self) -> APIClient | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, client: APIClient) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_CLIENTS:
                self._idle.append(client)
                return
        client.close()

    def _forget(self) -> None:
        """Drop what was true of an engine that may be another one when it comes back."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._facts = None
            self._images.clear()
        for client in idle:
            client.close()


def connect(configured: str, environ: Mapping[str, str]) -> Connection:
    """Return a connection to the engine that the configuration, the environment or the usual places name."""
    return Connection(lambda: find_engine(configured, environ, Path.home()))


def _facts(client: APIClient) -> EngineFacts:
    info: dict[str, Any] = client.info()
    product: Literal["Docker", "Podman"] = "Podman" if "BuildahVersion" in info else "Docker"
    default_runtime = str(info.get("DefaultRuntime", ""))
    return EngineFacts(
        version=str(info.get("ServerVersion", "")),
        api_version=client.api_version,
        # Podman lists all that it has heard of, and its Docker API starts every container under the default one,
        # whichever was asked for: a program meant for gVisor would run on the host's kernel.
        runtimes=frozenset({default_runtime} if product == "Podman" else info.get("Runtimes") or ()),
        default_runtime=default_runtime,
        security_options=tuple(info.get("SecurityOptions") or ()),
        cpus=int(info.get("NCPU", 0)),
        memory_bytes=int(info.get("MemTotal", 0)),
        cgroup_version=str(info.get("CgroupVersion", "1")),
        storage_driver=str(info.get("Driver", "")),
        operating_system=str(info.get("OperatingSystem", "")),
        warnings=tuple(info.get("Warnings") or ()),
        product=product,
    )
