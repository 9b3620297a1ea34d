"""Files of a workspace as frames, for an engine that cannot mount the folder.

Above: `guest.session`. Below: `guest.protocol`, `files`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from mcp_sandbox.files import open_below
from mcp_sandbox.guest.protocol import encode_copied, encode_copy, encode_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH_BYTES = 1 << 20
"""Bytes that are read and sent at once, at least: many small files would take a step each."""


class Copy(NamedTuple):
    """A file to copy."""

    path: bytes
    """Below the workspace, with `/` between its parts."""
    root: str
    """The workspace's folder on this machine."""
    size: int
    """Bytes that are taken of it at most: a file that grows meanwhile must not outgrow its limit."""


def batches(copies: Iterable[Copy]) -> Iterator[bytes]:
    """Yield the frames of all files, many to a batch; blocks while it reads."""
    batch = bytearray()
    for copy in copies:
        for frame in _frames(copy):
            batch += frame
            if len(batch) >= BATCH_BYTES:
                yield bytes(batch)
                batch.clear()
    yield bytes(batch) + encode_copied()


def _frames(copy: Copy) -> Iterator[bytes]:
    """Yield a file's frames; none where it is gone, or no file of the workspace's any more."""
    try:
        file = open_below(copy.root, copy.path)
    except OSError:
        return
    with os.fdopen(file, "rb", buffering=0) as reader:
        yield encode_copy(copy.path)
        left = copy.size
        while left and (data := reader.read(min(left, BATCH_BYTES))):
            left -= len(data)
            yield encode_data(data)
