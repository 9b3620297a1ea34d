"""Being somebody without privileges, for tests of what is denied: root is denied nothing."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be nobody where this is root; whoever else runs the tests has no privileges to drop."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
