"""Files of a run, copied out to a folder for a person: nothing there is replaced, and nothing lands beside it.

The paths are a program's, checked when they came out of the sandbox; the folder may be one that programs or strangers
write to. So each step is taken from an open folder, follows no link, and makes a file only where there is none.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mcp_sandbox.cli.transfers import LARGE_BYTES
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.paths import is_plain_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mcp_sandbox.audit.store import Recorder
    from mcp_sandbox.cli.transfers import Transfers
    from mcp_sandbox.model import ExecutionResult


async def copy_out(
    result: ExecutionResult, record: Recorder, folder: Path, shown: Transfers | None = None
) -> list[str]:
    """Copy all files of a run into a folder, and return what is wrong with those that were not copied.

    Raises:
        SandboxError: The folder cannot be made or opened, or the record not read.
    """
    if not result.artifacts:
        return []
    problems: list[str] = []
    done, total = 0, sum(artifact.size for artifact in result.artifacts)
    with _opened(folder) as root:
        for artifact in result.artifacts:
            if shown and total >= LARGE_BYTES:
                shown.show("copying out", done, total)
            done += artifact.size
            data = await record.content(result.run_id, f"artifact:{artifact.path}")
            if data is None:
                problems.append(f"{artifact.path} was not kept")
                continue
            try:
                place(root, artifact.path, data)
            except OSError as error:
                problems.append(f"{folder / artifact.path}: {(error.strerror or str(error)).lower()}")
    return problems


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(
            f"files cannot be copied to {folder}: {(error.strerror or '').lower()}.",
            next_step="Name another folder; `mcp-sandbox runs export` has them too.",
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def place(root: int, path: str, data: bytes) -> None:
    """Write a new file below an open folder.

    Raises:
        OSError: It is there already, a link is in the way, or it cannot be written.
    """
    if not is_plain_path(path):
        raise OSError("not a path that stays in the folder")
    *folders, name = path.split("/")
    folder = os.dup(root)
    try:
        for part in folders:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(file, "wb") as writer:
                writer.write(data)
        except OSError:
            os.unlink(name, dir_fd=folder)
            raise
    finally:
        os.close(folder)
