"""The system calls that a program may make under a runtime which shares the host's kernel.

`profile.json` is an allowlist, each group with its reason. It is Docker's own default for a container without
capabilities, minus what no interpreter needs: tracing and reading other processes (ptrace, process_vm_*,
pidfd_getfd, kcmp), io_uring and kernel AIO, file handles, secret memory, setting clocks, flushing the host's
disks (sync), local descriptor tables, 32-bit system calls altogether (socketcall hides its arguments from
a filter), and sockets of all families but local ones, IPv4, IPv6 and routing netlink.

Some of these are open in the default of engines that people still run: io_uring and AF_VSOCK on Docker 20.10,
AF_ALG before 29.4. Everything that is not named gets EPERM; what is newer than the list, ENOSYS.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files


@cache
def profile() -> str:
    """Return the profile as the engine's API takes it: JSON text, not a path."""
    text = files(__name__).joinpath("profile.json").read_text(encoding="utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"))
