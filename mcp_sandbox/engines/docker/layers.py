"""Layers of packages on a Docker engine: images that are found by their key, listed and removed by their labels."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import anyio
import anyio.to_thread
from docker.errors import APIError, ImageNotFound

from mcp_sandbox.dependencies.layers import LAYER, BaseImage
from mcp_sandbox.engines.docker.errors import build_command
from mcp_sandbox.errors import EngineError, ImageMissing
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker import APIClient

    from mcp_sandbox.engines.docker.connection import Connection

REPOSITORY = "mcp-sandbox/packages"
MAKING_SECONDS = 900
"""Longest time for the engine to say nothing while it copies."""

_ID = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class KeptLayer:
    """A layer that an engine has."""

    key: str
    id: str
    size_bytes: int
    """With its base."""
    created: int
    """Seconds since the epoch."""
    labels: Mapping[str, str]
    """What it was made from: lock, packages, base, base-name, platform, workspace, version."""


class DockerLayers:
    """Finds and makes layers on one engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._threads = anyio.CapacityLimiter(math.inf)

    async def base(self, name: str) -> BaseImage:
        """Return what a name stands for now."""

        def look() -> BaseImage:
            with self._connection.client() as client:
                try:
                    image = self._connection.image(client, name)
                except ImageNotFound:
                    raise ImageMissing(
                        f"the engine has no image {name}.", next_step=build_command(name)
                    ) from None
                return BaseImage(image.id, image.platform)

        return await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._threads)

    async def find(self, key: str) -> str:
        """Return the id of the image with this layer; empty where there is none."""

        def look() -> str:
            with self._connection.client() as client:
                try:
                    return self._connection.image(client, name_of(key)).id
                except ImageNotFound:
                    return ""

        return await anyio.to_thread.run_sync(look, abandon_on_cancel=True, limiter=self._threads)

    async def make(self, key: str, context: BinaryIO) -> str:
        """Make an image of a build context."""

        def build() -> str:
            with self._connection.client() as client:
                made = _build(client, key, context)
                self._connection.forget_image(name_of(key))
                return made

        # Abandoned, or a server's end would wait for it. Whoever gave the context closes it, which breaks off the
        # build; a build that was through with it leaves the whole layer, under its key.
        return await anyio.to_thread.run_sync(build, abandon_on_cancel=True, limiter=self._threads)


def name_of(key: str) -> str:
    """Return the name of a layer's image."""
    return f"{REPOSITORY}:{key[:32]}"


def list_layers(client: APIClient) -> list[KeptLayer]:
    """Return the layers on an engine, the newest first.

    Raises:
        EngineError: The engine failed.
    """
    prefix = f"{LAYER}."
    layers = [
        KeptLayer(
            key=entry["Labels"][LAYER],
            id=entry["Id"],
            size_bytes=entry["Size"],
            created=entry["Created"],
            labels={
                label.removeprefix(prefix): value
                for label, value in entry["Labels"].items()
                if label.startswith(prefix)
            },
        )
        for entry in client.images(filters={"label": LAYER})
    ]
    return sorted(layers, key=lambda layer: layer.created, reverse=True)


def remove_layer(client: APIClient, layer: KeptLayer) -> bool:
    """Remove a layer; False where a sandbox runs on it, or another image stands on it.

    Raises:
        EngineError: The engine failed.
    """
    try:
        client.remove_image(layer.id)
    except ImageNotFound:
        return True
    except APIError as error:
        if error.status_code != 409:
            raise
        return False
    return True


def _build(client: APIClient, key: str, context: BinaryIO) -> str:
    output = client.build(
        fileobj=context,
        custom_context=True,
        tag=name_of(key),
        network_mode="none",
        rm=True,
        forcerm=True,
        timeout=MAKING_SECONDS,
        decode=True,
    )
    for event in output:
        if "error" in event:
            said = visible(str(event["error"]).strip(), limit=300)
            full = "no space left" in said
            raise EngineError(
                f"the engine could not make the layer of packages: {said}.",
                next_step="Make room on the engine's disk (`mcp-sandbox deps prune` removes layers), then call again."
                if full
                else None,
            )
    made = str(client.inspect_image(name_of(key))["Id"])
    if not _ID.fullmatch(made):
        raise EngineError("the engine made a layer of packages without an id.")
    return made
