"""The two files: the user's own, which says what is allowed, and a folder's, which asks for less."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mcp_sandbox.config.explain import explain, quoted
from mcp_sandbox.config.layers import Layer, resolve, too_loose
from mcp_sandbox.config.problems import Problem, refusal
from mcp_sandbox.config.profiles import looser
from mcp_sandbox.config.settings import FileSettings, PolicySettings
from mcp_sandbox.config.toml import Document, parse, read_bytes
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mcp_sandbox.config.layers import Resolved

FOLDER_FILE = "mcp-sandbox.toml"
"""Name of the file that a folder may carry."""

MAX_FOLDER_FILE_SIZE = 16 * 2**10
"""Bytes. It is read before anyone looked at it: the worst that fits keeps the reader busy for under 2 s."""


@dataclass(frozen=True)
class UserFile:
    """A configuration file, every key of which is valid on its own."""

    document: Document
    settings: FileSettings

    def layers(self, workspace: str | None) -> tuple[Layer, ...]:
        """Return what the file says of one of its workspaces, or of one that it does not name."""
        defaults = Layer(self.document, ("defaults",), self.settings.defaults)
        if workspace is None:
            return (defaults,)
        return defaults, Layer(self.document, ("workspaces", workspace), self.settings.workspaces[workspace])


@dataclass(frozen=True)
class FolderFile:
    """What a folder says of itself. Whoever can write to the folder wrote it: a model, or a stranger."""

    folder: Path
    content: bytes
    layer: Layer


def read_user_file(path: Path) -> UserFile:
    """Return the user's own configuration.

    Raises:
        FileNotFoundError: Nothing is there.
        ConfigError: It cannot be used: file, line and key are named.
    """
    return user_file(read_bytes(path), str(path))


def user_file(content: bytes, path: str) -> UserFile:
    """Return the configuration that a file of this content would be.

    Raises:
        ConfigError: It could not be used: file, line and key are named.
    """
    document = parse(content, path)
    try:
        return UserFile(document, FileSettings.model_validate(document.table))
    except ValidationError as error:
        raise refusal(document.file, explain(error, document, FileSettings)) from None


def no_user_file() -> UserFile:
    """Return what holds where there is no file: the defaults."""
    return UserFile(Document("", {}, {}), FileSettings())


def read_folder_file(folder: Path) -> FolderFile | None:
    """Return the folder's own file, or None where it has none.

    Raises:
        ConfigError: It cannot be used, trusted or not.
    """
    path = folder / FOLDER_FILE
    try:
        content = read_bytes(path, max_size=MAX_FOLDER_FILE_SIZE, follow_symlink=False)
    except FileNotFoundError:
        return None
    document = parse(content, str(path))
    problems = [
        Problem(words, document.line(key))
        for key in document.table
        if (words := _never_accepted(key)) is not None
    ]
    rest = {key: value for key, value in document.table.items() if _never_accepted(key) is None}
    try:
        settings = PolicySettings.model_validate(rest)
    except ValidationError as error:
        problems += explain(error, document, PolicySettings)
        raise refusal(document.file, problems) from None
    if problems:
        raise refusal(document.file, problems)
    return FolderFile(folder, content, Layer(document, (), settings))


def _never_accepted(key: str) -> str | None:
    """Say why a folder may not set a key at all, or return None where it may."""
    if key == "defaults":
        return "`defaults`: in a folder's own file the keys stand at the top, under no header"
    if key in FileSettings.model_fields or key in ("path", "secrets") or key.startswith("unsafe_"):
        return f"{quoted((key,))} is never accepted in a folder's own file, only in your own configuration"
    return None


def tighten(user_layers: Sequence[Layer], folder_file: FolderFile, *, trusted: bool) -> Resolved:
    """Return the policy that a folder's own file leaves of the user's.

    Raises:
        ConfigError: It loosens what the user's own configuration says and is not trusted, or cannot be used.
    """
    allowed = resolve(user_layers)
    wanted = resolve((*user_layers, folder_file.layer))
    problems = [] if trusted else loosenings(folder_file, allowed, wanted)
    file = folder_file.layer.document.file
    if problems:
        raise refusal(file, problems, next_step=_trust_step(folder_file.folder))
    if wanted.problems:
        raise refusal(file, wanted.problems)
    return wanted


def loosenings(folder_file: FolderFile, allowed: Resolved, wanted: Resolved) -> list[Problem]:
    """Return every way in which the policy that a folder wants allows more than the user's own."""
    looser_keys = [key for key, value in wanted.values.items() if looser(key, value, allowed.values[key])]
    # A looser profile loosens keys that the file does not name; those that it names are to be changed.
    named = [key for key in looser_keys if key in folder_file.layer.values]
    return [
        Problem(
            too_loose(key, wanted.values[key], allowed.values[key], "your own configuration"),
            folder_file.layer.line(key),
        )
        for key in named or looser_keys
    ]


def _trust_step(folder: Path) -> str:
    command = f"mcp-sandbox config trust {visible(shlex.quote(str(folder)), limit=4096)}"
    return f"Remove what is looser; or read the file, and if you want what it says: `{command}`."
