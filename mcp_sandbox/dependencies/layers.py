"""Which image a run starts from where its packages come from a lock: a layer over the workspace's own, made once.

Above: `executor`. Below: `build`, `locks`, and a `LayerImages`, whatever engine keeps them. A layer's key says all
that decides what is in it, so a changed lock or a new base image means another layer, and nothing is ever out of date.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import anyio
import anyio.to_thread

from mcp_sandbox import __version__
from mcp_sandbox.config.toml import read_bytes
from mcp_sandbox.dependencies.kept import LOCKED, RESOLVED, keep, kept
from mcp_sandbox.dependencies.progress import Installing
from mcp_sandbox.errors import ConfigError, PackagesUnavailable
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.dependencies.build import Installer
    from mcp_sandbox.dependencies.progress import Watch
    from mcp_sandbox.locks.lock import Lock
    from mcp_sandbox.locks.script import Inline
    from mcp_sandbox.sandbox import Engine, SandboxSpec

LAYER = "io.mcp-sandbox.layer"
"""Label that holds a layer's key, and the prefix of those that say what it was made from."""
RECIPE = 1
"""Of layers: one more with each change of how they are made."""


@dataclass(frozen=True)
class BaseImage:
    """What a workspace's image is on the engine now."""

    id: str
    platform: str
    """Such as `linux/amd64`."""


@dataclass(frozen=True)
class Layer:
    """Packages over an image."""

    image: str
    """Id of the image that has both."""
    lock: Lock
    base: BaseImage

    def facts(self) -> dict[str, object]:
        """Return what the record says of it, beside the image."""
        return {
            "lock_sha256": self.lock.sha256,
            "packages": self.lock.count,
            "base": self.base.id,
            "platform": self.base.platform,
        }


class LayerImages(Protocol):
    """Where an engine keeps layers."""

    async def base(self, name: str) -> BaseImage:
        """Return what a name stands for now.

        Raises:
            ImageMissing: It stands for nothing.
            EngineError: The engine failed.
        """
        ...

    async def find(self, key: str) -> str:
        """Return the id of the image with this layer; empty where there is none.

        Raises:
            EngineError: The engine failed.
        """
        ...

    async def make(self, key: str, context: BinaryIO) -> str:
        """Make an image of a build context that names base and labels, and return the id of what came of it.

        Raises:
            EngineError: The engine failed; nothing is kept.
        """
        ...


class Layers:
    """The images that runs under one policy start from."""

    def __init__(
        self, policy: Policy, engine: Engine, images: LayerImages, folder: Path, environ: Mapping[str, str]
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._images = images
        self._folder = folder
        """Of our own: the locks that layers were made from; the time of each is that of its last use."""
        self._environ = environ
        self._building = anyio.Lock()  # one at once: each takes a sandbox, and calls mostly want the same
        self._read: tuple[object, Lock] | None = None
        self._latest = "" if policy.dependencies.lock else policy.image

    def latest(self, spec: SandboxSpec) -> SandboxSpec | None:
        """Return the sandbox of a run on the workspace's own packages as last seen; None before they are there."""
        return spec.model_copy(update={"image": self._latest}) if self._latest else None

    async def look(self) -> None:
        """Find the layer of the workspace's own lock where it is there; nothing is made.

        Raises:
            SandboxError: The lock cannot be used, or the engine failed.
        """
        if self._policy.dependencies.lock:
            base = await self._images.base(self._policy.image)
            self._latest = await self._images.find(layer_key(await self._lock(), base, shared=True))

    async def layer_for(self, inline: Inline | None, watch: Watch) -> Layer | None:
        """Return the packages of a run, made first where they are not there; None where it has none of its own.

        Raises:
            PackagesUnavailable: The lock cannot be used, or what it names cannot be installed.
            EngineError: The engine failed.
        """
        if inline is None and not self._policy.dependencies.lock:
            return None
        base = await self._images.base(self._policy.image)
        if inline is not None:
            return await self._layer(await self._resolved(inline, base, watch), base, watch, shared=False)
        layer = await self._layer(await self._lock(), base, watch, shared=True)
        self._latest = layer.image
        return layer

    async def _layer(self, lock: Lock, base: BaseImage, watch: Watch, *, shared: bool) -> Layer:
        key = layer_key(lock, base, shared=shared)
        image = await self._images.find(key)
        if not image:
            async with self._one_at_once(watch):
                image = await self._images.find(key) or await self._build(
                    key, lock, base, watch, shared=shared
                )
        await anyio.to_thread.run_sync(keep, self._folder, key + LOCKED, lock.text)
        return Layer(image, lock, base)

    async def _build(self, key: str, lock: Lock, base: BaseImage, watch: Watch, *, shared: bool) -> str:
        installer = self._installer()
        labels = {
            LAYER: key,
            f"{LAYER}.version": __version__,
            f"{LAYER}.lock": lock.sha256,
            f"{LAYER}.packages": str(lock.count),
            f"{LAYER}.base": base.id,
            f"{LAYER}.base-name": self._policy.image,
            f"{LAYER}.platform": base.platform,
            f"{LAYER}.workspace": self._policy.workspace,
        }
        watch.progress(Installing(0, 0, "Starting a sandbox to install in"))
        with installer.room(base.id, labels) as tree:
            context = await installer.install(base.id, lock, shared=shared, tree=tree, watch=watch)
            watch.progress(Installing(0, 0, "Making the layer"))
            return await self._images.make(key, context)

    async def _resolved(self, inline: Inline, base: BaseImage, watch: Watch) -> Lock:
        """Return the lock of a program's block: resolved once, then kept for this image."""
        from mcp_sandbox.locks.requirements import read_requirements

        name = hashlib.sha256(f"{inline.sha256} {base.id}".encode()).hexdigest() + RESOLVED
        text = await anyio.to_thread.run_sync(kept, self._folder, name)
        if text is None:
            async with self._one_at_once(watch):
                text = await anyio.to_thread.run_sync(kept, self._folder, name)
                if text is None:
                    watch.progress(Installing(0, 0, "Finding out which versions to install"))
                    text = (await self._installer().resolve(base.id, inline, watch=watch)).text
                    await anyio.to_thread.run_sync(keep, self._folder, name, text)
        await anyio.to_thread.run_sync(keep, self._folder, name, text)
        return read_requirements(text, whole=True)

    @asynccontextmanager
    async def _one_at_once(self, watch: Watch) -> AsyncIterator[None]:
        """Wait for an installation that goes on: it may be the very one that is wanted."""
        if self._building.locked():
            watch.progress(Installing(0, 0, "Waiting for another installation"))
        async with self._building:
            yield

    def _installer(self) -> Installer:
        from mcp_sandbox.dependencies.build import Installer  # most servers never install
        from mcp_sandbox.dependencies.index import index_of

        return Installer(self._policy, self._engine, index_of(self._policy, self._environ), self._folder)

    async def _lock(self) -> Lock:
        """Return the workspace's own lock as it is now; read anew where its file was changed.

        Raises:
            PackagesUnavailable: It is not there, or cannot be used.
        """
        return await anyio.to_thread.run_sync(self._read_lock)

    def _read_lock(self) -> Lock:
        from mcp_sandbox.dependencies.index import toml_line  # most workspaces have no lock
        from mcp_sandbox.locks.lock import LockUnusable
        from mcp_sandbox.locks.read import MAX_BYTES, read_lock

        path = Path(self._policy.dependencies.lock)
        shown = visible(str(path), limit=400)
        try:
            status = path.stat()
            seen = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            if self._read is None or self._read[0] != seen:
                self._refuse_way_out(path)
                content = read_bytes(path, max_size=MAX_BYTES)
                sources = self._policy.dependencies.source_builds == "allow"
                lock = read_lock(path.name, content, sources=sources)
                self._read = seen, lock
        except FileNotFoundError:
            raise PackagesUnavailable(
                f"the lock {shown} is not there.",
                next_step="Make it (`uv pip compile --generate-hashes`, `uv lock`, `pip-compile --generate-hashes`), "
                f"or take it out, {toml_line(self._policy, 'lock', path.name)}",
            ) from None
        except LockUnusable as error:
            raise PackagesUnavailable(
                f"the lock {shown} {error}.",
                next_step="Lock with hashes: `uv pip compile --generate-hashes`, `uv lock` or "
                "`pip-compile --generate-hashes`.",
            ) from None
        except ConfigError as error:
            raise PackagesUnavailable(f"the lock cannot be used: {error.message}") from None
        return self._read[1]

    def _refuse_way_out(self, path: Path) -> None:
        """Refuse a lock in the workspace's folder, where others may write, that is a link to somewhere else."""
        folder = Path(self._policy.path or "/")
        if path.is_relative_to(folder) and not Path(os.path.realpath(path)).is_relative_to(folder):
            from mcp_sandbox.locks.lock import LockUnusable

            raise LockUnusable("leads out of the workspace's folder")


def layer_key(lock: Lock, base: BaseImage, *, shared: bool) -> str:
    """Return the name of all that decides what is in a layer."""
    said = f"{RECIPE} {lock.sha256} {base.id} {base.platform} {shared:d}"
    return hashlib.sha256(said.encode()).hexdigest()
