"""Write a person's own file anew, whole or not at all, with the mode, the owner and the links that it had."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible


def rewrite(path: Path, content: bytes, *, was: bytes | None) -> None:
    """Put a file's new content in its place; behind a symbolic link it is the file that the link leads to.

    Args:
        path: The file; folders on the way to a new one are made.
        content: All of the new content.
        was: What the file held when it was read; None where there was none.

    Raises:
        ConfigError: It may not be written, or has changed since it was read. Nothing is changed then.
    """
    target = Path(os.path.realpath(path))
    try:
        if was is None:
            target.parent.mkdir(parents=True, exist_ok=True)
        else:
            _refuse_what_would_be_harmed(path, target)
        _replace(path, target, content, was)
    except OSError as error:
        raise _refusal(path, f"cannot be written: {error.strerror or error}") from error


def remove(path: Path, *, was: bytes | None) -> None:
    """Remove a file; behind a symbolic link it is the file that the link leads to.

    Raises:
        ConfigError: It may not be removed, or has changed since it was read. Nothing is changed then.
    """
    target = Path(os.path.realpath(path))
    try:
        _refuse_what_would_be_harmed(path, target)
        _refuse_what_changed(path, target, was)
        target.unlink()
    except OSError as error:
        raise _refusal(path, f"cannot be removed: {error.strerror or error}") from error


def _refuse_what_would_be_harmed(path: Path, target: Path) -> None:
    found = target.stat()
    # Root may write to anything, and a folder that is writable lets a file in it be replaced: ask the file.
    if not found.st_mode & 0o222 or not os.access(target, os.W_OK):
        raise _refusal(path, "is read-only")
    if found.st_nlink > 1:
        raise _refusal(path, "has other names (hard links), which would go on with the old content")


def _replace(path: Path, target: Path, content: bytes, was: bytes | None) -> None:
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    new = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if was is not None:
            _be_like(new, target)
        _refuse_what_changed(path, target, was)
        new.replace(target)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _be_like(new: Path, target: Path) -> None:
    """Give a file the owner, the mode and the attributes of another; its times are its own."""
    found, own = target.stat(), new.stat()
    if (found.st_uid, found.st_gid) != (own.st_uid, own.st_gid):
        os.chown(new, found.st_uid, found.st_gid)
    shutil.copystat(target, new)
    os.utime(new)


def _refuse_what_changed(path: Path, target: Path, was: bytes | None) -> None:
    try:
        now = target.read_bytes()
    except FileNotFoundError:
        now = None
    if now != was:
        raise _refusal(path, "was changed by another program meanwhile")


def _refusal(path: Path, words: str) -> ConfigError:
    return ConfigError(f"{visible(str(path), limit=4096)} {words}.", next_step="Nothing was written.")
