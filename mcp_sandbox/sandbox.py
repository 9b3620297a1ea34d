"""The contract between a run and whatever isolates it.

Above: `executor` and `guest.session`, which know nothing of containers. Below: `engines.docker` (real),
`engines.pool` (an engine around an engine) and `tests/fakes.py`. `tests/conformance` is what each must pass.

An engine gives a scope that yields a byte stream to the first process in a fresh sandbox. Leaving the scope
kills and removes the sandbox, always. Nothing else is asked of it: no exec, no archive API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from mcp_sandbox.model import Value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType


class Limits(Value):
    """What the engine enforces on a whole sandbox."""

    memory_bytes: int
    """Memory and swap together: swap adds nothing."""
    cpus: float
    pids: int
    scratch_bytes: int
    """Size of `/scratch`, in bytes; counts as memory."""
    tmp_bytes: int
    """Size of `/tmp`, in bytes; counts as memory."""
    shm_bytes: int
    """Size of `/dev/shm`, in bytes; counts as memory."""
    nofile: int
    """Open files for each process."""
    fsize_bytes: int
    """Largest file that can be written, in bytes."""
    inodes: int
    """Files and folders that `/scratch` and `/tmp` can hold, each."""


class Mount(Value):
    """A folder or file of the engine's host, read-only inside."""

    source: str
    target: str
    identity: str = ""
    """Tells what lies there from what takes its place later: a mount keeps to the one that it was made with."""
    hides: bool = False
    """True where it is there to hide what the target is without it; `identity` is of that, then."""


class SandboxSpec(Value):
    """Everything that decides what a sandbox is; equal specs make interchangeable sandboxes."""

    image: str
    """Name or id of an image that the engine has."""
    runtime: str
    """Name of the OCI runtime, as the engine knows it; empty for the engine's default."""
    command: tuple[str, ...]
    """Argument vector of the first process."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the first process, beyond the image's own. Never a secret: `inspect` shows them."""
    user: str
    """Numeric `uid:gid`, never root."""
    limits: Limits
    mounts: tuple[Mount, ...] = ()
    workspace_bytes: int | None = None
    """Size of a `/workspace` in memory, for files that are sent; None for none."""
    unsafe_allow_unconfined_seccomp: bool = False
    """Run even on an engine that filters no system calls."""


class Ending(Value):
    """What the engine knows of a sandbox's end; None is unknown."""

    out_of_memory: bool | None = None
    exit_code: int | None = None
    """Of the first process; 128 + N where signal N ended it."""


class Sandbox(Protocol):
    """One single-use sandbox: a duplex stream of bytes to its first process."""

    @property
    def name(self) -> str:
        """The engine's name for it."""
        ...

    @property
    def facts(self) -> Mapping[str, str]:
        """What it is, in the engine's words: `engine`, `runtime`, `image` (an id that names its content)."""
        ...

    @property
    def alive(self) -> bool:
        """Tell whether the first process is still there, as far as that can be seen without waiting."""
        ...

    async def send(self, data: bytes) -> None:
        """Write all of `data` to the first process's stdin.

        Raises:
            anyio.BrokenResourceError: The sandbox is gone.
        """
        ...

    async def receive(self) -> bytes:
        """Return what the first process wrote to stdout, at least one byte.

        Raises:
            anyio.EndOfStream: The first process has ended, or the engine is gone.
        """
        ...

    @property
    def diagnostics(self) -> bytes:
        """Head of what the first process wrote to stderr, bounded."""
        ...

    async def ending(self) -> Ending:
        """Tell what the engine knows of the end, once `receive` has raised `EndOfStream`; within 2 s."""
        ...


class Engine(Protocol):
    """Launches sandboxes, between entering and leaving it.

    Leaving waits, for 1.5 s at most, until everything that was launched is gone.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool | None: ...

    def launch(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Yield a started, never-used sandbox; leaving the scope kills and removes it.

        Raises:
            EngineError: It could not be started, or not as the spec asks.
        """
        ...
