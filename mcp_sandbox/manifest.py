"""What a workspace held when a run saw it: one line for each file, and one digest for all of them.

Above: `executor`, `replay`. Below: `tree`. Taken beside the run, in a thread, and bounded: what was not looked at,
or not hashed, is said.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass, field

from mcp_sandbox.tree import files_below

MAX_FILES = 20_000
"""Files of one workspace that are listed."""
MAX_HASHED_BYTES = 64 << 20
"""Bytes that are read for one manifest; what a run before has hashed, and has not changed, costs nothing."""
MAX_SECONDS = 5.0
FRESH_SECONDS = 2.0
"""A file that changed so lately may change again within its time stamp's grain: its hash is not remembered."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a folder, as they were at one moment."""

    lines: bytes
    """A JSON array for each file: path, size, mode, SHA-256 or null; sorted by path."""
    files: int
    hashed: int
    complete: bool
    """False where there were more files than are listed."""

    @property
    def digest(self) -> str:
        """SHA-256 of the lines, in lower-case hex."""
        return hashlib.sha256(self.lines).hexdigest()

    def facts(self) -> dict[str, object]:
        """Return what the record says of it beside the lines."""
        return {
            "sha256": self.digest,
            "files": self.files,
            "hashed": self.hashed,
            "complete": self.complete,
        }


@dataclass
class ManifestTaker:
    """Takes manifests of one folder, and remembers the hashes of files that have not changed since."""

    root: str
    _known: dict[tuple[int, int, int, int, int], str] = field(default_factory=dict)

    def take(self, hidden: frozenset[str] = frozenset()) -> Manifest:
        """List and hash the folder's files but those that are hidden from runs; in a worker thread."""
        give_up = time.monotonic() + MAX_SECONDS
        known: dict[tuple[int, int, int, int, int], str] = {}
        lines: list[str] = []
        hashed = 0
        bytes_left = MAX_HASHED_BYTES
        complete = True
        for path, entry in files_below(self.root, lambda path, _: f"{self.root}/{path}" in hidden):
            try:
                status = entry and entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it went away meanwhile
            if status is None:
                continue  # a folder that is not readable here, nor inside
            if len(lines) >= MAX_FILES or time.monotonic() > give_up:
                complete = False
                break
            identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            digest = self._known.get(identity)
            if digest is None and stat.S_ISREG(status.st_mode) and status.st_size <= bytes_left:
                digest = _hash(f"{self.root}/{path}", status)
                bytes_left -= status.st_size
            if digest is not None:
                hashed += 1
                if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > FRESH_SECONDS * 1e9:
                    known[identity] = digest
            lines.append(json.dumps([path, status.st_size, status.st_mode, digest]))
        self._known = known
        lines.sort()
        return Manifest("\n".join(lines).encode("ascii"), len(lines), hashed, complete)


def changes(then: bytes, now: bytes) -> list[str]:
    """Return in words which files differ between the lines of two manifests."""
    before, after = _by_path(then), _by_path(now)
    said = [f"{path}: gone" for path in sorted(before.keys() - after.keys())]
    said += [f"{path}: new" for path in sorted(after.keys() - before.keys())]
    for path in sorted(before.keys() & after.keys()):
        size, mode, digest = before[path]
        new_size, new_mode, new_digest = after[path]
        if digest and new_digest and digest != new_digest:
            said.append(f"{path}: other content")
        elif size != new_size:
            said.append(f"{path}: {size} bytes then, {new_size} now")
        elif mode != new_mode:
            said.append(f"{path}: mode {mode:o} then, {new_mode:o} now")
    return said


def _by_path(lines: bytes) -> dict[str, tuple[int, int, str | None]]:
    entries = (json.loads(line) for line in lines.splitlines())
    return {str(path): (int(size), int(mode), digest) for path, size, mode, digest in entries}


def _hash(path: str, expected: os.stat_result) -> str | None:
    """Return the SHA-256 of a regular file; None where it is none, or not the one that was looked at."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_ino != expected.st_ino:
            return None
        return hashlib.file_digest(file, "sha256").hexdigest()
