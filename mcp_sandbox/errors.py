"""Every failure that is not the program's own.

A program's end, whatever its exit code, is a value (`model.ExecutionResult`). What is raised is always one of

    SandboxError
    ├── ConfigError            the configuration cannot be used
    ├── RequestRefused         this call is not allowed, or not well formed
    ├── Busy                   too many calls wait already
    ├── AuditError             the run cannot be recorded, so it does not run
    ├── SecretMissing          a secret of the workspace cannot be fetched, so the run does not run
    ├── PackagesUnavailable    packages of a lock cannot be installed, so the run does not run
    └── EngineError            the engine answered with a failure
        ├── EngineUnreachable  nothing answers at the engine's address
        ├── EngineDenied       the engine's socket is there, and not for this user
        ├── EngineUnsafe       the engine would not enforce what was asked of it
        ├── ImageMissing       the image is not on the engine
        ├── ImageUnsuitable    the image cannot run the guest
        └── RuntimeMissing     the engine does not know the runtime

A message says what happened and to what; `next_step` says what to do. Both are written here or by our own
code, never by a program, so both are safe for a model to read; only after "pip said:" are the words pip's, cleaned
and cut, and those repeat what an index says. Each class is a row of docs/errors.md:
its docstring, `for_model`, `default_next_step`.
"""

from __future__ import annotations

from typing import ClassVar

TELL_THE_PERSON = (
    "Until that is done every call fails like this one: tell the person, and do not work around it."
)


class SandboxError(Exception):
    """The server met a failure that it has no name for."""

    code: ClassVar[str] = "internal_error"
    default_next_step: ClassVar[str] = "Run `mcp-sandbox doctor` and look at the server's log."
    """What a person does about it; an error may say it more exactly."""
    for_model: ClassVar[str] = (
        "Tell the person; call again only where it does no harm if the program runs twice."
    )
    """What a model does about it; empty where the next step is the model's own."""

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step or self.default_next_step

    def __str__(self) -> str:
        return f"{self.code}: {self.message} {self.next_step}"


class ConfigError(SandboxError):
    """The configuration cannot be used: the message names file and key."""

    code = "config_invalid"
    default_next_step = "Correct the file, then start again."
    for_model = TELL_THE_PERSON


class RequestRefused(SandboxError):
    """This call is not allowed, or not well formed; nothing ran."""

    code = "refused"
    default_next_step = "Change the call as the message says."
    for_model = ""


class Busy(SandboxError):
    """Too many calls wait already; nothing ran."""

    code = "busy"
    default_next_step = "Try again when earlier calls have ended."
    for_model = ""


class AuditError(SandboxError):
    """The run cannot be recorded, so it does not run."""

    code = "audit_unavailable"
    default_next_step = (
        "Make the folder writable, or name another one under [audit] path in the configuration."
    )
    for_model = TELL_THE_PERSON


class SecretMissing(SandboxError):
    """A secret of the workspace cannot be fetched: the message names it and its source, never a value."""

    code = "secret_missing"
    default_next_step = "Provide it there, or take it out of the workspace's secrets in the configuration."
    for_model = TELL_THE_PERSON


class PackagesUnavailable(SandboxError):
    """Packages that the workspace's lock or the program names cannot be installed, so the run does not run."""

    code = "packages_unavailable"
    default_next_step = "Correct the lock or the index, then call again."
    for_model = "Where the program names packages itself, change them; else tell the person, or do without."


class EngineError(SandboxError):
    """The engine answered with a failure that is not the caller's."""

    code = "engine_failed"
    default_next_step = "Run `mcp-sandbox doctor` and look at the engine's log."
    for_model = "Call once more; if that fails too, tell the person."


class EngineUnreachable(EngineError):
    """Nothing answers at the engine's address."""

    code = "engine_unreachable"
    default_next_step = (
        "Start Docker (Docker Desktop, `systemctl start docker`, `colima start` or `podman machine start`), "
        "or set [engine] host in the configuration. The next call tries again."
    )
    for_model = TELL_THE_PERSON


class EngineDenied(EngineError):
    """The engine's socket is there, and not for this user."""

    code = "engine_denied"
    default_next_step = (
        "Add yourself to the group that owns the socket (usually `sudo usermod -aG docker $USER`, "
        "then log in again), or use a rootless engine."
    )
    for_model = TELL_THE_PERSON


class EngineUnsafe(EngineError):
    """The engine would not enforce what was asked of it, so nothing ran."""

    code = "engine_unsafe"
    default_next_step = "Use an engine that enforces it; `mcp-sandbox doctor` tells whether one does."
    for_model = TELL_THE_PERSON


class ImageMissing(EngineError):
    """The image is not on the engine; nothing is ever pulled during a call."""

    code = "image_missing"
    default_next_step = "Run `mcp-sandbox image build` once, or set another `image`."
    for_model = TELL_THE_PERSON


class ImageUnsuitable(EngineError):
    """The image is there and cannot run the guest (`python3` 3.8 or newer is all it needs)."""

    code = "image_unsuitable"
    default_next_step = "Use an image that has python3 (3.8 or newer) on its PATH."
    for_model = TELL_THE_PERSON


class RuntimeMissing(EngineError):
    """The engine does not know the runtime; another one is never used in its place."""

    code = "runtime_missing"
    default_next_step = "Register the runtime with the engine, or set another `runtime`."
    for_model = TELL_THE_PERSON
