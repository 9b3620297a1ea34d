"""Runs that outlast the call that began them: waited for by any number of calls, ended with the server.

A client gives up on a call after a minute; a program may need an hour. So a run belongs to the server, and a call
waits for it only so long as clients wait.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Self

import anyio

from mcp_sandbox.account import read_on
from mcp_sandbox.capture import Capture, share
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.model import ExecutionResult
from mcp_sandbox.run import Run

if TYPE_CHECKING:
    from types import TracebackType

    from mcp_sandbox.executor import Executor
    from mcp_sandbox.guest.session import Stream
    from mcp_sandbox.model import ExecutionRequest

KEPT = 64
"""Ended runs whose output can still be fetched in parts; older ones are in the record."""
STOP_SECONDS = 1.0
"""Longest time for all runs to end in order, with their output on the record, when the server ends."""

_log = logging.getLogger(__name__)


class Offsets(NamedTuple):
    """Bytes of each output stream that the asker has already."""

    stdout: int = 0
    stderr: int = 0


class Flight:
    """One run, and its end once there is one."""

    def __init__(self, limit_seconds: float) -> None:
        self.run = Run()
        self.limit_seconds = limit_seconds
        """Wall-clock time that its program may take."""
        self.began = anyio.current_time()
        self.ended = anyio.Event()
        self.scope = anyio.CancelScope()
        self.result: ExecutionResult | None = None
        self.error: SandboxError | None = None

    def stop(self) -> None:
        """End the run: in order, with its output so far, if its program has started; else at once."""
        self.run.stop.request()
        if not self.run.stop.has_begun:
            self.scope.cancel()

    def in_words(self) -> str:
        """Say where the run is, for somebody who waits: its phase, its time, the last line that it wrote."""
        if not self.run.stop.has_begun or self.run.streams is None:
            return "waiting for a sandbox"
        elapsed = anyio.current_time() - self.began
        line = self.run.streams.stdout.last_line() or self.run.streams.stderr.last_line()
        return f"running for {elapsed:.0f} s of {self.limit_seconds:g} at most" + (
            f": {line}" if line else ""
        )

    def so_far(self, reply_limit: int, offsets: Offsets | None = None) -> ExecutionResult:
        """Return the result, or what there is of it, with the output from these offsets on.

        Raises:
            SandboxError: Nothing ran, or the engine failed.
        """
        if self.error:
            raise self.error
        streams = self.run.streams
        if self.result and (streams is None or not offsets or offsets == (0, 0)):
            return self.result
        offsets = offsets or Offsets()
        out = streams.stdout if streams else Capture(0, 0)
        err = streams.stderr if streams else Capture(0, 0)
        new_out, new_err = out.since(offsets.stdout), err.since(offsets.stderr)
        budgets = share(reply_limit, new_out.wanted(), new_err.wanted())
        shown_out = new_out.show(budgets[0], lambda more: self._read_on("stdout", offsets.stdout + more))
        shown_err = new_err.show(budgets[1], lambda more: self._read_on("stderr", offsets.stderr + more))
        parts = {
            "stdout": shown_out.text,
            "stderr": shown_err.text,
            "stdout_bytes": out.total,
            "stderr_bytes": err.total,
            "truncated": bool(shown_out.dropped or shown_err.dropped),
        }
        if self.result:
            return self.result.model_copy(update=parts)
        if self.ended.is_set():
            return ExecutionResult(
                run_id=self.run.run_id, status="cancelled", exit_code=None, duration_ms=None, **parts
            )
        return ExecutionResult(
            run_id=self.run.run_id,
            status="running",
            exit_code=None,
            duration_ms=int((anyio.current_time() - self.began) * 1000),
            hint=f'Still running: get_run(run_id="{self.run.run_id}", wait_seconds=40, '
            f"stdout_from={out.total}, stderr_from={err.total}) waits on and returns what is new; "
            "cancel_run stops it.",
            **parts,
        )

    def _read_on(self, stream: Stream, offset: int) -> str:
        if self.result:
            return read_on(self.run.run_id, stream, offset)
        return f'get_run(run_id="{self.run.run_id}", {stream}_from={offset}) has the rest'


class Flights:
    """All runs of one server, between entering and leaving it."""

    def __init__(self, executor: Executor, *, reply_within_seconds: float) -> None:
        self.executor = executor
        self.reply_within_seconds = reply_within_seconds
        self._tasks = anyio.create_task_group()
        self._going: set[Flight] = set()
        self._ended: OrderedDict[str, Flight] = OrderedDict()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for flight in self._going:
            flight.stop()
        self._tasks.cancel_scope.shield = True
        self._tasks.cancel_scope.deadline = anyio.current_time() + STOP_SECONDS
        await self._tasks.__aexit__(None, None, None)

    def begin(self, request: ExecutionRequest) -> Flight:
        """Begin a run and return at once."""
        flight = Flight(request.timeout_seconds or self.executor.policy.timeout_seconds)
        self._going.add(flight)
        self._tasks.start_soon(self._fly, flight, request)
        return flight

    def find(self, run_id: str) -> Flight | None:
        """Return a run that goes on, or one that ended lately."""
        for flight in self._going:
            if flight.run.run_id == run_id:
                return flight
        return self._ended.get(run_id)

    async def _fly(self, flight: Flight, request: ExecutionRequest) -> None:
        try:
            with flight.scope:
                flight.result = await self.executor.execute(request, flight.run)
        except SandboxError as error:
            flight.error = error
        except Exception:
            _log.exception("run %s failed", flight.run.run_id)
            flight.error = SandboxError(
                "the server met an error of its own; nothing is known of the program."
            )
        finally:
            self._going.discard(flight)
            flight.ended.set()
            if flight.run.run_id:
                self._ended[flight.run.run_id] = flight
            while len(self._ended) > KEPT:
                self._ended.popitem(last=False)
