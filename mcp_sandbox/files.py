"""Regular files of the host, opened to be read, whatever may have taken their place."""

from __future__ import annotations

import errno
import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(path: str | bytes | os.PathLike[str], flags: int = 0, *, dir_fd: int | None = None) -> int:
    """Open a regular file to read it, and return its descriptor.

    Raises:
        OSError: It is gone, no regular file, or not readable.
    """
    # Not blocking: a named pipe that nobody writes to would keep the thread for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is no regular file")


def open_below(root: str, path: str | bytes) -> int:
    """Open a regular file below a folder to read it, through no link, and return its descriptor.

    What was a folder or a file a moment ago may be a link by now that leads anywhere.

    Raises:
        OSError: It is gone, no regular file, behind a link, or not readable.
    """
    *folders, name = os.fsencode(path).split(b"/")
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        return open_regular(name, os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
