"""Pictures that came out of a run, as image content that clients show and models see.

The server never decodes a picture: only its size is read from its header. One that is too large is scaled where
hostile data belongs, by a program in a sandbox of its own.
"""

from __future__ import annotations

import base64
import io
import logging
import re
from typing import TYPE_CHECKING

import anyio
import imagesize
from mcp.types import ImageContent

from mcp_sandbox.errors import SandboxError
from mcp_sandbox.guest.protocol import ArtifactLimits
from mcp_sandbox.guest.session import Program

if TYPE_CHECKING:
    from mcp_sandbox.executor import Executor
    from mcp_sandbox.model import Artifact, ExecutionResult

SHOWN = ("image/png", "image/jpeg", "image/webp", "image/gif")
MAX_PICTURES = 4
MAX_PIXELS = 2000
"""Longest side of a picture that does not break a conversation."""
MAX_BYTES = 160 << 10
"""Bytes of one picture: four of them as base64, with the text, usually fit into one answer."""
MAX_SOURCE_BYTES = 32 << 20
SCALE_SECONDS = 20.0
ALL_SECONDS = 8.0
"""Longest wait for the pictures of one answer: a client that gets none in time gives up on the call."""

_log = logging.getLogger(__name__)

_SCALE = b"""
import os
from PIL import Image

image = Image.open("picture")
image.load()
clear = "A" in image.getbands() or "transparency" in image.info
for name, side, options in (
    ("scaled.png", 1568, {"optimize": True}),
    ("scaled.jpg", 1568, {"quality": 85}),
    ("scaled.jpg", 1000, {"quality": 75}),
    ("scaled.jpg", 600, {"quality": 70}),
):
    scaled = image.convert("RGBA" if clear and name.endswith("png") else "RGB")
    scaled.thumbnail((side, side))
    scaled.save(name, **options)
    if os.path.getsize(name) <= LIMIT:
        break
    os.remove(name)
""".replace(b"LIMIT", str(MAX_BYTES).encode())


async def pictures(result: ExecutionResult, executor: Executor, budget: int) -> list[ImageContent]:
    """Return the run's pictures, the likeliest first, each small enough to be shown, all within so many bytes."""
    shown: list[ImageContent] = []
    with anyio.move_on_after(ALL_SECONDS):
        await _show(shown, result, executor, budget)
    return shown


async def _show(shown: list[ImageContent], result: ExecutionResult, executor: Executor, budget: int) -> None:
    candidates = [artifact for artifact in result.artifacts if artifact.mime_type in SHOWN]
    for artifact in sorted(candidates, key=_importance)[:MAX_PICTURES]:
        picture = await picture_of(result.run_id, artifact.path, artifact.mime_type, executor)
        if picture and len(picture.data) <= budget:
            budget -= len(picture.data)
            shown.append(picture)


async def picture_of(run_id: str, path: str, mime_type: str, executor: Executor) -> ImageContent | None:
    """Return one picture of a run, scaled where it must be; None where it cannot be shown."""
    role = f"artifact:{path}"
    if (await executor.record.size(run_id, role) or 0) > MAX_SOURCE_BYTES:
        return None
    data = await executor.record.content(run_id, role)
    if data is not None and not _fits(data):
        data, mime_type = await _scaled(data, executor)
    if data is None:
        return None
    return ImageContent(type="image", data=base64.b64encode(data).decode("ascii"), mime_type=mime_type)


def _importance(artifact: Artifact) -> tuple[bool, int, list[tuple[str, int]]]:
    """Figures that were left open first, then what lies nearest to the working folder; 2 before 10."""
    natural = [(text, int(digits or 0)) for text, digits in re.findall("([^0-9]*)([0-9]*)", artifact.path)]
    return not artifact.path.startswith("figure-"), artifact.path.count("/"), natural


def _fits(data: bytes) -> bool:
    if len(data) > MAX_BYTES:
        return False
    width, height = imagesize.get(io.BytesIO(data))
    return bool(0 < width <= MAX_PIXELS and 0 < height <= MAX_PIXELS)


async def _scaled(data: bytes, executor: Executor) -> tuple[bytes | None, str]:
    """Return a picture scaled to fit, and its type; None where that cannot be had."""
    program = Program(
        language="python",
        code=_SCALE,
        timeout_seconds=SCALE_SECONDS,
        head_bytes=4096,
        tail_bytes=0,
        files=(("picture", data),),
        artifacts=ArtifactLimits(files=1, each_bytes=MAX_BYTES, all_bytes=MAX_BYTES),
    )
    file = _OneFile()
    try:
        with anyio.move_on_after(SCALE_SECONDS):  # the wait for its turn included
            await executor.run_beside(program, file)
    except SandboxError as error:
        _log.info("a picture was not scaled: %s", error)
    picture = bytes(file.data)
    return (picture if _fits(picture) else None), file.mime_type


class _OneFile:
    """Takes the one file that comes out; one that is cut short fits no more."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.mime_type = ""

    def begin(self, path: bytes, size: int) -> None:
        """Take the file's type, one of two, from its name."""
        self.mime_type = "image/png" if path.endswith(b".png") else "image/jpeg"

    def write(self, data: bytes) -> None:
        """Take its next bytes."""
        self.data += data

    def refused(self, path: bytes, reason: str) -> None:
        """Learn that it is too large still: then there is none."""
