"""A lock's file: which format it is, by its name, and what it says."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

from mcp_sandbox.locks.lock import LockUnusable
from mcp_sandbox.locks.pylock import read_pylock
from mcp_sandbox.locks.requirements import read_requirements
from mcp_sandbox.locks.uv import read_uv_lock

if TYPE_CHECKING:
    from mcp_sandbox.locks.lock import Lock

MAX_BYTES = 16 << 20

_OTHERS = {
    "poetry.lock": "`poetry export --format requirements.txt`",
    "pdm.lock": "`pdm export --format requirements`",
    "Pipfile.lock": "`pipenv requirements --hash`",
}


def read_lock(name: str, content: bytes, *, sources: bool) -> Lock:
    """Return the lock that a file of this name holds; `sources` where packages may be built from their source.

    Raises:
        LockUnusable: It is no lock, or leaves open what would be installed.
    """
    if name in _OTHERS:
        raise LockUnusable(f"is of a form that is not known here: {_OTHERS[name]} makes one that is")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LockUnusable("is not UTF-8") from None
    if re.fullmatch(r"pylock(\.[^.]+)?\.toml", name):
        return read_pylock(_toml(text), sources=sources)
    if name == "uv.lock":
        return read_uv_lock(_toml(text), sources=sources)
    return read_requirements(text)


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        raise LockUnusable("is no valid TOML") from None
