"""Fetches the secrets of a workspace for one run: from a variable, a file, a command or the system's keyring.

Above: `executor`. Below: `config`. Values live as long as the run that they were fetched for. What cannot be had is
an error that names the secret and its source; neither a value nor what a source said of its failure is ever told.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcp_sandbox.egress.bound import IN_A_HEADER
from mcp_sandbox.errors import SecretMissing
from mcp_sandbox.files import open_regular
from mcp_sandbox.redact import MIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_sandbox.config.policy import SecretUse
    from mcp_sandbox.config.settings import SecretSettings

FETCH_SECONDS = 10.0
"""Longest wait for one secret: a keyring may ask its person, and a command the network."""
MAX_BYTES = 64 << 10
"""Longest secret: the kernel takes no longer variable than twice this."""


@dataclass(frozen=True)
class Fetched:
    """The secrets of one run, and the first of them that is missing."""

    values: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    missing: SecretMissing | None = None


@dataclass(frozen=True)
class SecretSources:
    """Where each secret of a workspace comes from."""

    sources: Mapping[str, SecretSettings] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    async def fetch(self, uses: Mapping[str, SecretUse]) -> Fetched:
        """Fetch those that are used, one after the other: several may need the same person's consent."""
        values: dict[str, bytes] = {}
        missing: SecretMissing | None = None
        for name, use in uses.items():
            source = self.sources[name]
            try:
                values[name] = _usable(await self._fetch(source), in_a_header=bool(use.hosts))
            except _Unusable as why:
                missing = missing or SecretMissing(
                    f"the secret {name} cannot be had from {source}: {why}.", next_step=why.next_step
                )
        return Fetched(values, missing)

    async def _fetch(self, source: SecretSettings) -> bytes:
        with anyio.move_on_after(FETCH_SECONDS):
            if source.env is not None:
                value = self.environ.get(source.env)
                if value is None:
                    raise _Unusable("it is not set")
                return os.fsencode(value)
            if source.file is not None:
                return _line(await anyio.to_thread.run_sync(_read, source.file, abandon_on_cancel=True))
            if source.command is not None:
                return _line(await _output(source.command, self.environ))
            return await anyio.to_thread.run_sync(_from_keyring, source.keyring, abandon_on_cancel=True)
        raise _Unusable(f"it took more than {FETCH_SECONDS:g} s")


class _Unusable(Exception):
    """Why a secret cannot be had."""

    def __init__(self, why: str, next_step: str | None = None) -> None:
        super().__init__(why)
        self.next_step = next_step


def _usable(value: bytes, *, in_a_header: bool) -> bytes:
    if not value:
        raise _Unusable("it is empty")
    if len(value.strip()) < MIN_BYTES:
        raise _Unusable(f"it has fewer than {MIN_BYTES} bytes, so it could not be kept out of output")
    if b"\0" in value:
        raise _Unusable("it holds a NUL byte, which no variable can")
    if len(value) > MAX_BYTES:
        raise _Unusable(f"it has more than {MAX_BYTES:,} bytes")
    if in_a_header and not IN_A_HEADER.fullmatch(value):
        raise _Unusable("it is bound to hosts, and holds what no header can carry")
    return value


def _line(value: bytes) -> bytes:
    """Return a value without the line end that editors and commands put after it."""
    return value.removesuffix(b"\n").removesuffix(b"\r")


def _read(path: str) -> bytes:
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(MAX_BYTES + 3)
    except OSError as error:
        raise _Unusable((error.strerror or "it cannot be read").lower()) from None


async def _output(command: tuple[str, ...], environ: Mapping[str, str]) -> bytes:
    """Return what a command prints; what it says on stderr may hold anything, and goes nowhere."""
    try:
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise _Unusable((getattr(error, "strerror", None) or "it cannot be run").lower()) from None
    output = bytearray()
    try:
        assert process.stdout is not None  # noqa: S101  # it is a pipe
        async for data in process.stdout:
            output += data
            if len(output) > MAX_BYTES + 2:
                raise _Unusable(f"it printed more than {MAX_BYTES:,} bytes")
        status = await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # all that it started, too
                os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if status:
        raise _Unusable(f"it ended with exit status {status}")
    return bytes(output)


def _from_keyring(entry: str | None) -> bytes:
    try:
        import keyring
    except ImportError:
        raise _Unusable(
            "the library for it is not installed",
            "Install it: `pip install 'mcp-sandbox[keyring]'`.",
        ) from None
    service, _, user = (entry or "").rpartition(":")
    try:
        value = keyring.get_password(service, user)
    except Exception as error:  # backends raise what they like, and may quote what they hold
        raise _Unusable(f"the keyring failed ({type(error).__name__})") from None
    if value is None:
        raise _Unusable("there is no such entry")
    return str(value).encode("utf-8", "surrogateescape")
