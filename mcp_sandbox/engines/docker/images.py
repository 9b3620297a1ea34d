"""The images that programs run in: building them, and telling whether one is what this version would build.

A client comes from `Connection.client`, whose scope also says what the SDK's own failures mean.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, ImageNotFound
from docker.utils import parse_repository_tag

from mcp_sandbox import __version__
from mcp_sandbox.errors import EngineError, ImageMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from docker import APIClient

STANDARD = "mcp-sandbox/standard:latest"
MINIMAL = "mcp-sandbox/minimal:latest"

_PYTHON_BASE = "python:3.13-slim"
_DEBIAN_BASE = "mcp-sandbox/debian-python:bookworm"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PODMANS_REGISTRY = "docker.io/"  # which Podman puts before a name without one

_CONTENT_LABEL = "mcp-sandbox.image.content"
_BASE_LABEL = "mcp-sandbox.image.base"
_VERSION_LABEL = "org.opencontainers.image.version"

# What the environment tells pip and apt. It stays in the stages that are thrown away.
_PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)

_SILENCE = 1800
"""Seconds that a build may print nothing: one step installs all of Python's packages."""

_NO_BASE = (
    f"Bring a base image to the engine, then build again: `docker pull {_PYTHON_BASE}`, or `docker load` of "
    "one saved elsewhere, or `--base` with a Debian or Ubuntu image that has python3 3.11 or newer. On "
    "Debian and Ubuntu `sudo apt-get install mmdebstrap` lets the build make one without a registry."
)
_NO_SUCH_BASE = "Pull or load it on that engine, or leave `--base` out to have one found."


@dataclass(frozen=True)
class BuildProgress:
    """Where a build is."""

    step: int
    """Counts from 1; 0 while the base image is looked for."""
    steps: int
    """0 while unknown."""
    line: str
    """What was printed, one line."""


@dataclass(frozen=True)
class Image:
    """An image of ours on an engine."""

    name: str
    id: str
    size_bytes: int
    created: int
    """Seconds since the epoch."""
    version: str
    """Of mcp-sandbox, when it was built."""
    base: str
    current: bool
    """Whether this version of mcp-sandbox would build the same."""


def content_hash() -> str:
    """Return what an image's content label says when it was built from what this version would build from."""
    digest = hashlib.sha256()
    for name, content in sorted(_recipe().items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def image_id(client: APIClient, name: str) -> str:
    """Return the id of the image that a name stands for on the engine now; empty where it stands for none.

    Raises:
        EngineError: The engine failed.
    """
    try:
        return str(client.inspect_image(name)["Id"])
    except ImageNotFound:
        return ""


def list_images(client: APIClient) -> list[Image]:
    """Return our images on the engine, by name.

    Raises:
        EngineError: The engine failed.
    """
    current = content_hash()
    images = [
        Image(
            name=name.removeprefix(_PODMANS_REGISTRY),
            id=entry["Id"],
            size_bytes=entry["Size"],
            created=entry["Created"],
            version=entry["Labels"].get(_VERSION_LABEL, ""),
            base=entry["Labels"].get(_BASE_LABEL, ""),
            current=entry["Labels"][_CONTENT_LABEL] == current,
        )
        for entry in client.images(filters={"label": _CONTENT_LABEL})
        for name in entry["RepoTags"] or ()
        if name != "<none>:<none>"
    ]
    return sorted(images, key=lambda image: image.name)


def build_image(
    client: APIClient,
    *,
    base: str | None,
    minimal: bool,
    ca_bundle: Path | None,
    progress: Callable[[BuildProgress], None],
) -> Image:
    """Build the standard or the minimal image and return it.

    Without `base`, the first of these that there is: the official Python image, on the engine or from its
    registry; a base made of Debian's packages on this host. `ca_bundle` is trusted while packages are
    fetched, and does not stay.

    Raises:
        ImageMissing: There is no base image.
        EngineError: The engine, or a step of the build, failed.
        OSError: `ca_bundle` cannot be read.
    """
    context = _context(ca_bundle.read_bytes() if ca_bundle else b"")
    base = _require(client, base, progress) if base else _find_base(client, progress)
    progress(BuildProgress(0, 0, f"base image: {base}"))
    name = MINIMAL if minimal else STANDARD
    output = client.build(
        fileobj=context,
        custom_context=True,
        target="minimal" if minimal else "standard",
        tag=name,
        # By id: Podman takes a name without a registry for one of docker.io's.
        buildargs={"BASE": image_id(client, base)} | _from_environment(),
        labels={_CONTENT_LABEL: content_hash(), _BASE_LABEL: base, _VERSION_LABEL: __version__},
        # The engine's own network may be off (`--bridge none`), and a proxy on this host is at 127.0.0.1.
        network_mode="host",
        rm=True,
        forcerm=True,
        timeout=_SILENCE,
        decode=True,
    )
    _follow(output, progress)
    return next(image for image in list_images(client) if image.name == name)


def _recipe() -> dict[str, bytes]:
    folder = files("mcp_sandbox") / "image"
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def _context(ca_bundle: bytes) -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in sorted((_recipe() | {"ca.crt": ca_bundle}).items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    archive.seek(0)
    return archive


def _from_environment() -> dict[str, str]:
    given = ((name, os.environ.get(name) or os.environ.get(name.lower())) for name in _PASSED_ON)
    return {name: value for name, value in given if value}


def _find_base(client: APIClient, progress: Callable[[BuildProgress], None]) -> str:
    try:
        return _require(client, _PYTHON_BASE, progress)
    except ImageMissing as error:
        progress(BuildProgress(0, 0, error.message))
    if not _has(client, _DEBIAN_BASE):
        _make_debian_base(client, progress)
    return _DEBIAN_BASE


def _has(client: APIClient, image: str) -> bool:
    try:
        client.inspect_image(image)
    except ImageNotFound:
        return False
    return True


def _require(client: APIClient, image: str, progress: Callable[[BuildProgress], None]) -> str:
    if _has(client, image):
        return image
    progress(BuildProgress(0, 0, f"pulling {image}"))
    repository, tag = parse_repository_tag(image)
    try:
        for event in client.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if "error" in event:
                raise ImageMissing(f"{image} cannot be pulled: {event['error']}.", next_step=_NO_SUCH_BASE)
            progress(
                BuildProgress(0, 0, " ".join(str(event.get(key, "")) for key in ("id", "status", "progress")))
            )
    except APIError as error:
        raise ImageMissing(
            f"{image} cannot be pulled: {error.explanation}.", next_step=_NO_SUCH_BASE
        ) from error
    return image


def _make_debian_base(client: APIClient, progress: Callable[[BuildProgress], None]) -> None:
    mmdebstrap = shutil.which("mmdebstrap")
    if mmdebstrap is None:
        raise ImageMissing("there is no base image to build on.", next_step=_NO_BASE)
    progress(BuildProgress(0, 0, "making a base image of Debian's packages"))
    command = [mmdebstrap, "--variant=minbase", "--include=python3", "--format=tar", "bookworm", "-"]
    said: deque[str] = deque(maxlen=5)
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        with subprocess.Popen(command, stdout=archive, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
            for line in process.stderr or ():
                said.append(line.strip())
                progress(BuildProgress(0, 0, line.strip()))
        if process.returncode:
            raise ImageMissing(f"mmdebstrap made no base image: {' | '.join(said)}.", next_step=_NO_BASE)
        answer: str = client.import_image_from_file(archive.name, changes=[f"ENV PATH={_PATH}"])
        imported = json.loads(answer.splitlines()[-1])["status"]
        repository, tag = _DEBIAN_BASE.split(":")
        client.tag(imported, repository, tag)  # Podman does not tell an import's name from its tag


def _follow(output: Iterable[dict[str, Any]], progress: Callable[[BuildProgress], None]) -> None:
    now = BuildProgress(0, 0, "")
    said: deque[str] = deque(maxlen=8)
    for event in output:
        if "error" in event:
            raise EngineError(
                f"step {now.step} of {now.steps} failed: {event['error'].strip()}; "
                f"its last words: {' | '.join(said)}.",
                next_step="Correct that and build again: the steps before it are kept. Packages come from "
                "the indexes of Debian and PyPI; `--ca-bundle` names the certificates of a proxy between.",
            )
        for line in event.get("stream", "").splitlines():
            if not line.strip():
                continue
            if step := re.match(r"Step (\d+)/(\d+) : ", line):
                now = BuildProgress(int(step[1]), int(step[2]), "")
            said.append(line.strip())
            progress(replace(now, line=line.strip()))
