"""Names of the workspace's files while somebody types one: those that a run would see, and no others.

Nothing that a client sends is opened: it says only where to look, one folder's name after the other, and no link is
followed.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio
from anyio import to_thread

from mcp_sandbox.errors import SandboxError
from mcp_sandbox.masks import Patterns
from mcp_sandbox.paths import is_plain_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.view import Folders

    Skip = Callable[[str, bool], bool]
    """Tells of a path, and whether it is a folder's, that it is not to be named."""

Kind = Literal["file", "folder"]

MAX_NAMES = 100
"""Names in one answer, as the protocol has it."""
MAX_ENTRIES = 20_000
"""Files and folders that are looked at for one answer; who types more of the path is led past a huge folder."""
SECONDS = 2.0
"""Longest time for one answer: a person is typing."""


class Names(NamedTuple):
    """What could be meant, the likeliest first."""

    paths: tuple[str, ...] = ()
    more: bool = False
    """Whether there may be others."""


class Completer:
    """Completes paths of one workspace."""

    def __init__(self, policy: Policy, folders: Folders) -> None:
        self._root = policy.path or ""
        self._folders = folders
        self._ignored = Patterns(policy.workspace_copy_ignore)
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def complete(self, typed: str, kind: Kind) -> Names:
        """Return what could be meant; nothing while an earlier look at a large folder goes on."""
        names = Names(more=True)
        if self._one_at_a_time.available_tokens:
            with anyio.move_on_after(SECONDS):
                names = await to_thread.run_sync(
                    self._look, typed, kind, abandon_on_cancel=True, limiter=self._one_at_a_time
                )
        return names

    def _look(self, typed: str, kind: Kind) -> Names:
        try:
            hidden = self._folders.hidden()
        except SandboxError:
            return Names(more=True)  # a run tells what is wrong; who types is not stopped by it
        return names_below(
            self._root,
            typed,
            kind,
            lambda path, is_folder: (
                f"{self._root}/{path}" in hidden or self._ignored.match(path, is_folder=is_folder)
            ),
        )


def names_below(root: str, typed: str, kind: Kind, skip: Skip) -> Names:
    """Return the paths below `root` whose folder is the one that was typed, or in it, and whose name has the rest."""
    start, _, name = typed.removeprefix("./").rpartition("/")
    if start and not _is_inside(root, start, skip):
        return Names()
    name = name.lower()
    found: list[tuple[bool, int, str]] = []
    entries = 0
    for path, entry in islice(_below(root, start, skip), MAX_ENTRIES):
        entries += 1
        if _is(kind, entry) and name in entry.name.lower() and is_plain_path(path):
            found.append((not entry.name.lower().startswith(name), path.count("/"), path))
    found.sort()
    paths = tuple(path for _, _, path in found[:MAX_NAMES])
    return Names(paths, more=len(found) > MAX_NAMES or entries == MAX_ENTRIES)


def _is_inside(root: str, folder: str, skip: Skip) -> bool:
    """Tell whether this is the path of a folder that may be named, reached through no link."""
    if not is_plain_path(folder):
        return False
    parts = folder.split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        try:
            if skip(path, True) or not stat.S_ISDIR(os.lstat(f"{root}/{path}").st_mode):
                return False
        except OSError:
            return False
    return True


def _below(root: str, start: str, skip: Skip) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield what may be named of a folder and all below it, the nearest first."""
    pending = deque([start])
    while pending:
        folder = pending.popleft()
        try:
            listing = os.scandir(f"{root}/{folder}")
        except OSError:
            continue
        with listing:
            for entry in listing:
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if skip(path, is_folder):
                    continue
                if is_folder:
                    pending.append(path)
                yield path, entry


def _is(kind: Kind, entry: os.DirEntry[str]) -> bool:
    if kind == "folder":
        return entry.is_dir(follow_symlinks=False)
    return entry.is_file(follow_symlinks=False)
