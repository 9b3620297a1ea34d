"""What comes out of the sandbox that installed: names, modes and contents are its claims, checked one by one.

They become a build context for an engine, which copies them over an image and runs nothing. It is written to one
file that has no name, as it comes: a host that dies keeps nothing of it.
"""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from mcp_sandbox.errors import PackagesUnavailable
from mcp_sandbox.paths import is_plain_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mcp_sandbox.guest.protocol import Refusal

FINAL = "/opt/mcp-sandbox"
"""Where the packages stand in an image: a virtual environment."""
MAX_ENTRIES_BYTES = 64 << 20
FOLDER = "environment"
"""Its name in the build context."""

_MODES = {b"644": 0o644, b"755": 0o755}
_PYTHON = re.compile(rb"/[A-Za-z0-9._/-]{1,200}")
_BLOCK = 512


class Tree:
    """Takes the files of one installation, as an `ArtifactSink`."""

    def __init__(self, folder: Path, image: str, labels: Mapping[str, str]) -> None:
        self._recipe = _recipe(image, labels)
        self._entries: list[tuple[str, int]] = []
        self._index = bytearray()
        self._index_left: int | None = None
        self._left = self._size = self._taken = 0
        self._problem = ""
        self._error: OSError | None = None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file: BinaryIO = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # the caller closes it

    def begin(self, path: bytes, size: int) -> None:
        """Take a file's name, which is a number once the entries are known; see `ArtifactSink.begin`."""
        if self._index_left is None and path == b"entries" and size <= MAX_ENTRIES_BYTES:
            self._index_left = size
        elif self._index_left == 0 and not self._left and path == b"files/%06d" % self._expected():
            name, mode = self._entries[self._taken]
            self._taken += 1
            self._left = self._size = size
            self._write(_header(f"{FOLDER}/{name}", size=size, mode=mode))
        else:
            self._fail("a file came that was not announced")

    def write(self, data: bytes) -> None:
        """Take the next bytes of the file; see `ArtifactSink.write`."""
        if self._problem:
            return
        if self._index_left:
            self._index += data
            self._index_left -= len(data)
            if not self._index_left:
                self._read_entries()
            return
        self._left -= len(data)
        self._write(data)
        if not self._left:
            self._write(bytes(-self._size % _BLOCK))

    def refused(self, path: bytes, reason: Refusal) -> None:
        """Learn that a file was kept back; see `ArtifactSink.refused`."""
        self._fail(f"not all files came out: {reason.replace('_', ' ')}")

    def finish(self) -> BinaryIO:
        """Return the build context, from its beginning.

        Raises:
            PackagesUnavailable: What came is no installation, or the disk is full.
        """
        if not self._problem and (not self._entries or self._taken != len(self._entries) or self._left):
            self._fail("not all files came out")
        self._write(bytes(2 * _BLOCK), last=True)
        if self._error:
            raise PackagesUnavailable(
                f"the packages could not be kept on this machine's disk: {(self._error.strerror or '').lower()}.",
                next_step="Make room where the record is (`[audit] path`), then call again.",
            )
        if self._problem:
            raise PackagesUnavailable(f"what came out of the sandbox is no installation: {self._problem}.")
        return self._file

    def close(self) -> None:
        """Let go of all that came."""
        with suppress(OSError):  # what a full disk did not take before, it does not take now
            self._file.close()

    def _expected(self) -> int:
        return self._taken if self._taken < len(self._entries) else -1

    def _read_entries(self) -> None:
        """Check every name before any content is taken."""
        python, *records = bytes(self._index).split(b"\0")
        if not records or records.pop() or not _PYTHON.fullmatch(python):
            self._fail("it has no list of files")
            return
        taken = {"bin/python", "bin/python3"}
        for record in records:
            mode, _, raw = record.partition(b" ")
            path = raw.decode("utf-8", "replace")
            if mode not in _MODES or not is_plain_path(path) or path in taken or "�" in path:
                self._fail("a file has a name or a mode that none may have")
                return
            taken.add(path)
            self._entries.append((path, _MODES[mode]))
        self._write(_header("Dockerfile", size=len(self._recipe), mode=0o644))
        self._write(self._recipe + bytes(-len(self._recipe) % _BLOCK))
        folders = {str(folder) for path in taken for folder in PurePosixPath(FOLDER, path).parents} - {"."}
        for folder in sorted(folders):
            self._write(_header(folder, kind=tarfile.DIRTYPE, mode=0o755))
        for name in ("bin/python", "bin/python3"):
            self._write(_header(f"{FOLDER}/{name}", kind=tarfile.SYMTYPE, link=python.decode("ascii")))

    def _write(self, data: bytes, *, last: bool = False) -> None:
        if self._problem:
            return
        try:
            self._file.write(data)
            if last:
                self._file.seek(0)  # writes what was held back
        except OSError as error:
            self._error = error
            self._fail("it could not be kept")

    def _fail(self, problem: str) -> None:
        self._problem = self._problem or problem


def _recipe(image: str, labels: Mapping[str, str]) -> bytes:
    # Nothing of the image or of the packages runs while the engine builds. All labels in one line: each line is a
    # commit, which takes a second on a busy engine.
    said = " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    recipe = f"FROM {image}\nCOPY {FOLDER}/ {FINAL}/\nENV PATH={FINAL}/bin:$PATH VIRTUAL_ENV={FINAL}\nLABEL {said}\n"
    return recipe.encode()


def _header(
    name: str, *, size: int = 0, mode: int = 0o777, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = size, mode, kind, link
    return entry.tobuf(tarfile.GNU_FORMAT)
