"""One execution, from request to result: the order of things, on one screen.

The order is the security argument: on the record before anything runs, refused before a sandbox exists, the
deadline inside the sandbox's scope, the sandbox gone before the result is told.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from mcp_sandbox.account import settle
from mcp_sandbox.artifacts import collecting
from mcp_sandbox.audit.connections import ConnectionLog
from mcp_sandbox.audit.record import Content, InputFile, Opening
from mcp_sandbox.capture import clean
from mcp_sandbox.certificates import read_authorities
from mcp_sandbox.dependencies.progress import Watch
from mcp_sandbox.egress.bound import BoundSecret
from mcp_sandbox.egress.dial import SystemResolver, dial_direct, upstream_proxy
from mcp_sandbox.egress.opening import TlsOpenings
from mcp_sandbox.egress.policy import EgressPolicy
from mcp_sandbox.egress.proxy import EgressProxy
from mcp_sandbox.egress.record import EgressLimits
from mcp_sandbox.errors import AuditError, Busy
from mcp_sandbox.guest.progress import Progress
from mcp_sandbox.guest.session import run_program
from mcp_sandbox.manifest import ManifestTaker, Patience
from mcp_sandbox.plan import Plan, plan, spec, trusts_more
from mcp_sandbox.redact import Redactor
from mcp_sandbox.run import Run
from mcp_sandbox.sandbox import Ending
from mcp_sandbox.secret_sources import SecretSources
from mcp_sandbox.streams import Streams
from mcp_sandbox.view import Folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from anyio.abc import ByteStream

    from mcp_sandbox.artifacts import ArtifactCollector
    from mcp_sandbox.audit.record import Origin
    from mcp_sandbox.audit.store import Entry, Recorder
    from mcp_sandbox.config.policy import Configuration, SecretUse
    from mcp_sandbox.config.settings import EgressSettings
    from mcp_sandbox.dependencies.layers import Layer, Layers
    from mcp_sandbox.egress.record import EgressRecord
    from mcp_sandbox.guest.session import ArtifactSink, Program
    from mcp_sandbox.manifest import Manifest
    from mcp_sandbox.model import ExecutionRequest, ExecutionResult
    from mcp_sandbox.sandbox import Engine, Sandbox
    from mcp_sandbox.view import View


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
        layers: Layers | None = None,
        secrets: SecretSources | None = None,
    ) -> None:
        self.policy = configuration.policy
        self.folders = folders or Folders(self.policy, hiding=Path(configuration.audit.path, "hidden"))
        self.layers = layers
        self.record = record
        self._secrets = secrets or SecretSources()
        self._policy_json = configuration.policy.model_dump(mode="json")
        self._openings = TlsOpenings(self.policy.bound_hosts)
        self._engine = engine
        self._origin: Origin = origin
        self._running = anyio.CapacityLimiter(configuration.server.max_parallel)
        self._max_queued = configuration.server.max_queued
        self._manifests = ManifestTaker(self.policy.path) if self.policy.path else None
        self._beside = ThreadPoolExecutor(1, "manifest")
        self._ahead = Patience()

    async def execute(
        self, request: ExecutionRequest, run: Run | None = None, *, replay_of: str = ""
    ) -> ExecutionResult:
        """Run one program and return how it ended; `run` lets others watch and stop it.

        Raises:
            SandboxError: Nothing ran, or the engine failed.
        """
        run = run or Run()
        uses = self.policy.secrets_of(request.language)
        secrets = await self._secrets.fetch(uses)  # before the opening is written: they may not stand in it
        redactor = Redactor(secrets.values)
        async with self.record.entry(self._opening(_redacted(request, redactor), replay_of)) as entry:
            run.run_id = entry.run_id
            if secrets.missing:
                raise secrets.missing
            bound = _bound(secrets.values, uses)
            given = {**secrets.values, **{secret.name: secret.placeholder for secret in bound}}
            planned = plan(request, self.policy, given, self._authorities())
            streams = run.streams = Streams(planned.program, run.watcher, redactor)
            staging = self.record.staging(entry.run_id)
            reached = ConnectionLog(entry, staging, redactor.json)
            with collecting(entry.run_id, staging, redactor) as files:
                # A replay is in the image of then, whatever was in it.
                layer = None if replay_of else await self._layer(planned, run, entry, reached)
                async with (
                    self._slot(run.progress),
                    self._sandbox(planned, layer) as (sandbox, program, view),
                ):
                    entry.note(sandbox=sandbox.name, **sandbox.facts, **view.facts(), **_at_terminal(request))
                    with self._listing(view) as manifest:
                        report = await run_program(
                            sandbox,
                            program,
                            streams,
                            files,
                            run.stop,
                            self._egress(run, planned, reached, bound),
                            run.progress,
                            run.at_terminal,
                        )
                    ending = Ending() if report.end else await sandbox.ending()
                    diagnostics = sandbox.diagnostics
                if files:
                    await self._keep(files)
                result = settle(run, planned, report, ending, files, self.policy)
                if report.lost_because:
                    entry.note(
                        lost_because=redactor.text(report.lost_because),
                        diagnostics=clean(redactor.cut_end(redactor(diagnostics)).decode("utf-8", "replace")),
                    )
                contents = list(files.contents) if files else []
                if layer:
                    contents.append(Content.of("lock", layer.lock.text.encode()))
                if manifest:
                    seen = await anyio.to_thread.run_sync(manifest.result, abandon_on_cancel=True)
                    entry.note(workspace_files=seen.facts())
                    contents.append(Content.of("manifest", seen.lines))
                entry.finish(
                    result, stdout=streams.stdout.kept(), stderr=streams.stderr.kept(), contents=contents
                )
            return result

    async def look_ahead(self) -> None:
        """Find out what the first run will see: a sandbox can then be made ready for it, and its files are hashed.

        Raises:
            SandboxError: The first run will be refused.
        """
        if self.layers:
            await self.layers.look()
        view = await self.folders.look()
        if self._manifests:
            looking = self._beside.submit(self._manifests.take, view.hidden, self._ahead)
            try:
                await anyio.to_thread.run_sync(looking.result, abandon_on_cancel=True)
            finally:
                self._ahead.run_ended()

    @contextmanager
    def _listing(self, view: View) -> Iterator[Future[Manifest] | None]:
        """Have listed what a run sees, beside it: that costs its call nothing that it would not wait for anyway."""
        self._ahead.run_ended()
        patience = Patience()
        try:
            taker = self._manifests
            yield self._beside.submit(taker.take, view.hidden, patience) if taker else None
        finally:
            patience.run_ended()

    def _authorities(self) -> list[bytes]:
        """Return the certificates that runs trust beside the public ones, as they are now.

        Raises:
            ConfigError: They cannot be read.
        """
        return [*self._company(), *self._openings.authorities()] if trusts_more(self.policy) else []

    def _company(self) -> list[bytes]:
        bundle = self.policy.egress.ca_bundle
        return [read_authorities(bundle)] if bundle else []

    def _egress(
        self, run: Run, planned: Plan, reached: ConnectionLog, bound: Sequence[BoundSecret]
    ) -> Callable[[ByteStream], Awaitable[None]] | None:
        """Return what answers the run's connections to the outside; None where it may have none."""
        settings = self.policy.egress
        if not settings.allow:
            return None
        upstream = upstream_proxy(settings.upstream_proxy)
        declined = planned.network == "none"
        # Who declined has somebody to ask all the same: a sandbox that waits serves this call too, and what the
        # program tries is known.
        allow = () if declined else settings.allow

        def log(made: EgressRecord) -> None:
            run.connections.append(made)
            reached.add(made)

        proxy = EgressProxy(
            replace(EgressPolicy.parse(allow, workspace=self.policy.workspace), declined=declined),
            resolve=None if upstream else SystemResolver(),
            dial=upstream or dial_direct,
            log=log,
            limits=limits_of(settings),
            opening=self._openings.for_run(bound, self._company()),
        )
        return proxy.serve

    async def _layer(self, planned: Plan, run: Run, entry: Entry, reached: ConnectionLog) -> Layer | None:
        """Return the packages of this run, installed first where they are not there; None where it has none."""
        if self.layers is None:
            return None
        layer = await self.layers.layer_for(planned.inline, Watch(run.install_goes_on, reached.add))
        if layer:
            entry.note(packages=layer.facts())
        return layer

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
        bare = spec(self.policy)
        seen = self.folders.latest.of((self.layers and self.layers.latest(bare)) or bare)
        async with self._slot(Progress()), self._engine.launch(seen) as sandbox:
            await run_program(sandbox, program, Streams(program, None), files)

    @asynccontextmanager
    async def _sandbox(
        self, planned: Plan, layer: Layer | None
    ) -> AsyncIterator[tuple[Sandbox, Program, View]]:
        """Yield a sandbox that sees what it may of the workspace as it is now, and what to run in it."""
        view = await self.folders.look()
        bare = planned.spec
        packed = bare.model_copy(update={"image": layer.image}) if layer else bare
        async with self._engine.launch(view.of(packed)) as sandbox:
            yield sandbox, replace(planned.program, copies=view.copies), view

    @asynccontextmanager
    async def _slot(self, progress: Progress) -> AsyncIterator[None]:
        """Wait, first come first served, until fewer than `max_parallel` run."""
        waiting = self._running.statistics().tasks_waiting
        if waiting >= self._max_queued and self._running.available_tokens < 1:
            raise Busy(f"{waiting} calls wait already, which is the limit (max_queued).")
        if self._running.available_tokens < 1:
            progress.enter("queued")
        async with self._running:
            progress.enter("starting")
            yield

    def _opening(self, request: ExecutionRequest, replay_of: str) -> Opening:
        return Opening(
            language=request.language,
            code=request.code,
            timeout_seconds=request.timeout_seconds,
            network=request.network,
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
            environment=tuple(self.policy.secrets_of(request.language)),
            replay_of=replay_of,
        )


def _bound(values: Mapping[str, bytes], uses: Mapping[str, SecretUse]) -> list[BoundSecret]:
    """Return the secrets of which a program gets a placeholder, and some hosts the value."""
    return [
        BoundSecret.make(name, value, uses[name].hosts) for name, value in values.items() if uses[name].hosts
    ]


def _at_terminal(request: ExecutionRequest) -> dict[str, object]:
    """Return what the record says of a run's terminal."""
    if request.terminal is None:
        return {}
    size = f"{request.terminal.rows}x{request.terminal.columns}"
    return {"terminal": size, **({"of_run": request.terminal.of_run} if request.terminal.of_run else {})}


def limits_of(settings: EgressSettings) -> EgressLimits:
    """Return how much egress a run has under these settings."""
    return EgressLimits(
        requests=settings.requests,
        connections=settings.connections,
        bytes_up=settings.upload_limit,
        bytes_down=settings.download_limit,
        connect_seconds=settings.connect_seconds,
        idle_seconds=settings.idle_seconds,
        connection_seconds=settings.connection_seconds,
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
