"""What a workspace held when a run saw it: one line for each file, and one digest for all of them.

Above: `executor`, `replay`. Below: `tree`, `files`. Taken beside the run, in a thread, and bounded: what was not
looked at, or not hashed, is said.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mcp_sandbox.files import open_below
from mcp_sandbox.tree import files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_FILES = 20_000
"""Files of one workspace that are listed."""
MAX_HASHED_BYTES = 64 << 20
"""Bytes that are read for one manifest; what a run before has hashed, and has not changed, costs nothing."""
MAX_SECONDS = 5.0
"""Longest time for one manifest, while its run goes on."""
AFTER_SECONDS = 0.3
"""Longest time for it once its run has ended, for the run's result waits."""
FRESH_SECONDS = 2.0
"""A file that changed so lately may change again within its time stamp's grain: its hash is not remembered."""
_HASHED_AT_ONCE = 1 << 20


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


class Patience:
    """How long a manifest may take: a while beside its run, little once that has ended."""

    def __init__(self) -> None:
        self._ended = math.inf

    def run_ended(self) -> None:
        """Somebody waits from now on."""
        self._ended = min(self._ended, time.monotonic())

    def is_over(self, began: float) -> bool:
        """Tell whether what began then has to end with what it has."""
        now = time.monotonic()
        return now > began + MAX_SECONDS or now > max(began, self._ended) + AFTER_SECONDS


class ManifestTaker:
    """Takes manifests of one folder, and remembers of files that have not changed what it found."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, _File] = {}

    def take(self, hidden: frozenset[str] = frozenset(), patience: Patience | None = None) -> Manifest:
        """List and hash the folder's files but those that are hidden from runs; blocks."""
        began, patience = time.monotonic(), patience or Patience()
        files: dict[str, _File] = {}
        for path, file in self._list(hidden):
            if len(files) >= MAX_FILES or patience.is_over(began):
                complete = False
                break
            files[path] = file
        else:
            complete = True
        self._hash(files, lambda: patience.is_over(began))
        self._remember(files)
        lines = sorted(file.line for file in files.values())
        hashed = sum(file.digest is not None for file in files.values())
        return Manifest("\n".join(lines).encode("ascii"), len(lines), hashed, complete)

    def _list(self, hidden: frozenset[str]) -> Iterator[tuple[str, _File]]:
        skipped = {path.removeprefix(self._root + "/") for path in hidden}
        known = self._known
        for path, entry in files_below(self._root, lambda path, _: path in skipped):
            if entry is None:
                continue  # a folder that is not readable here, nor inside
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it went away meanwhile
            identity = (
                *(status.st_dev, status.st_ino, status.st_mode, status.st_size),
                *(status.st_mtime_ns, status.st_ctime_ns),
            )
            file = known.get(path)
            yield path, file if file and file.identity == identity else _File.of(path, identity)

    def _hash(self, files: dict[str, _File], is_over: Callable[[], bool]) -> None:
        bytes_left = MAX_HASHED_BYTES
        for path, file in files.items():
            if file.digest is None and stat.S_ISREG(file.mode) and file.size <= bytes_left:
                if is_over():
                    return
                bytes_left -= file.size
                files[path] = _File.of(path, file.identity, _hash(self._root, path, file, is_over))

    def _remember(self, files: dict[str, _File]) -> None:
        """Keep what will be as true of the same file later; of files that were not looked at, what was known."""
        settled = time.time_ns() - int(FRESH_SECONDS * 1e9)
        known = self._known
        found = {
            path: file for path, file in files.items() if known.get(path) is file or file.changed_at < settled
        }
        self._known = known | found if len(known) < MAX_FILES else found


class _File(NamedTuple):
    """A file as it was found."""

    identity: tuple[int, ...]
    """What tells whether it is still the same: device, inode, mode, size, times of change."""
    digest: str | None
    line: str

    @classmethod
    def of(cls, path: str, identity: tuple[int, ...], digest: str | None = None) -> _File:
        return cls(identity, digest, json.dumps([path, identity[3], identity[2], digest]))

    @property
    def mode(self) -> int:
        return self.identity[2]

    @property
    def size(self) -> int:
        return self.identity[3]

    @property
    def changed_at(self) -> int:
        return max(self.identity[4:])


def changes(then: bytes, now: bytes, *, complete: bool = True) -> list[str]:
    """Return in words which files differ between the lines of two manifests, which are complete or not."""
    before, after = _by_path(then), _by_path(now)
    said = []
    if complete:  # else a file that is in one of them alone may just not have been listed
        said += [f"{path}: gone" for path in sorted(before.keys() - after.keys())]
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


def _hash(root: str, path: str, expected: _File, is_over: Callable[[], bool]) -> str | None:
    """Return the SHA-256 of a regular file; None where it is none, is another now, or takes too long."""
    try:
        descriptor = open_below(root, path)
    except OSError:
        return None
    digest = hashlib.sha256()
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if os.fstat(descriptor).st_ino != expected.identity[1]:
            return None
        while data := file.read(_HASHED_AT_ONCE):
            digest.update(data)
            if is_over():
                return None
    return digest.hexdigest()
