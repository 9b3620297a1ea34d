"""What Podman's Docker API takes otherwise: the same restrictions, in the words that it understands.

Measured with Podman 4.3 through API 1.41; `docs/engines.md` has what differs for a program.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from mcp_sandbox.engines.docker import seccomp
from mcp_sandbox.errors import EngineUnsafe

_NPROC = 4096
"""Bounds nothing here, for it counts all processes of a user on the engine's host; the limit of processes is another.
Podman's own, where none is named, is 1,048,576, and an engine without CAP_SYS_RESOURCE may not set that."""
_MISREAD = frozenset(',"\r\n')
"""It makes a line of comma-separated values of a mount and reads that again: what follows these would be options."""
_ITS_OWN_TMPFS = ("/run", "/var/tmp")  # noqa: S108  # paths inside the sandbox


def podman_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return the body of the create call as Podman takes it.

    Raises:
        EngineUnsafe: A mount has a path that Podman would misread, or a runtime that may not hold it read-only.
    """
    host_config = config["HostConfig"]
    if any(_MISREAD & {*mount["Target"], *mount.get("Source", "")} for mount in host_config["Mounts"]):
        raise EngineUnsafe(
            "Podman's Docker API mounts nothing whose path has a comma, a quotation mark or a line break, and hides no "
            "such file.",
            next_step='Rename the file or folder, or set workspace_transfer = "copy".',
        )
    if any(mount["Type"] == "volume" for mount in host_config["Mounts"]):
        raise EngineUnsafe(
            "Podman's Docker API makes no volume that holds a folder read-only under gVisor.",
            next_step='Set workspace_transfer = "copy", or runtime = "runc".',
        )
    tmpfs = {
        # Both would be writable without a bound: Podman mounts them in every container with a read-only root.
        **dict.fromkeys(_ITS_OWN_TMPFS, "ro,noexec,nosuid,nodev,size=4k"),
        **{path: _known_options(options) for path, options in host_config["Tmpfs"].items()},
    }
    return {
        **config,
        "HostConfig": {
            **host_config,
            "Tmpfs": tmpfs,
            "Ulimits": [*host_config["Ulimits"], {"Name": "nproc", "Soft": _NPROC, "Hard": _NPROC}],
            "SecurityOpt": [
                "no-new-privileges",
                # A file of the engine's host: a text is taken for the name of one. Where the engine is on another
                # machine it has no such file, and refuses.
                f"seccomp={files(seccomp) / 'profile.json'}",
                # MaskedPaths is not looked at; this adds to a list of Podman's own.
                f"mask={':'.join(host_config['MaskedPaths'])}",
            ],
        },
    }


def _known_options(options: str) -> str:
    """Leave out owner and number of files, which Podman refuses: the mode lets anybody write, memory bounds both."""
    return ",".join(
        option for option in options.split(",") if option.partition("=")[0] not in ("nr_inodes", "uid", "gid")
    )
