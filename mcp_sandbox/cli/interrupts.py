"""Work that a signal ends in order: sandboxes go and records are closed before the command does."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, TypeVar

import anyio

from mcp_sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Result = TypeVar("Result")


def run_to_its_end(work: Callable[[], Awaitable[Result]]) -> Result:
    """Run work that listens for interrupts itself.

    Raises:
        SandboxError: The work failed.
    """
    # Until it listens nothing has begun, so an interrupt may end us at once. Python's own way raises one wherever the
    # interpreter is by then, in the making of an event loop too, and ends in a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return anyio.run(work)


async def unless_interrupted(
    work: Callable[[], Awaitable[Result]], stop: Callable[[], bool] = lambda: False
) -> Result | signal.Signals:
    """Return what the work comes to, or the signal that ended it before.

    `stop` is asked first to end it in its own way, and tells whether it will; else it is cancelled.

    Raises:
        SandboxError: The work failed.
    """
    result: Result | signal.Signals = signal.SIGTERM
    failure: SandboxError | None = None
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                nonlocal result
                async for number in signals:
                    result = number
                    if not stop():
                        tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            try:
                result = await work()
            except SandboxError as error:
                failure = error  # raised below, where no task group wraps it
            tasks.cancel_scope.cancel()
    if failure:
        raise failure
    return result
