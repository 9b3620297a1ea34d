"""Which folders a program may be shown.

A read-only mount still lets a program read what is in it and connect to the sockets in it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_THE_KERNEL = ("/proc", "/sys", "/dev")


def holds(folder: Path, inner: Path) -> bool:
    """Tell whether `inner` is the folder or lies in it, whatever names and links lead there."""
    try:
        identity = _identity(folder)
        inner = Path(os.path.realpath(inner))
    except (OSError, ValueError):
        return False
    for path in (inner, *inner.parents):
        try:
            if _identity(path) == identity:
                return True
        except OSError:  # not there, or nothing that this user may see: its parents still count
            continue
    return False


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def usable_folder(path: str, *, home: Path, keep_out: Mapping[Path, str]) -> Path:
    """Return the real path of a folder that a program may see.

    Args:
        path: As the user wrote it, absolute.
        home: The user's home folder.
        keep_out: What a program must not see, and what to call it.

    Raises:
        ValueError: It may not be shown, or is no folder, in words that follow the path.
    """
    folder = _real_folder(path)
    if folder == Path("/"):
        raise ValueError("is the root of the file system: name the folder that programs should see")
    if holds(folder, home):
        raise ValueError("is or holds your home folder, and with it your keys: name a folder in it")
    for kernel in _OF_THE_KERNEL:
        if holds(Path(kernel), folder):
            raise ValueError(f"lies in {kernel}, which is the kernel's")
    for inner, meaning in keep_out.items():
        if holds(folder, inner) or holds(inner, folder):
            raise ValueError(f"holds, or lies in, {meaning} ({inner}), which programs must not reach")
    return folder


def _real_folder(path: str) -> Path:
    if not path.isprintable():
        raise ValueError("has a character in its name that cannot be shown")
    try:
        folder = Path(os.path.realpath(path, strict=True))
        mode = folder.stat().st_mode
    except FileNotFoundError:
        hint = ": the client did not fill in the variable" if "${" in path else ""
        raise ValueError(f"does not exist{hint}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be used: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISDIR(mode):
        raise ValueError("is not a folder")
    if not str(folder).isprintable():
        raise ValueError("leads to a folder whose name cannot be shown")
    return folder


def engine_sockets(host: str, *, home: Path, environ: Mapping[str, str]) -> list[Path]:
    """Return where sockets that command an engine may lie, whichever of them is in use."""
    said = [
        address.removeprefix("unix://")
        for address in (host, environ.get("DOCKER_HOST", ""))
        if address.startswith("unix://")
    ]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return [
        Path(path)
        for path in (
            *said,
            "/var/run/docker.sock",
            "/run/podman/podman.sock",
            "/run/containerd/containerd.sock",
            f"{runtime}/docker.sock",
            f"{runtime}/podman/podman.sock",
            f"{home}/.docker/run/docker.sock",
            f"{home}/.docker/desktop/docker.sock",
            f"{home}/.colima/default/docker.sock",
            f"{home}/.orbstack/run/docker.sock",
            f"{home}/.rd/docker.sock",
        )
    ]
