"""Files that come out of a run: names and contents are the program's, so both are claims to be checked.

Above: `executor`. Below: `guest.session`, whose `ArtifactSink` this is. Files are written under names of our
own into a folder of our own; the path that the program chose is data and never a path of the host's.
"""

from __future__ import annotations

import hashlib
import mimetypes
import shutil
import unicodedata
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

from mcp_sandbox.audit.record import Content
from mcp_sandbox.capture import clean
from mcp_sandbox.model import Artifact, SkippedArtifact
from mcp_sandbox.paths import is_plain_path
from mcp_sandbox.redact import NO_SECRETS, SecretSearch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mcp_sandbox.redact import Redactor

MAX_SKIPPED = 100
"""Files that stayed behind and are told by name."""
_WHY = {
    "link": "a link: only regular files come out",
    "not_a_file": "not a regular file",
    "too_deep": "too many folders deep",
    "path_too_long": "its path is too long",
    "too_large": "larger than a file may be",
    "all_too_large": "more than all files together may be",
    "too_many": "more files than may come out",
    "unreadable": "not readable",
    "walk_too_long": "too many files to look at; the rest was not looked at",
    "name": "its name is no printable text, or no relative path",
    "collides": "its name differs from another's only in case or in form",
    "incomplete": "it did not arrive whole",
}
"""What is said of a file that stays behind, by the reason's short name."""


class ArtifactCollector:
    """Takes the files of one run into a folder of its own."""

    def __init__(self, run_id: str, folder: Path, redactor: Redactor = NO_SECRETS) -> None:
        self._run_id = run_id
        self._redactor = redactor
        self._search = SecretSearch(redactor)
        self._folder = folder
        self._seen: set[str] = set()
        self._current: _Incoming | None = None
        self.artifacts: list[Artifact] = []
        self.skipped: list[SkippedArtifact] = []
        self._not_kept = self._kept_back = 0
        """Files that did not come out as far as is known here, and how many of them the guest named."""
        self.contents: list[Content] = []
        """The same files as the record keeps them: bytes on disk by role and hash."""

    def begin(self, path: bytes, size: int) -> None:
        """Take a file's path and size; see `ArtifactSink.begin`."""
        self._end()
        name = readable_path(path)
        self._search = SecretSearch(self._redactor)
        if secret := self._redactor.name_in(path):
            self._skip(path, _holds(secret))
        elif name is None:
            self._skip(path, "name")
        elif (key := _same_on_any_disk(name)) in self._seen:
            self._skip(path, "collides")
        else:
            self._seen.add(key)
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._current = _Incoming(name, size, self._folder / str(len(self.contents)))
            except OSError as error:
                self._skip(path, _unstored(error))
            else:
                if not size:
                    self._end()

    def write(self, data: bytes) -> None:
        """Take the next bytes of the file; see `ArtifactSink.write`."""
        if self._current:
            if secret := self._search.feed(data):  # before it is written: what is not on the disk need not go
                self._give_up(_holds(secret))
                return
            try:
                self._current.write(data)
                if not self._current.left:
                    self._end()
            except OSError as error:  # the disk is full, say: the run's result must come all the same
                self._give_up(_unstored(error))

    def refused(self, path: bytes, reason: str) -> None:
        """Learn that a file was kept back; see `ArtifactSink.refused`."""
        self._end()
        self._kept_back += 1
        if reason == "path_too_long":
            path = self._redactor.cut_end(self._redactor(path))
        self._skip(path, reason)

    def finish(self) -> None:
        """Take note that no more comes: a file that did not arrive whole is no artifact."""
        self._end()

    def discard(self) -> None:
        """Remove what was not taken away."""
        self._give_up("incomplete")
        shutil.rmtree(self._folder, ignore_errors=True)

    def count_skipped(self, kept_back: int | None) -> int:
        """Count the files that did not come out, of which the guest says that it kept back so many."""
        return self._not_kept + max(0, (kept_back or 0) - self._kept_back)

    def lose(self, reason: str) -> None:
        """Give up every file that came out, for a reason that is not the program's."""
        for artifact in self.artifacts:
            self._skip(artifact.path.encode(), reason)
        self.artifacts, self.contents = [], []

    def _give_up(self, reason: str) -> None:
        incoming, self._current = self._current, None
        if incoming:
            with suppress(OSError):
                incoming.file.close()
            incoming.target.unlink(missing_ok=True)
            self._skip(incoming.name.encode(), reason)

    def _end(self) -> None:
        if self._current and self._current.left:
            self._give_up("incomplete")
        incoming = self._current
        if incoming is None:
            return
        incoming.file.close()  # writes what was held back; where that fails, the file is still the one to give up
        self._current = None
        digest = incoming.hash.hexdigest()
        self.contents.append(
            Content(f"artifact:{incoming.name}", b"", digest, incoming.target, incoming.size)
        )
        self.artifacts.append(
            Artifact(
                path=incoming.name,
                size=incoming.size,
                mime_type=mime_type(incoming.name),
                sha256=digest,
                uri=f"run://{self._run_id}/artifacts/{quote(incoming.name)}",
            )
        )

    def _skip(self, path: bytes, reason: str) -> None:
        self._not_kept += 1
        if len(self.skipped) == MAX_SKIPPED:
            return
        shown = clean(self._redactor(path).decode("utf-8", "replace")).replace("\n", "␊").replace("\t", "␉")
        # A mark that turns the text around would let a name pass for another.
        shown = "".join(character if character.isprintable() else "�" for character in shown[:200])
        self.skipped.append(SkippedArtifact(path=shown, reason=_WHY.get(reason, reason)))


@contextmanager
def collecting(
    run_id: str, folder: Path | None, redactor: Redactor = NO_SECRETS
) -> Iterator[ArtifactCollector | None]:
    """Yield a collector that writes into this folder, which is gone afterwards; None where there is none."""
    if folder is None:
        yield None
        return
    collector = ArtifactCollector(run_id, folder, redactor)
    try:
        yield collector
    finally:
        collector.discard()


class _Incoming:
    def __init__(self, name: str, size: int, target: Path) -> None:
        self.name = name
        self.size = size
        self.left = size
        self.target = target
        self.hash = hashlib.sha256()
        self.file: BinaryIO = target.open("xb")

    def write(self, data: bytes) -> None:
        self.left -= len(data)
        self.hash.update(data)
        self.file.write(data)


def _holds(secret: str) -> str:
    return f"it holds the secret {secret}"


def _unstored(error: OSError) -> str:
    return f"it could not be stored: {error.strerror.lower() if error.strerror else type(error).__name__}"


def readable_path(path: bytes) -> str | None:
    """Return a path as text where it is printable, relative and free of tricks; else None."""
    try:
        name = path.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return name if is_plain_path(name) else None


def _same_on_any_disk(name: str) -> str:
    """Fold what some file systems take for the same name: case, composed forms, trailing dots and spaces."""
    parts = (part.rstrip(". ") for part in unicodedata.normalize("NFC", name).casefold().split("/"))
    return "/".join(parts)


def mime_type(name: str) -> str:
    """Return the media type that a file's name stands for; the same on every machine."""
    # Not strict: until Python 3.13 image/webp is among the types that are merely usual.
    known, encoding = mimetypes.MimeTypes(filenames=()).guess_type(name, strict=False)
    return known if known and not encoding else "application/octet-stream"
