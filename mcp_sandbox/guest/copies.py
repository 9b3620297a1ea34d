"""Files of a workspace as frames, for an engine that cannot mount the folder.

Above: `guest.session`. Below: `guest.protocol`.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from mcp_sandbox.guest.protocol import encode_copied, encode_copy, encode_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH_BYTES = 1 << 20
"""Bytes that are read and sent at once, at least: many small files would take a step each."""


class Copy(NamedTuple):
    """A file to copy."""

    path: bytes
    """Below the workspace, with `/` between its parts."""
    source: str
    """Where it is on this machine."""
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
    """Yield a file's frames; none where it is gone, or no file any more."""
    try:
        # A link that took the file's place could lead anywhere; a FIFO would never open.
        file = os.open(copy.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    with os.fdopen(file, "rb", buffering=0) as reader:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return
        yield encode_copy(copy.path)
        left = copy.size
        while left and (data := reader.read(min(left, BATCH_BYTES))):
            left -= len(data)
            yield encode_data(data)
