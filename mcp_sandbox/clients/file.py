"""A client's own file: what it holds, what it would hold with an entry of ours, and writing that.

Nothing is written that does not say, to a strict parser, exactly what the file said before and the one change.
"""

from __future__ import annotations

import codecs
import copy
import json
import os
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp_sandbox.clients import jsonc, toml
from mcp_sandbox.clients.jsonc import Malformed
from mcp_sandbox.config.problems import Problem, refusal
from mcp_sandbox.config.toml import read_bytes
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.rewrite import remove, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from mcp_sandbox.clients.launch import Launch
    from mcp_sandbox.clients.table import Client

MAX_FILE_SIZE = 32 * 2**20
"""Bytes. Claude Code keeps much else in its file."""
BACKUP = ".mcp-sandbox.bak"
"""Added to a file's name."""


class _Language(Protocol):
    """What `jsonc` and `toml` both can."""

    def parse(self, text: str) -> dict[str, Any]: ...
    def put(self, text: str, path: Sequence[str], value: Any) -> str: ...
    def drop(self, text: str, path: Sequence[str]) -> str: ...


@dataclass(frozen=True)
class ClientFile:
    """A client's file as it is, or as it would be."""

    client: Client
    path: Path
    """As the client knows it; it may be a symbolic link."""
    content: bytes | None
    """None where there is no file."""

    @cached_property
    def text(self) -> str:
        """Its text, without a byte order mark.

        Raises:
            ConfigError: It is no UTF-8.
        """
        content = self.content or b""
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise self._refusal("not valid UTF-8", line) from None

    @cached_property
    def data(self) -> dict[str, Any]:
        """What it says.

        Raises:
            ConfigError: It cannot be understood: the line is named.
        """
        try:
            if self.client.format == "json":
                return jsonc.parse(self.text, comments=False)
            return self._language.parse(self.text)
        except Malformed as error:
            raise self._refusal(error.words, error.line) from None

    @property
    def entries(self) -> dict[str, Launch]:
        """Every server in it that a command starts, by name.

        Raises:
            ConfigError: It cannot be understood.
        """
        servers = _table(self.data, self.servers) or {}
        launches = {name: self.client.shape.launch(entry) for name, entry in servers.items()}
        return {name: launch for name, launch in launches.items() if launch}

    @property
    def ours(self) -> dict[str, Launch]:
        """Every entry in it that starts this program, by name.

        Raises:
            ConfigError: It cannot be understood.
        """
        return {name: launch for name, launch in self.entries.items() if launch.starts_us}

    @property
    def servers(self) -> tuple[str, ...]:
        """The key path of its table of servers, there or not yet."""
        first, *others = self.client.servers
        for path in others:
            table = _table(self.data, path)
            if table is not None and "type" not in table:  # else it is a server of that name
                return path
        return first

    def having(self, name: str, launch: Launch) -> ClientFile:
        """Return the file with an entry; what a person added to one that is there already stays.

        Raises:
            ConfigError: It cannot be changed, or has an entry of that name that starts another program.
        """
        if name in (_table(self.data, self.servers) or {}) and name not in self.ours:
            raise self._refusal(
                f"`{name}` is there already, and starts another program",
                next_step="Nothing was written. Choose another name with --name.",
            )
        path, entry = (*self.servers, name), self.client.shape.entry(launch)
        new = self._edited(lambda: self._language.put(self.text, path, entry))
        return self._checked(new, _merged(self.data, _nested(path, entry)))

    def without(self, names: Iterable[str]) -> ClientFile:
        """Return the file without some of its entries, as it was to the byte where nothing else has changed since.

        Raises:
            ConfigError: It cannot be changed.
        """
        file = self
        for name in names:
            path, rest = (*file.servers, name), copy.deepcopy(file.data)
            del (_table(rest, file.servers) or {})[name]
            file = file._checked(file._edited(partial(file._language.drop, file.text, path)), rest)
        return file if file.ours else file._as_before()

    def write(self, new: ClientFile) -> None:
        """Write what the file is to be, and keep what it was in a backup.

        Raises:
            ConfigError: It may not be written, or has changed since it was read. Nothing is changed then.
        """
        if new.content is None:
            remove(self.path, was=self.content)
            return
        kept = self._backup()
        # Where there is nothing of others, there is nothing to keep.
        backs_up = self.content is not None and bool(self._of_others or not self.ours)
        backs_up = backs_up and not (kept and self._says_the_same(kept))
        if backs_up:
            rewrite(self.backup, self.content or b"", was=kept.content if kept else None)
        try:
            rewrite(self.path, new.content, was=self.content)
        except ConfigError:
            if backs_up and kept is None:
                self.backup.unlink(missing_ok=True)
            raise
        if kept and new.content == kept.content:
            self.backup.unlink(missing_ok=True)  # it is the file now

    @property
    def backup(self) -> Path:
        """Where its content is kept before it is changed."""
        return self.path.with_name(self.path.name + BACKUP)

    def _as_before(self) -> ClientFile:
        """Return the file as it was before this program came into it, where all that it says is the same."""
        kept = self._backup()
        if kept:
            return kept if self._says_the_same(kept) and not kept.ours else self
        # Every file that was there before has a backup. This one was made by us, if nobody wrote into it since.
        nothing_else = not self._of_others and "".join(self.text.split()) in (
            "",
            json.dumps(self.data, separators=(",", ":")),
        )
        return replace(self, content=None) if nothing_else else self

    def _backup(self) -> ClientFile | None:
        try:
            # No link is followed: it would be another file that is overwritten.
            content = read_bytes(self.backup, max_size=MAX_FILE_SIZE, follow_symlink=False)
            return replace(self, content=content)
        except FileNotFoundError:
            return None

    def _says_the_same(self, kept: ClientFile) -> bool:
        """Tell whether a backup has all that the file says beside our entries."""
        try:
            return kept._of_others == self._of_others
        except ConfigError:
            return False

    @property
    def _of_others(self) -> dict[str, Any]:
        """What it says beside our entries, and beside what is made on the way to them."""
        data = copy.deepcopy(self.data)
        for name in self.ours:
            del (_table(data, self.servers) or {})[name]
        return _pruned(data, self.servers)

    @property
    def _language(self) -> _Language:
        return toml if self.client.format == "toml" else jsonc

    def _edited(self, edit: Callable[[], str]) -> ClientFile:
        mark = codecs.BOM_UTF8 if (self.content or b"").startswith(codecs.BOM_UTF8) else b""
        try:
            return replace(self, content=mark + edit().encode())
        except Malformed as error:
            raise self._refusal(error.words, error.line) from None

    def _checked(self, new: ClientFile, expected: Mapping[str, Any]) -> ClientFile:
        if _pruned(new.data, new.servers) != _pruned(expected, self.servers):
            raise self._refusal("it is written in a way that cannot be changed without harm")
        return new

    def _refusal(self, words: str, line: int | None = None, *, next_step: str | None = None) -> ConfigError:
        by_hand = f"Correct it, or add by hand what `mcp-sandbox install {self.client.name} --print` says."
        return refusal(
            str(self.path), [Problem(words, line)], next_step=next_step or f"Nothing was written. {by_hand}"
        )


def client_file(client: Client, home: Path, environ: Mapping[str, str]) -> ClientFile:
    """Return a client's file, which need not exist.

    Raises:
        ConfigError: It cannot be read, is no regular file, or is too large.
    """
    places = client.files(home, environ)
    path = next((place for place in places if os.path.lexists(place)), places[0])
    try:
        return ClientFile(client, path, read_bytes(path, max_size=MAX_FILE_SIZE))
    except FileNotFoundError:
        return ClientFile(client, path, None)


def _table(data: Mapping[str, Any], path: Iterable[str]) -> dict[str, Any] | None:
    """Return a table in what a file says; None where it is not there, or no table."""
    table: Any = data
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def _pruned(data: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return what a file says, without the tables on a path that have nothing in them."""
    if not path:
        return dict(data)
    key, *rest = path
    pruned = dict(data)
    if isinstance(data.get(key), dict):
        pruned[key] = _pruned(data[key], rest)
    if pruned.get(key) == {}:
        del pruned[key]
    return pruned


def _nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return dict(value)


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return old | {key: _merged(old.get(key), value) for key, value in new.items()}
