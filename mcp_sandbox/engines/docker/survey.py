"""What there is to know of an engine before anything runs on it, for `doctor` to judge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from docker.errors import ImageNotFound

from mcp_sandbox.engines.docker.images import list_images

if TYPE_CHECKING:
    from docker import APIClient

    from mcp_sandbox.engines.docker.address import Address
    from mcp_sandbox.engines.docker.connection import Connection, EngineFacts

_SIX_DIGITS = re.compile(r"(\.\d{6})\d+")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image, as the engine has it."""

    id: str
    created: datetime
    current: bool | None
    """Whether this version would build the same; None where it is no image of ours."""
    variables: tuple[str, ...] = ()
    """Names of the environment variables that it sets."""


@dataclass(frozen=True, slots=True)
class Survey:
    """An engine as it describes itself."""

    address: Address
    facts: EngineFacts
    kernel: str
    cgroup_driver: str
    runc_version: str
    """As the engine's builder wrote it; empty where the engine does not tell."""
    image: ImageFacts | None
    """The image that was asked about; None where the engine has none of that name."""

    @property
    def remaps_users(self) -> bool:
        """Tell whether root in a container is somebody else on the host."""
        return "name=userns" in self.facts.security_options

    @property
    def encrypted(self) -> bool:
        """Tell whether nobody between us and the engine can read or change what is said."""
        return self.address.local or bool(self.address.tls) or self.address.url.startswith("https://")


def survey(connection: Connection, image: str) -> Survey:
    """Ask an engine what it is, and what it knows of an image; in a worker thread.

    Raises:
        EngineError: The engine failed.
    """
    with connection.client() as client:
        facts = connection.facts(client)
        info: dict[str, Any] = client.info()
        components = {part.get("Name", ""): part for part in client.version().get("Components") or ()}
        return Survey(
            address=connection.address,
            facts=facts,
            kernel=str(info.get("KernelVersion", "")),
            cgroup_driver=str(info.get("CgroupDriver", "")),
            runc_version=_runc_version(components),
            image=_image(client, image),
        )


def _runc_version(components: dict[str, Any]) -> str:
    # Podman's name for it, and the program's own words: "runc version 1.1.5", and more lines.
    runc = components.get("runc") or components.get("OCI Runtime (runc)") or {}
    return str(runc.get("Version", "")).partition("\n")[0].removeprefix("runc version ")


def _image(client: APIClient, name: str) -> ImageFacts | None:
    try:
        found: dict[str, Any] = client.inspect_image(name)
    except ImageNotFound:
        return None
    ours = {image.id: image.current for image in list_images(client)}
    environment = (found.get("Config") or {}).get("Env") or ()
    return ImageFacts(
        id=found["Id"],
        created=_time(found.get("Created", "")),
        current=ours.get(found["Id"]),
        variables=tuple(pair.partition("=")[0] for pair in environment),
    )


def _time(text: str) -> datetime:
    """Read the engine's time, which has nanoseconds; the epoch where it has none."""
    try:
        return datetime.fromisoformat(_SIX_DIGITS.sub(r"\1", text)).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
