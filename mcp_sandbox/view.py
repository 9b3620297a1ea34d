"""What a run sees of the person's folders, and how it gets there: mounted with masks over it, or copied.

Above: `executor`. Below: `masks`, `config`, `guest`, `sandbox`. Found anew for every call, so that a file that
appeared a moment ago is hidden too. It is part of the sandbox's spec: what was made ready for another view is not
handed out.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from mcp_sandbox.config.settings import GVISOR
from mcp_sandbox.config.sizes import format_size
from mcp_sandbox.errors import AuditError, RequestRefused
from mcp_sandbox.guest.copies import Copy
from mcp_sandbox.masks import Hidden, Masks, Patterns, find_in
from mcp_sandbox.sandbox import Mount
from mcp_sandbox.tree import files_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.sandbox import SandboxSpec

WORKSPACE = "/workspace"
MAX_HIDDEN, MAX_HIDDEN_GVISOR = 1000, 200
"""Files and folders that can be hidden, each under a mount. Measured: runc starts with 3000, gVisor with 200 and
not with 1000."""
PAGE_BYTES = 4096
"""What files in memory are rounded up to."""


@dataclass(frozen=True, slots=True)
class View:
    """What a run sees."""

    mounts: tuple[Mount, ...] = ()
    copy_bytes: int | None = None
    """Room for copies; None where nothing is copied, for it is mounted or there is no folder."""
    copies: tuple[Copy, ...] = ()
    left_out: int = 0
    """Files that cannot be copied: links, sockets, and what this user may not read."""
    hidden: frozenset[str] = frozenset()
    """Files and folders of the host, by path, that are kept out of sight."""

    def of(self, spec: SandboxSpec) -> SandboxSpec:
        """Return the spec of a sandbox that sees this."""
        return spec.model_copy(update={"mounts": self.mounts, "workspace_bytes": self.copy_bytes})

    def facts(self) -> dict[str, object]:
        """Return what the record says of it."""
        if self.copy_bytes is not None:
            return {"copied": len(self.copies), "not_copied": self.left_out}
        hidden = [mount.target for mount in self.mounts if mount.hides]
        return {"hidden": hidden} if hidden else {}


class Folders:
    """The folders that runs under one policy see."""

    def __init__(
        self, policy: Policy, *, hiding: Path, engine_is_local: Callable[[], bool] = lambda: True
    ) -> None:
        self._policy = policy
        self._hiding = hiding
        """Folder of ours for the empty file and the empty folder that are mounted over what is hidden."""
        self._engine_is_local = engine_is_local
        roots = [(policy.path, WORKSPACE)] if policy.path else []
        roots += [(mount.source, mount.target) for mount in policy.mounts]
        # gVisor lets nobody open what leads out, and does not start with a mount over it; a copy leaves it out.
        ways_out = policy.runtime != GVISOR and policy.workspace_transfer != "copy"
        self._roots = [
            (source, target, Masks(source, policy.mask, policy.unsafe_unmask, ways_out=ways_out))
            for source, target in roots
        ]
        self._threads = anyio.CapacityLimiter(2)
        self.latest = View()
        """What the last run saw."""
        self.on_change: Callable[[View], None] = lambda view: None

    async def look(self) -> View:
        """Return what a run sees that starts now.

        Raises:
            RequestRefused: There is too much to look at, to hide or to copy, or a folder is not where it was.
            EngineError: There is no engine.
            AuditError: There is nothing to hide files under.
        """
        if self._roots:
            self.latest = await to_thread.run_sync(self._look, abandon_on_cancel=True, limiter=self._threads)
        self.on_change(self.latest)
        return self.latest

    def hidden(self) -> frozenset[str]:
        """Return what no run sees now, as paths of the host; blocks.

        Raises:
            RequestRefused: There is too much to look at, or a folder is not where it was.
        """
        for source, _, _ in self._roots:
            _identity(source)
        return frozenset(each.path for found in self._find() for each in found)

    def _find(self) -> list[list[Hidden]]:
        return find_in([masks for _, _, masks in self._roots])

    def _look(self) -> View:
        identities = [_identity(source) for source, _, _ in self._roots]
        transfer = self._policy.workspace_transfer
        if transfer == "copy" or (transfer == "auto" and not self._engine_is_local()):
            return self._copied()
        mounts = [
            Mount(source=source, target=target, identity=identity)
            for (source, target, _), identity in zip(self._roots, identities, strict=True)
        ]
        paths: set[str] = set()
        for (source, target, _), found in zip(self._roots, self._find(), strict=True):
            paths |= {hidden.path for hidden in found}
            mounts += [self._over(hidden, target + hidden.path[len(source) :]) for hidden in found]
        most = MAX_HIDDEN_GVISOR if self._policy.runtime == GVISOR else MAX_HIDDEN
        if (count := len(mounts) - len(self._roots)) > most:
            raise RequestRefused(
                f"{count:,} files and folders of the workspace are to be hidden; at most {most:,} can be.",
                next_step="Ask the person to hide the folders that hold them (`mask`), to show what is harmless "
                "(`unsafe_unmask`), to move them, or to have the workspace copied (`workspace_transfer`).",
            )
        return View(mounts=tuple(mounts), hidden=frozenset(paths))

    def _over(self, hidden: Hidden, target: str) -> Mount:
        nothing = self._hiding / ("folder" if hidden.is_folder else "file")
        try:
            _make_empty(nothing, is_folder=hidden.is_folder)
        except OSError as error:
            raise AuditError(f"{nothing}, under which files are hidden, cannot be made: {error}.") from None
        return Mount(source=str(nothing), target=target, identity=hidden.identity, hides=True)

    def _copied(self) -> View:
        if self._policy.mounts or not self._policy.path:
            raise RequestRefused(
                "this workspace has folders (`mounts`) that would have to be copied, and only its own can be.",
                next_step="Ask the person to take them out, or to use an engine on this machine.",
            )
        root = self._policy.path
        hidden = frozenset(each.path for each in self._roots[0][2].find())
        ignored = Patterns(self._policy.workspace_copy_ignore)

        def skip(path: str, is_folder: bool) -> bool:
            return f"{root}/{path}" in hidden or ignored.match(path, is_folder=is_folder)

        limit, most = self._policy.workspace_copy_limit, self._policy.inodes // 2
        copies: list[Copy] = []
        left_out = taken = 0
        for path, entry in files_below(root, skip):
            source = f"{root}/{path}"
            if entry is None or not entry.is_file(follow_symlinks=False) or not os.access(source, os.R_OK):
                left_out += 1
                continue
            copy = Copy(os.fsencode(path), root, entry.stat(follow_symlinks=False).st_size)
            copies.append(copy)
            taken += -(-copy.size // PAGE_BYTES) * PAGE_BYTES
            if len(copies) > most or taken > limit:
                raise RequestRefused(
                    f"the workspace is too large to be copied: at most {most:,} files (half of `inodes`) and "
                    f"{format_size(limit)} (`workspace_copy_limit`) are.",
                    next_step="Ask the person to leave files out (`workspace_copy_ignore`), to raise the limit, to "
                    'choose a smaller folder, or to have it mounted (`workspace_transfer = "mount"`).',
                )
        return View(copy_bytes=limit, copies=tuple(copies), left_out=left_out, hidden=hidden)


def _identity(source: str) -> str:
    """Tell one folder from another that takes its place: a ready sandbox goes on seeing the one that was moved away.

    Raises:
        RequestRefused: It is gone, or a link took its place, or that of a folder around it: what that leads to was
            never found fit to be shown.
    """
    try:
        status = os.lstat(source)
        moved = os.path.realpath(source, strict=True) != source
    except OSError as error:
        raise _unusable(source, (error.strerror or "").lower()) from None
    if moved:
        raise _unusable(source, "a link took its place")
    return f"{status.st_dev}:{status.st_ino}"


def _unusable(source: str, why: str) -> RequestRefused:
    return RequestRefused(
        f"the folder {source} of this workspace cannot be used: {why}.",
        next_step="Ask the person to bring it back, then call again.",
    )


def _make_empty(path: Path, *, is_folder: bool) -> None:
    """Have an empty file or folder there.

    Raises:
        OSError: It cannot be made, or something else is there.
    """
    if is_folder:
        path.mkdir(mode=0o555, parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise OSError("it is not empty")
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o444)
    status = path.lstat()
    if status.st_size or not stat.S_ISREG(status.st_mode):
        raise OSError("it is not empty")
