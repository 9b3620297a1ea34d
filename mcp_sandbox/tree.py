"""The files of a folder of the host, in a fixed order; links are not followed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def files_below(
    root: str, skip: Callable[[str, bool], bool]
) -> Iterator[tuple[str, os.DirEntry[str] | None]]:
    """Yield path below `root` and entry of everything that is no folder; None for a folder that cannot be read.

    `skip` is asked with a path and whether it is a folder's; what it says yes to is passed over, with all below it.
    """
    pending = [""]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(f"{root}/{folder}") as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            yield folder, None
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if skip(path, is_folder):
                continue
            if is_folder:
                pending.append(path)
            else:
                yield path, entry
