"""Locks of our own making, kept beside the record: which layer was made from which, when each was used last."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mcp_sandbox.config.toml import read_bytes
from mcp_sandbox.errors import PackagesUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCKED, RESOLVED = ".lock", ".resolved"
"""Ends of names: the lock of a layer, by the layer's key; the lock that a program's block came to, by what it says."""


def keep(folder: Path, name: str, text: str) -> None:
    """Have a lock of this name, used just now.

    Raises:
        PackagesUnavailable: It cannot be written.
    """
    file = folder / name
    try:
        try:
            os.utime(file)
        except FileNotFoundError:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = folder / f".{secrets.token_hex(8)}"
            new.write_text(text, encoding="utf-8")
            new.replace(file)
    except OSError as error:
        raise PackagesUnavailable(
            f"{folder} cannot be written: {(error.strerror or '').lower()}.",
            next_step="Make room where the record is (`[audit] path`), or make it writable.",
        ) from None


def kept(folder: Path, name: str) -> str | None:
    """Return the lock of this name; None where there is none.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        return read_bytes(folder / name, max_size=1 << 20).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def last_use(folder: Path, key: str) -> datetime | None:
    """Return when a layer was used last on this machine; None where it never was."""
    with suppress(OSError):
        return datetime.fromtimestamp((folder / f"{key}{LOCKED}").stat().st_mtime, UTC)
    return None


def forget(folder: Path, key: str = "", *, before: datetime | None = None) -> None:
    """Remove the lock of a layer that is gone, or all that programs' blocks came to and nobody used since."""
    for file in [folder / f"{key}{LOCKED}"] if key else _unused(folder, before):
        file.unlink(missing_ok=True)


def _unused(folder: Path, before: datetime | None) -> Iterator[Path]:
    for file in folder.glob(f"*{RESOLVED}"):
        with suppress(OSError):
            if before is None or datetime.fromtimestamp(file.stat().st_mtime, UTC) <= before:
                yield file
