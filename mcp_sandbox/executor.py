"""One execution, from request to result: the order of things, on one screen.

The order is the security argument: on the record before anything runs, refused before a sandbox exists, the
deadline inside the sandbox's scope, the sandbox gone before the result is told.
"""

from __future__ import annotations

import hashlib
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcp_sandbox.artifacts import collecting
from mcp_sandbox.audit.record import Content, InputFile, Opening
from mcp_sandbox.capture import Capture, clean, share
from mcp_sandbox.egress.dial import SystemResolver, dial_direct, upstream_proxy
from mcp_sandbox.egress.policy import EgressPolicy
from mcp_sandbox.egress.proxy import EgressProxy
from mcp_sandbox.egress.record import EgressLimits, EgressRecord
from mcp_sandbox.errors import AuditError, Busy
from mcp_sandbox.guest.session import Stop, run_program
from mcp_sandbox.hints import hint_for
from mcp_sandbox.manifest import ManifestTaker
from mcp_sandbox.model import Blocked, ExecutionRequest, ExecutionResult, Status
from mcp_sandbox.plan import Plan, plan, spec
from mcp_sandbox.redact import NO_SECRETS, RedactedStream, Redactor
from mcp_sandbox.sandbox import Ending
from mcp_sandbox.secret_sources import SecretSources
from mcp_sandbox.view import Folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.abc import ByteStream

    from mcp_sandbox.artifacts import ArtifactCollector
    from mcp_sandbox.audit.record import Origin
    from mcp_sandbox.audit.store import Recorder
    from mcp_sandbox.config.policy import Configuration, Policy
    from mcp_sandbox.guest.protocol import End
    from mcp_sandbox.guest.session import ArtifactSink, OutputSink, Program, Report, Stream
    from mcp_sandbox.sandbox import Engine, Sandbox

MAX_BLOCKED = 20
"""Refused connections that a result names; the record has all."""


class Run:
    """One run while it goes on: what is known of it so far, and the means to stop it."""

    def __init__(self, watcher: OutputSink | None = None) -> None:
        self.run_id = ""
        """Its name in the record; empty until it is there."""
        self.streams: Streams | None = None
        """Its output so far; None until it is planned."""
        self.watcher = watcher
        self.stop = Stop()
        self.connections: list[EgressRecord] = []
        """Connections to the outside, allowed and refused, as they ended."""


class Executor:
    """Runs programs under one policy, each in a sandbox of its own, a bounded number at once."""

    def __init__(
        self,
        configuration: Configuration,
        engine: Engine,
        record: Recorder,
        *,
        origin: Origin,
        folders: Folders | None = None,
        secrets: SecretSources | None = None,
    ) -> None:
        self.policy = configuration.policy
        self._folders = folders or Folders(self.policy, hiding=Path(configuration.audit.path, "hidden"))
        self.record = record
        self._secrets = secrets or SecretSources()
        self._policy_json = configuration.policy.model_dump(mode="json")
        self._engine = engine
        self._origin: Origin = origin
        self._running = anyio.CapacityLimiter(configuration.server.max_parallel)
        self._max_queued = configuration.server.max_queued
        self._manifests = ManifestTaker(self.policy.path) if self.policy.path else None
        self._beside = ThreadPoolExecutor(1, "manifest")

    async def execute(
        self, request: ExecutionRequest, run: Run | None = None, *, replay_of: str = ""
    ) -> ExecutionResult:
        """Run one program and return how it ended; `run` lets others watch and stop it.

        Raises:
            SandboxError: Nothing ran, or the engine failed.
        """
        run = run or Run()
        secrets = await self._secrets.fetch()  # before the opening is written: they may not stand in it
        redactor = Redactor(secrets.values)
        async with self.record.entry(self._opening(_redacted(request, redactor), replay_of)) as entry:
            run.run_id = entry.run_id
            if secrets.missing:
                raise secrets.missing
            planned = plan(request, self.policy, secrets.values)
            manifest = self._beside.submit(self._manifests.take) if self._manifests else None
            streams = run.streams = Streams(planned.program, run.watcher, redactor)
            with collecting(entry.run_id, self.record.staging(entry.run_id), redactor) as files:
                async with self._slot(), self._sandbox(planned) as (sandbox, program, facts):
                    entry.note(sandbox=sandbox.name, **sandbox.facts, **facts)
                    report = await run_program(sandbox, program, streams, files, run.stop, self._egress(run))
                    ending = Ending() if report.end else await sandbox.ending()
                    diagnostics = sandbox.diagnostics
                if files:
                    await self._keep(files)
                result = settle(run, planned, report, ending, files, self.policy)
                if run.connections:
                    entry.note(
                        egress=[redactor.json(made.model_dump(mode="json")) for made in run.connections]
                    )
                if report.lost_because:
                    entry.note(
                        lost_because=redactor.text(report.lost_because),
                        diagnostics=clean(redactor.cut_end(redactor(diagnostics)).decode("utf-8", "replace")),
                    )
                contents = list(files.contents) if files else []
                if manifest:
                    seen = await anyio.to_thread.run_sync(manifest.result, abandon_on_cancel=True)
                    entry.note(workspace_files=seen.facts())
                    contents.append(Content.of("manifest", seen.lines))
                entry.finish(
                    result, stdout=streams.stdout.kept(), stderr=streams.stderr.kept(), contents=contents
                )
            return result

    def _egress(self, run: Run) -> Callable[[ByteStream], Awaitable[None]] | None:
        """Return what answers the run's connections to the outside; None where it may have none."""
        settings = self.policy.egress
        if not settings.allow:
            return None
        upstream = upstream_proxy(settings.upstream_proxy)
        proxy = EgressProxy(
            EgressPolicy.parse(settings.allow, workspace=self.policy.workspace),
            resolve=None if upstream else SystemResolver(),
            dial=upstream or dial_direct,
            log=run.connections.append,
            limits=EgressLimits(),
        )
        return proxy.serve

    async def _keep(self, files: ArtifactCollector) -> None:
        """Keep the files that came out; a disk that is full by then takes them, not the run's result."""
        files.finish()
        try:
            await self.record.adopt(files.contents)
        except AuditError as error:
            files.lose(f"it could not be kept: {error.message}")

    async def run_beside(self, program: Program, files: ArtifactSink) -> None:
        """Run a program of our own on data from a run, where hostile data belongs; it is no run of anybody's.

        Raises:
            SandboxError: The engine failed, or too many calls wait.
        """
        # Under the last run's view, though it needs none: for that, a sandbox may be ready.
        seen = self._folders.latest.of(spec(self.policy))
        async with self._slot(), self._engine.launch(seen) as sandbox:
            await run_program(sandbox, program, Streams(program, None), files)

    @asynccontextmanager
    async def _sandbox(self, planned: Plan) -> AsyncIterator[tuple[Sandbox, Program, dict[str, object]]]:
        """Yield a sandbox that sees what it may of the workspace as it is now, and what to run in it."""
        view = await self._folders.look()
        async with self._engine.launch(view.of(planned.spec)) as sandbox:
            yield sandbox, replace(planned.program, copies=view.copies), view.facts()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait, first come first served, until fewer than `max_parallel` run."""
        waiting = self._running.statistics().tasks_waiting
        if waiting >= self._max_queued and self._running.available_tokens < 1:
            raise Busy(f"{waiting} calls wait already, which is the limit (max_queued).")
        async with self._running:
            yield

    def _opening(self, request: ExecutionRequest, replay_of: str) -> Opening:
        return Opening(
            language=request.language,
            code=request.code,
            timeout_seconds=request.timeout_seconds,
            client=request.client,
            workspace=self.policy.workspace,
            policy=self._policy_json,
            stdin=request.stdin,
            given=request.files,
            stdin_sha256=hashlib.sha256(request.stdin).hexdigest() if request.stdin else "",
            files=tuple(
                InputFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())
                for path, content in request.files
            ),
            origin=self._origin,
            environment=tuple(self._secrets.sources),
            replay_of=replay_of,
        )


def _redacted(request: ExecutionRequest, redactor: Redactor) -> ExecutionRequest:
    """Return the request as it is recorded."""
    if not redactor.longest:
        return request
    return request.model_copy(
        update={
            "code": redactor.text(request.code),
            "stdin": redactor(request.stdin),
            "files": tuple((redactor.text(path), redactor(content)) for path, content in request.files),
        }
    )


class Streams:
    """Both output streams of one run, free of secrets, kept within bounds and shown to whoever watches."""

    def __init__(self, program: Program, watcher: OutputSink | None, redactor: Redactor = NO_SECRETS) -> None:
        self.redactor = redactor
        self._stdout = _Stream("stdout", program, watcher, redactor)
        self._stderr = _Stream("stderr", program, watcher, redactor)
        self.stdout = self._stdout.capture
        self.stderr = self._stderr.capture

    def write(self, stream: Stream, data: bytes) -> None:
        """Take the next bytes of a stream."""
        (self._stdout if stream == "stdout" else self._stderr).write(data)

    def write_tail(self, stream: Stream, data: bytes) -> None:
        """Take bytes of the end of a stream, which may follow a gap."""
        (self._stdout if stream == "stdout" else self._stderr).write_tail(data)

    def settle(self, end: End | None) -> None:
        """Take the agent's account of the end; None where there is none to trust."""
        whole = end is not None and end.reason == "exited"
        self._stdout.settle(*((end.stdout, end.stdout_lines) if end else (None, None)), whole=whole)
        self._stderr.settle(*((end.stderr, end.stderr_lines) if end else (None, None)), whole=whole)


class _Stream:
    """One output stream. Its tail waits for the account of the end where there are secrets to be kept out.

    Only that tells whether the tail follows at once, so that a secret may be whole across the two, or after a gap.
    """

    def __init__(
        self, name: Stream, program: Program, watcher: OutputSink | None, redactor: Redactor
    ) -> None:
        self.capture = Capture(program.head_bytes, program.tail_bytes)
        self._name: Stream = name
        self._watcher = watcher
        self._redactor = redactor
        self._redacted = RedactedStream(redactor)
        self._waiting = bytearray()
        self._most_waiting = program.tail_bytes
        self._torn = False
        self._came = self._passed = 0
        """Bytes of the stream as it came, and as it was passed on."""

    def write(self, data: bytes) -> None:
        self._came += len(data)
        self._pass_on(self._redacted.feed(data))

    def write_tail(self, data: bytes) -> None:
        self._came += len(data)
        if not self._redactor.longest:
            self._pass_on_tail(data)
            return
        self._waiting += data
        if len(self._waiting) > self._most_waiting:  # it is not our agent that speaks
            del self._waiting[: len(self._waiting) - self._most_waiting]
            self._torn = True

    def settle(self, total: int | None, lines: int | None, *, whole: bool) -> None:
        tail = bytes(self._waiting)
        self._waiting.clear()
        if self._redactor.longest:
            if total == self._came and not self._torn:
                self._pass_on(self._redacted.feed(tail))
                self._pass_on(self._redacted.end(cut=not whole))
            else:
                self._pass_on(self._redacted.end(cut=True))
                tail = self._redactor.cut_start(self._redactor(tail))
                self._pass_on_tail(tail if whole else self._redactor.cut_end(tail))
        if total is not None:
            # The stream that is kept and counted here is the one without secrets, longer or shorter.
            self.capture.settle(max(total - self._came, 0) + self._passed, lines)

    def _pass_on(self, data: bytes) -> None:
        self._passed += len(data)
        self.capture.write(data)
        if self._watcher and data:
            self._watcher.write(self._name, data)

    def _pass_on_tail(self, data: bytes) -> None:
        self._passed += len(data)
        self.capture.write_tail(data)
        if self._watcher and data:
            self._watcher.write_tail(self._name, data)


def settle(
    run: Run,
    planned: Plan,
    report: Report,
    ending: Ending,
    files: ArtifactCollector | None,
    policy: Policy,
) -> ExecutionResult:
    """Return the one consistent account of a run."""
    streams = run.streams or Streams(planned.program, None)
    redactor = streams.redactor
    end = report.end
    streams.settle(end)
    status: Status = "cancelled" if run.stop.requested and report.deadline_passed else _status(report, ending)
    budgets = share(policy.reply_limit, streams.stdout.wanted(), streams.stderr.wanted())
    stdout = streams.stdout.show(budgets[0], partial(read_on, run.run_id, "stdout"))
    stderr = streams.stderr.show(budgets[1], partial(read_on, run.run_id, "stderr"))
    truncated = bool(stdout.dropped or stderr.dropped)
    own_end = end is not None and end.reason == "exited"
    return ExecutionResult(
        run_id=run.run_id,
        status=status,
        exit_code=end.exit_code if end and own_end else None,
        signal=_signal_name(end) if own_end else None,
        stdout=stdout.text,
        stderr=stderr.text,
        stdout_bytes=end.stdout if end else None,
        stderr_bytes=end.stderr if end else None,
        truncated=truncated,
        duration_ms=end.duration_ns // 1_000_000 if end else None,
        cpu_ms=end.cpu_us // 1000 if end else None,
        peak_memory_bytes=end.peak_bytes if end else None,
        artifacts=tuple(files.artifacts) if files else (),
        artifacts_skipped=tuple(files.skipped) if files else (),
        blocked=tuple(
            Blocked(
                host=redactor.text(made.host or ""), port=made.port or 0, reason=redactor.text(made.reason)
            )
            for made in run.connections
            if made.verdict == "refused"
        )[:MAX_BLOCKED],
        hint=redactor.text(hint_for(status, report, ending, planned, policy, truncated=truncated)),
    )


def read_on(run_id: str, stream: Stream, offset: int) -> str:
    """Say how the rest of a stream is to be had, once the run has ended."""
    return f'read_artifact(run_id="{run_id}", path="{stream}.txt", offset={offset}) has the rest'


def _status(report: Report, ending: Ending) -> Status:
    end = report.end
    if report.deadline_passed or (end and end.reason == "deadline"):
        return "timed_out"
    if end is None:
        return "out_of_memory" if ending.out_of_memory else "lost"
    # A shell that runs a program which is killed for memory ends with 128 + 9, by its own choice.
    if end.oom_kills and (end.signal == signal.SIGKILL or end.exit_code == 128 + signal.SIGKILL):
        return "out_of_memory"
    return "exited"


def _signal_name(end: End | None) -> str | None:
    if end is None or end.signal is None:
        return None
    try:
        return signal.Signals(end.signal).name
    except ValueError:
        return f"SIG{end.signal}"
