"""Profiles, as data, and what "looser" means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.config.settings import GVISOR, KIB, MIB, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILES: Mapping[Profile, Mapping[str, object]] = {
    "standard": {},
    "untrusted": {
        "runtime": GVISOR,
        "timeout_seconds": 10.0,
        "max_timeout_seconds": 30.0,
        "memory": 512 * MIB,
        "cpus": 1.0,
        "pids_limit": 128,
        "scratch_size": 128 * MIB,
        "tmp_size": 32 * MIB,
        "shm_size": 16 * MIB,
        "nofile": 256,
        "inodes": 8192,
        "code_limit": 256 * KIB,
        "output_limit": 256 * KIB,
        "reply_limit": 10 * KIB,
        "input_limit": 2 * MIB,
        "artifact_count": 100,
        "artifact_limit": 32 * MIB,
        "artifact_total_limit": 64 * MIB,
        "ready": 1,
        "ready_idle_seconds": 900.0,
        "workspace_copy_limit": 64 * MIB,
        "unsafe_unmask": (),
        "unsafe_allow_unconfined_seccomp": False,
    },
}
"""What each profile sets. The values are bounds too: under a profile, what it sets may only be tightened."""

HIDING = frozenset({"mask", "workspace_copy_ignore"})
"""Keys that hold lists of what is kept from programs: the longer, the tighter."""


def looser(key: str, value: object, than: object) -> bool:
    """Tell whether `value` allows more than `than`; a change of which nobody knows counts as looser."""
    if value == than:
        return False
    if key == "profile":
        return value != "untrusted"
    if key == "runtime":
        return value != GVISOR
    if key in HIDING and isinstance(value, tuple) and isinstance(than, tuple):
        return not set(than) <= set(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and isinstance(than, (int, float)):
        return value > than
    return True
