"""The state folder: who may read it, where its files are, and big contents as files named by their hash."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import sqlite3
import stat
import time
from typing import TYPE_CHECKING, Literal

from mcp_sandbox.errors import AuditError
from mcp_sandbox.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mcp_sandbox.audit.record import Content

_FREE_SPACE = "Free space on its disk, or name another folder under [audit] path in the configuration."
_TRY_AGAIN = "Try again; if it lasts, look for a process that keeps the record locked (`fuser` names it)."
_DAMAGED = "Run `mcp-sandbox runs verify`; to go on at once, move the folder aside: a new record starts."
_OWN_FOLDER = "Name a folder of your own under [audit] path in the configuration."

_UNFINISHED_SUFFIX = ".tmp"

_YOUNG_SECONDS = 3600
"""Age up to which a file that no run names may be on its way to being named."""


class Folder:
    """Paths and files of one store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "record.sqlite3"
        self.blobs = path / "blobs"
        self.leases = path / "leases"
        self.staging = path / "staging"
        self.setup_lock = path / "setup.lock"

    def prepare(self) -> None:
        """Make what is missing, 0700, and refuse what somebody else could steer.

        Raises:
            AuditError: A part is a symlink, not what it should be, somebody else's, or writable by others.
            OSError: It cannot be made.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self.path, self.blobs, self.leases, self.staging):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                _sync_folder(folder.parent)
            self._check(folder)
            if folder.lstat().st_uid != os.geteuid():
                raise AuditError(
                    f"{folder}, of the run record, belongs to somebody else.", next_step=_OWN_FOLDER
                )
        self._check_database()
        descriptor = os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.close(descriptor)

    def check(self) -> None:
        """Refuse a store that somebody else could steer; make nothing.

        Raises:
            AuditError: There is no store, or a part of it is a symlink or writable by others.
        """
        if not os.path.lexists(self.database):
            raise AuditError(
                f"There is no run record in {self.path}.",
                next_step="Run something first, or name the folder under [audit] path in the configuration.",
            )
        for folder in (self.path, self.blobs, self.leases):
            self._check(folder)
        self._check_database()

    def _check_database(self) -> None:
        if self.database.is_symlink():
            raise AuditError(
                f"{self.database}, of the run record, is a symbolic link.", next_step=_OWN_FOLDER
            )

    @staticmethod
    def _check(folder: Path) -> None:
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise AuditError(f"{folder}, of the run record, is a symbolic link.", next_step=_OWN_FOLDER)
        if not stat.S_ISDIR(status.st_mode):
            raise AuditError(f"{folder}, of the run record, is not a folder.", next_step=_OWN_FOLDER)
        if status.st_mode & 0o022:
            raise AuditError(
                f"Others can write in the folder {folder} of the run record.",
                next_step=f"Run `chmod go-w {folder}`, or name another one under [audit] path.",
            )

    def is_archive(self) -> bool:
        """Tell whether this is a store at rest on a medium that cannot be written."""
        return not os.access(self.path, os.W_OK) and not os.path.lexists(f"{self.database}-wal")

    def database_file(self) -> tuple[int, int] | None:
        """Return device and inode of the database, or None where there is none."""
        try:
            status = self.database.lstat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def blob(self, digest: str) -> Path:
        """Return where the content with this hash is kept."""
        return self.blobs / digest[:2] / digest

    def keep(self, content: Content) -> None:
        """Write a content, whole or not at all, and on disk when this returns.

        Raises:
            OSError: It cannot be written.
        """
        target = self.blob(content.sha256)
        if self.fault(content.sha256, content.size) is None:
            # Young again: `may_remove` leaves it to the record that is about to name it.
            os.utime(target, follow_symlinks=False)
            return
        with contextlib.suppress(FileExistsError):
            target.parent.mkdir(mode=0o700)
            _sync_folder(self.blobs)
        unfinished = target.parent / f".{content.sha256[:8]}.{secrets.token_hex(8)}{_UNFINISHED_SUFFIX}"
        try:
            if content.file is None:
                _write_synced(unfinished, content.data)
            else:  # synced already: see `adopt`
                os.link(content.file, unfinished, follow_symlinks=False)
            unfinished.replace(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def has(self, content: Content) -> bool:
        """Tell whether a content is there, by its size alone."""
        try:
            status = self.blob(content.sha256).lstat()
        except FileNotFoundError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == content.size

    def staged(self, run_id: str) -> Path:
        """Return where the files that come out of a run are written before they are kept."""
        return self.staging / run_id

    def forget_staged(self, run_id: str) -> None:
        """Delete what a dead server left of the files of a run."""
        shutil.rmtree(self.staged(run_id), ignore_errors=True)

    def adopt(self, contents: Sequence[Content]) -> None:
        """Put staged files on disk and among the contents, before the record names them: it may take long.

        Raises:
            OSError: They cannot be written.
        """
        for content in contents:
            if content.file is not None:
                content.file.chmod(0o600)
                _sync_file(content.file)
                self.keep(content)

    def read(self, digest: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Return a content, or so many bytes of it from an offset on.

        Raises:
            OSError: It is gone.
        """
        with os.fdopen(open_regular(self.blob(digest), os.O_NOFOLLOW), "rb") as file:
            file.seek(offset)
            return file.read(-1 if limit is None else limit)

    def fault(self, digest: str, size: int) -> Literal["missing", "altered"] | None:
        """Tell what is wrong with a content, if anything."""
        try:
            descriptor = open_regular(self.blob(digest), os.O_NOFOLLOW)
        except OSError as exc:
            return "missing" if exc.errno == errno.ENOENT else "altered"
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_size != size:
                return "altered"
            return None if hashlib.file_digest(file, "sha256").hexdigest() == digest else "altered"

    def blob_paths(self) -> Iterator[Path]:
        """Yield every file among the contents, unfinished ones too."""
        for path in self.blobs.rglob("*"):
            # Another process may have removed it meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISDIR(path.lstat().st_mode):
                    yield path

    def may_remove(self, path: Path) -> bool:
        """Tell whether a file that no run names is ours and left over; a young one may be named yet."""
        if path != self.blob(path.name) and path.suffix != _UNFINISHED_SUFFIX:
            return False
        with contextlib.suppress(FileNotFoundError):
            return path.lstat().st_mtime < time.time() - _YOUNG_SECONDS
        return False

    def size(self) -> int:
        """Return the bytes that the store takes on disk."""
        total = 0
        for path in (self.database, self.database.with_name(f"{self.database.name}-wal"), *self.blob_paths()):
            with contextlib.suppress(FileNotFoundError):
                total += path.lstat().st_size
        return total

    def silent(self, seconds: float) -> AuditError:
        """Return the error of a store that has not answered for so many seconds."""
        return AuditError(
            f"The run record in {self.path} did not answer within {seconds:g} s.",
            next_step="Look at the disk that holds it, or name another folder under [audit] path.",
        )

    def failed(self, doing: str, error: sqlite3.Error) -> AuditError:
        """Return the error for what SQLite says."""
        return AuditError(
            f"The run record in {self.path} cannot be {doing}: {error}.", next_step=_next_step(error)
        )

    @contextlib.contextmanager
    def explained(self, doing: str = "written") -> Iterator[None]:
        """Turn what SQLite and the system say into an AuditError that names the folder and the next step."""
        try:
            yield
        except sqlite3.Error as exc:
            raise self.failed(doing, exc) from exc
        except OSError as exc:
            full = exc.errno in {errno.ENOSPC, errno.EDQUOT}
            raise AuditError(
                f"The run record in {self.path} cannot be {doing}: {exc.strerror or exc}.",
                next_step=_FREE_SPACE if full else None,
            ) from exc


def _next_step(error: sqlite3.Error) -> str | None:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return _FREE_SPACE
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return _TRY_AGAIN
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CONSTRAINT:
            return _DAMAGED
        case _:
            return None


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Put a folder's entries on disk: without it a power cut can forget a file that was itself synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
