"""The life of one container: created, attached, started, and gone whatever happens."""

from __future__ import annotations

import logging
import math
import secrets
import signal
import threading
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.to_thread
import docker.errors

from mcp_sandbox.engines.docker.errors import FOREIGN, build_command, runtime_advice
from mcp_sandbox.engines.docker.lockdown import LABEL, container_config
from mcp_sandbox.engines.docker.podman import podman_config
from mcp_sandbox.engines.docker.stream import AttachStream
from mcp_sandbox.errors import EngineError, EngineUnreachable, EngineUnsafe, ImageMissing, RuntimeMissing
from mcp_sandbox.sandbox import Ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from types import TracebackType

    from docker import APIClient

    from mcp_sandbox.engines.docker.connection import Connection, EngineFacts
    from mcp_sandbox.sandbox import SandboxSpec

LAUNCH_SECONDS = 40.0
"""Longest wait for a started container: clients give up on a call after about 60 s."""
CLOSE_SECONDS = 1.5
"""Longest wait for the last containers to go, when the engine is left."""
_ENDING_SECONDS = 2.0
_GOES_SECONDS = 1
"""How long a container whose stream was let go has to go by itself: a kill costs the engine a process of its own."""
_KILLED = 128 + signal.SIGKILL
_STARTS_AT_ONCE = 8
_REMOVALS_AT_ONCE = 4
_HARMLESS_WARNING = "platform"  # an image for another architecture: slow, not unsafe

_log = logging.getLogger(__name__)


class DockerEngine:
    """Launches each sandbox as one container on a Docker engine.

    The SDK blocks, so its calls run in threads that a cancelled caller abandons; every step is keyed by the
    container's name, which is known beforehand, so that what an abandoned thread still makes can be removed.
    Removals have threads of their own: waiting starts must never keep a container alive.
    """

    def __init__(self, connection: Connection, labels: Mapping[str, str]) -> None:
        self._connection = connection
        self._labels = labels
        self._starting = anyio.CapacityLimiter(_STARTS_AT_ONCE)
        self._removing = anyio.CapacityLimiter(_REMOVALS_AT_ONCE)
        self._waiting = anyio.CapacityLimiter(math.inf)
        self._background = anyio.create_task_group()
        self._owed: list[_Launch] = []
        """Whose containers could not be removed: the engine was gone, and may be back at the next launch."""

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        # Shielded, or a cancelled server would leave its last containers; bounded, or a dead engine would
        # hold it.
        self._background.cancel_scope.shield = True
        self._background.cancel_scope.deadline = anyio.current_time() + CLOSE_SECONDS
        await self._background.__aexit__(None, None, None)
        self._connection.close()
        return None

    @asynccontextmanager
    async def launch(self, spec: SandboxSpec) -> AsyncIterator[DockerSandbox]:
        """Yield a started container; leaving the scope ends it at once and removes it in the background."""
        launch = _Launch(self._connection, spec, self._labels)
        try:
            with anyio.move_on_after(LAUNCH_SECONDS) as launching:
                stream = await anyio.to_thread.run_sync(
                    launch.begin, abandon_on_cancel=True, limiter=self._starting
                )
            if launching.cancelled_caught:
                raise EngineUnreachable(
                    f"the engine did not start a container within {LAUNCH_SECONDS:.0f} s."
                )
            owed, self._owed = self._owed, []
            for earlier in owed:
                self._background.start_soon(self._remove, earlier)
            yield DockerSandbox(launch, stream)
        finally:
            launch.let_go()
            if launch.asked_for:
                self._background.start_soon(self._remove, launch)

    def in_background(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: object) -> None:
        """Run something beside, for as long as the engine is not left, and 1.5 s more at most."""
        self._background.start_soon(function, *arguments)

    async def sweep(self, is_dead: Callable[[str], bool]) -> int:
        """Remove what dead servers left behind; return how many containers that was.

        The lease does this already; the sweep finds what the engine itself lost track of.

        Raises:
            EngineError: The engine failed.
        """
        return await anyio.to_thread.run_sync(
            partial(_sweep, self._connection, dict(self._labels), is_dead),
            abandon_on_cancel=True,
            limiter=self._removing,
        )

    async def _remove(self, launch: _Launch) -> None:
        begun = launch.begun.is_set()
        try:
            await anyio.to_thread.run_sync(launch.remove, abandon_on_cancel=True, limiter=self._removing)
            if not begun:  # then the engine may only now have made what was removed
                await anyio.to_thread.run_sync(
                    launch.begun.wait, abandon_on_cancel=True, limiter=self._waiting
                )
                await anyio.to_thread.run_sync(launch.remove, abandon_on_cancel=True, limiter=self._removing)
        except EngineError as error:
            self._owed.append(launch)
            _log.warning("container %s could not be removed yet: %s", launch.name, error)


class DockerSandbox:
    """One container, seen through its attached stream."""

    def __init__(self, launch: _Launch, stream: AttachStream) -> None:
        self._launch = launch
        self._stream = stream
        self.name = launch.name
        self.send = stream.send
        self.receive = stream.receive

    @property
    def facts(self) -> Mapping[str, str]:
        """Return the engine's version, the runtime, and the id of the image."""
        return self._launch.facts

    @property
    def alive(self) -> bool:
        """Tell whether the stream is still open."""
        return self._stream.alive

    @property
    def diagnostics(self) -> bytes:
        """Head of what the agent wrote to stderr."""
        return bytes(self._stream.diagnostics)

    async def ending(self) -> Ending:
        """Tell what the engine's events say of this container's end."""
        with anyio.move_on_after(_ENDING_SECONDS):
            try:
                return await anyio.to_thread.run_sync(self._launch.ending, abandon_on_cancel=True)
            except EngineError:
                return Ending()
        return Ending()


class _Launch:
    """The blocking half of one launch."""

    def __init__(self, connection: Connection, spec: SandboxSpec, labels: Mapping[str, str]) -> None:
        self.name = f"mcp-sandbox-{secrets.token_hex(8)}"
        self._connection = connection
        self._spec = spec
        self._labels = labels
        self._lock = threading.Lock()
        self.asked_for = False
        """Whether the engine may have a container of this name."""
        self.begun = threading.Event()
        """Set when `begin` is over, whatever came of it."""
        self.facts: dict[str, str] = {}
        self._gone = False
        self._started = False
        self._stream: AttachStream | None = None

    def begin(self) -> AttachStream:
        """Create, attach, start; in a worker thread."""
        try:
            with self._connection.client() as client:
                facts = self._connection.facts(client)
                refuse_unsafe(self._spec, facts)
                self.facts["engine"] = f"{facts.version} at {self._connection.address.url}"
                self.facts["runtime"] = self._spec.runtime or facts.default_runtime
                self._create(client, facts)
                stream = self._attach(client)
                client.start(self.name)
                self._started = True
                return stream
        finally:
            self.begun.set()

    def _create(self, client: APIClient, facts: EngineFacts) -> None:
        try:
            image = self._connection.image(client, self._spec.image)
            config = container_config(
                # By name, for what gVisor needs and does otherwise, whether it was asked for or is the default.
                self._spec.model_copy(update={"runtime": self.facts["runtime"]}),
                image_id=image.id,
                image_volumes=image.volumes,
                labels=self._labels,
            )
            if facts.product == "Podman":
                config = podman_config(config)
            self.facts["image"] = image.id
            with self._lock:
                if self._gone:
                    raise EngineError("the caller has left.")
                self.asked_for = True
            created = client.create_container_from_config(config, self.name)
        except docker.errors.ImageNotFound:
            self._connection.forget_image(self._spec.image)
            raise ImageMissing(
                f"the engine has no image {self._spec.image}.", next_step=build_command(self._spec.image)
            ) from None
        for warning in created.get("Warnings") or ():
            if _HARMLESS_WARNING not in warning:
                raise EngineUnsafe(
                    f"the engine would not enforce a limit ({warning.rstrip('.')}).",
                    next_step="Use an engine that can (cgroup v2, or v1 with swap accounting); nothing ran.",
                )

    def _attach(self, client: APIClient) -> AttachStream:
        # Podman lets go of a container when two certain bytes are sent, unless no keys are named for it.
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "detachKeys": ""}
        stream = AttachStream(client.attach_socket(self.name, parameters))
        with self._lock:
            self._stream = stream
            gone = self._gone
        if gone:
            stream.close()
        return stream

    def let_go(self) -> None:
        """Close the stream, which ends the container; in the event loop, never blocks."""
        with self._lock:
            self._gone = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def remove(self) -> None:
        """See the container gone, whatever state it is in: by itself, else killed and removed."""
        with self._connection.client() as client:
            if not (self._started and _goes(client, self.name)):
                _remove(client, self.name)

    def ending(self) -> Ending:
        """Ask the engine's event history, which keeps what an auto-removed container can no longer tell."""
        with self._connection.client() as client:
            events = client.events(
                since=1,
                until=int(time.time() + _ENDING_SECONDS),
                # Podman looks for its own word, and then says Docker's; it has none for out of memory.
                filters={"container": [self.name], "event": ["oom", "die", "died"]},
                decode=True,
            )
            out_of_memory = False
            for event in events:
                if event.get("Action") == "oom":
                    out_of_memory = True
                elif event.get("Action") == "die":
                    events.close()
                    return _ending(out_of_memory, _exit_code(event))
        return Ending()


def refuse_unsafe(spec: SandboxSpec, facts: EngineFacts) -> None:
    """Refuse an engine that could not isolate as the spec asks.

    Raises:
        EngineUnsafe: It filters no system calls.
        RuntimeMissing: It does not know the runtime.
    """
    if spec.runtime and spec.runtime not in facts.runtimes:
        raise RuntimeMissing(
            f"the engine does not know the runtime {spec.runtime} "
            f"(it has {', '.join(sorted(facts.runtimes))}).",
            next_step=runtime_advice(spec.runtime, facts.product),
        )
    if not facts.filters_system_calls and not spec.unsafe_allow_unconfined_seccomp:
        raise EngineUnsafe(
            "the engine runs containers without a seccomp profile, so every system call would be open.",
            next_step="Start the engine with its default profile, or set "
            "unsafe_allow_unconfined_seccomp = true.",
        )


def _sweep(connection: Connection, labels: Mapping[str, str], is_dead: Callable[[str], bool]) -> int:
    removed = 0
    with connection.client() as client:
        ours = [f"{LABEL}.host={labels['host']}"]
        for container in client.containers(all=True, filters={"label": ours}):
            if is_dead(container["Labels"].get(f"{LABEL}.server", "")):
                _remove(client, container["Id"])
                removed += 1
    return removed


def _goes(client: APIClient, name: str) -> bool:
    """Tell whether a container that was started, and let go, went by itself: its agent ends, the engine removes it."""
    try:
        ended = client.wait(name, timeout=_GOES_SECONDS, condition="removed")
    except docker.errors.NotFound:
        return True
    except FOREIGN:
        return False  # what is wrong, the removal will meet too
    return not ended.get("Error")


def _remove(client: APIClient, name: str) -> None:
    try:
        client.remove_container(name, force=True, v=True)
    except docker.errors.NotFound:
        pass
    except docker.errors.APIError as error:
        if error.status_code == 409:  # "removal … is already in progress": by AutoRemove
            return
        if "container state improper" not in str(error.explanation):
            raise
        # Podman, when the container ended before the kill came to it: now there is nothing left to kill.
        with suppress(docker.errors.NotFound):
            client.remove_container(name, force=True, v=True)


def _ending(out_of_memory: bool, exit_code: int | None) -> Ending:
    # A gVisor sandbox that the kernel killed for memory can go without the event: measured on a busy machine,
    # one in six. Then a kill is all that is known.
    known = out_of_memory or exit_code != _KILLED
    return Ending(out_of_memory=out_of_memory if known else None, exit_code=exit_code)


def _exit_code(event: dict[str, Any]) -> int | None:
    code = event.get("Actor", {}).get("Attributes", {}).get("exitCode", "")
    return int(code) if code.isdecimal() else None
