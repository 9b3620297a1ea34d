"""What of a folder programs are not to see: files that hold credentials, told by their names.

Above: `view`. Below: `tree`, `files`. Files come and go, so every call looks anew; a folder whose own time of change is
what it was has the names it had, so that a second look at a hundred thousand files takes milliseconds.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import threading
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.files import open_regular
from mcp_sandbox.tree import files_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_ENTRIES = 1_000_000
"""Files and folders that are looked at."""
MAX_SECONDS = 20.0
"""Longest time for one look: clients give up on a call after about 60 s."""
MAX_KEYS = 1000
"""Files of a hidden folder whose other names are looked for; one with more is no place for keys, but a tree that was
installed, and links its files with others of its kind."""
SETTLED_NS = 2_000_000_000
"""How long ago a folder must have changed for its time to tell of the next change: some file systems count in steps of
two seconds."""

_GIT_CONFIG = re.compile(r"(.*/)?\.git/(modules/[^/]+/)?config")
_GIT_CONFIG_BYTES = 64 << 10
_CREDENTIAL = re.compile(rb"https?://[^/\s@]+@|extraheader|pass|secret|token", re.IGNORECASE)


class Patterns:
    """Names of files and folders, as shells match them, at any depth and in any case.

    `NAME` means files and folders, `NAME/` folders alone, `A/B` a B in an A.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_Pattern(pattern) for pattern in patterns]
        # One expression for all: nearly every name is told from them by it alone.
        self._is_last = re.compile(
            "|".join(fnmatch.translate(pattern.parts[-1]) for pattern in self._patterns) or "(?!)"
        ).fullmatch

    def match(self, path: str, *, is_folder: bool) -> bool:
        """Tell whether a path, relative to the folder that is looked at, is meant."""
        path = path.lower()
        if not self._is_last(path, path.rfind("/") + 1):
            return False
        parts = path.split("/")
        return any(pattern.match(parts, is_folder=is_folder) for pattern in self._patterns)


class _Pattern:
    def __init__(self, pattern: str) -> None:
        self.folders_only = pattern.endswith("/")
        self.parts = pattern.lower().rstrip("/").split("/")

    def match(self, parts: Sequence[str], *, is_folder: bool) -> bool:
        if len(parts) < len(self.parts) or (self.folders_only and not is_folder):
            return False
        return all(map(fnmatch.fnmatchcase, parts[-len(self.parts) :], self.parts))


class Hidden(NamedTuple):
    """A file or folder that programs are not to see."""

    path: str
    """Absolute; no link leads there."""
    is_folder: bool
    identity: str
    """Tells whether it is still the one it was: the mount that hides a file goes with it when another takes its
    place."""
    file: FileId
    names: int
    """Hard links to it, this one counted."""


class FileId(NamedTuple):
    """What all names of one file have in common."""

    device: int
    inode: int


class Masks:
    """Finds what is to be hidden in one folder."""

    def __init__(
        self, folder: str, masked: Iterable[str], unmasked: Iterable[str] = (), *, ways_out: bool = True
    ) -> None:
        self._root = folder
        self._ways_out = ways_out
        """Whether sockets, pipes and devices are hidden, too: a read-only mount does not stop who writes to one."""
        self._masked = Patterns(masked)
        self._unmasked = Patterns(unmasked)
        self._lock = threading.Lock()
        self._known: dict[str, _Folder] = {}
        self._linked: dict[frozenset[int], list[str]] = {}

    def find(self) -> list[Hidden]:
        """Return what is to be hidden now, sorted; of what lies in a hidden folder, the folder alone.

        Raises:
            RequestRefused: There is too much to look at; a name cannot be told to an engine.
        """
        return find_in([self])[0]

    def by_name(self) -> dict[str, Hidden]:
        """Return what its name, or that of a link to it, says is to be hidden, by path."""
        with self._lock:
            return self._resolved(self._look_everywhere())

    def other_names(self, files: frozenset[FileId]) -> dict[str, Hidden]:
        """Return the names in this folder, by path, of files that are hidden under another."""
        device = os.lstat(self._root).st_dev
        inodes = frozenset(file.inode for file in files if file.device == device)
        with self._lock:
            if inodes and inodes not in self._linked:
                self._linked = {inodes: list(self._named(inodes))}
            return self._resolved(self._linked.get(inodes, []))

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _look_everywhere(self) -> Iterator[str]:
        """Yield the paths that match, and folders that cannot be looked into."""
        known: dict[str, _Folder] = {}
        entries, give_up = 0, time.monotonic() + MAX_SECONDS
        elsewhere = _mounted_below(self._root)
        pending = [""]
        while pending:
            path = pending.pop()
            folder = None if path in elsewhere else self._look_into(path)
            if folder is None:
                continue
            known[path] = folder
            entries += folder.entries
            if entries > MAX_ENTRIES or time.monotonic() > give_up:
                raise RequestRefused(
                    "the workspace has too many files to look for those that are to be hidden "
                    f"(at most {MAX_ENTRIES:,}, within {MAX_SECONDS:g} s).",
                    next_step="Ask the person to choose a smaller folder as workspace.",
                )
            pending += folder.folders
            yield from folder.matches
        if any(self._known.get(path) is not folder for path, folder in known.items()):
            self._linked.clear()
        self._known = known

    def _look_into(self, path: str) -> _Folder | None:
        """Return what a folder holds; None where it is gone."""
        try:
            status = os.lstat(self._full(path))
            stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
            known = self._known.get(path)
            if known and known.stamp == stamp:
                return known
            settled = time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED_NS
            return self._read(path, stamp if settled else None)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if not path:
                raise RequestRefused(
                    f"the workspace folder cannot be read: {(error.strerror or '').lower()}.",
                    next_step="Ask the person to make it readable.",
                ) from None
            # Whoever runs inside may be allowed what we are not.
            return _Folder(None, 1, (path,), ())

    def _read(self, path: str, stamp: tuple[int, int, int] | None) -> _Folder:
        prefix = path + "/" if path else ""
        matches: list[str] = []
        folders: list[str] = []
        entries = 0
        with os.scandir(self._full(path)) as listing:
            for entry in listing:
                entries += 1
                inner = prefix + entry.name
                if self._is_masked(inner, entry):
                    matches.append(inner)
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(inner)
                elif self._is_a_way_out(inner, entry):
                    matches.append(inner)
        return _Folder(stamp, entries, tuple(matches), tuple(folders))

    def _is_masked(self, path: str, entry: os.DirEntry[str]) -> bool:
        if not self._masked.match(path, is_folder=True):
            return False
        try:
            is_folder = entry.is_dir()  # asked for only here: for a link it takes a call
        except OSError:
            is_folder = False  # links in a circle
        return self._masked.match(path, is_folder=is_folder) and not self._unmasked.match(
            path, is_folder=is_folder
        )

    def _is_a_way_out(self, path: str, entry: os.DirEntry[str]) -> bool:
        if not self._ways_out or entry.is_file(follow_symlinks=False) or entry.is_symlink():
            return False
        return not self._unmasked.match(path, is_folder=False)

    def _named(self, inodes: frozenset[int]) -> Iterator[str]:
        for path in self._known:
            try:
                with os.scandir(self._full(path)) as listing:
                    yield from (
                        f"{path}/{entry.name}".lstrip("/") for entry in listing if entry.inode() in inodes
                    )
            except OSError:
                continue  # gone, or hidden as a whole

    def _resolved(self, paths: Iterable[str]) -> dict[str, Hidden]:
        hidden = (self._behind(path) for path in paths)
        return {each.path: each for each in hidden if each}

    def _behind(self, path: str) -> Hidden | None:
        """Return what there is to hide behind a name: what a link leads to, where that is in the folder."""
        full = self._full(path)
        try:
            status = os.lstat(full)
            if stat.S_ISLNK(status.st_mode):
                full = os.path.realpath(full)
                if not full.startswith(self._root + "/"):
                    return None
                status = os.lstat(full)
        except OSError:
            return None
        if stat.S_ISLNK(status.st_mode):
            return None  # links in a circle
        if _GIT_CONFIG.fullmatch(path) and not _holds_credentials(full):
            return None
        return Hidden(
            path=full,
            is_folder=stat.S_ISDIR(status.st_mode),
            identity=f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}",
            file=FileId(status.st_dev, status.st_ino),
            names=status.st_nlink,
        )


def find_in(folders: Sequence[Masks]) -> list[list[Hidden]]:
    """Return what is to be hidden now in each of these folders, sorted; of what lies in a hidden folder, that alone.

    A file that is hidden under one name is hidden under all that it has in any of them.

    Raises:
        RequestRefused: There is too much to look at; a name cannot be told to an engine.
    """
    found = [masks.by_name() for masks in folders]
    files = frozenset(file for each in found for file in _of_several_names(each.values()))
    if files:
        found = [each | masks.other_names(files) for each, masks in zip(found, folders, strict=True)]
    return [_outermost(each) for each in found]


def _outermost(found: Mapping[str, Hidden]) -> list[Hidden]:
    hidden = [found[path] for path in sorted(found) if not any(parent in found for parent in _parents(path))]
    for each in hidden:
        _check_name(each.path)
    return hidden


def _of_several_names(found: Iterable[Hidden]) -> Iterator[FileId]:
    """Yield the hidden files, and the files in hidden folders, that have more names than one."""
    for hidden in found:
        if not hidden.is_folder:
            if hidden.names > 1:
                yield hidden.file
            continue
        entries = [entry for _, entry in islice(files_below(hidden.path, lambda *_: False), MAX_KEYS + 1)]
        if len(entries) <= MAX_KEYS:
            yield from filter(None, map(_several_names, entries))


def _several_names(entry: os.DirEntry[str] | None) -> FileId | None:
    try:
        status = entry and entry.stat(follow_symlinks=False)
    except OSError:
        return None  # gone meanwhile
    return FileId(status.st_dev, status.st_ino) if status and status.st_nlink > 1 else None


class _Folder(NamedTuple):
    """What a folder held when it was read."""

    stamp: tuple[int, int, int] | None
    """Inode and times; None where it had changed so lately that they tell nothing."""
    entries: int
    matches: tuple[str, ...]
    folders: tuple[str, ...]


def _parents(path: str) -> Iterator[str]:
    while "/" in path[1:]:
        path = path[: path.rindex("/")]
        yield path


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestRefused(
            "a file that is to be hidden has a name that is not UTF-8, so no engine can be told of it: "
            f"{path.encode('utf-8', 'replace').decode()}.",
            next_step="Ask the person to rename it.",
        ) from None


def _holds_credentials(git_config: str) -> bool:
    """Tell whether a repository's settings hold a password or a token; where they cannot be read, they may."""
    try:
        with os.fdopen(open_regular(git_config, os.O_NOFOLLOW), "rb") as file:
            text = file.read(_GIT_CONFIG_BYTES)
    except OSError:
        return True
    return len(text) == _GIT_CONFIG_BYTES or _CREDENTIAL.search(text) is not None


def _mounted_below(folder: str) -> frozenset[str]:
    """Return where other file systems are mounted in a folder: programs see what lies beneath these instead."""
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
    except OSError:  # not on Linux
        return frozenset()
    points = (line.split(b" ")[4] for line in mounts.splitlines())
    unescaped = (re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), point) for point in points)
    prefix = folder + "/"
    return frozenset(
        path.removeprefix(prefix) for path in map(os.fsdecode, unescaped) if path.startswith(prefix)
    )
