"""Every check, in the order in which one rests on another."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.doctor import engine, inside
from mcp_sandbox.doctor.clients import configured_clients
from mcp_sandbox.doctor.finding import Finding
from mcp_sandbox.doctor.trial import trial
from mcp_sandbox.engines.docker.connection import connect
from mcp_sandbox.engines.docker.survey import survey
from mcp_sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp_sandbox.config.policy import Configuration
    from mcp_sandbox.engines.docker.survey import Survey


async def examine(configuration: Configuration, environ: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield what each check finds, as soon as it does; what rests on something that failed is left out."""
    yield _configuration(configuration)
    yield await _record(configuration)
    yield configured_clients(Path.home(), environ)
    try:
        surveyed = await survey_of(configuration, environ)
    except SandboxError as error:
        yield failed("engine", error)
        return
    findings = list(engine.judge(surveyed, configuration.policy))
    for finding in findings:
        yield finding
    if any(finding.state == "failed" and finding.check in ("runtime", "image") for finding in findings):
        return
    try:
        async with trial(configuration, environ) as executor:
            result = await executor.execute(inside.looking(configuration.policy))
    except SandboxError as error:
        yield failed("sandbox", error)
        return
    gvisor = engine.is_gvisor(surveyed, configuration.policy)
    for finding in inside.judge(result, configuration.policy, gvisor=gvisor):
        yield finding


async def survey_of(configuration: Configuration, environ: Mapping[str, str]) -> Survey:
    """Return what the configured engine says of itself.

    Raises:
        SandboxError: There is none, or it failed.
    """
    connection = connect(configuration.engine.host, environ)
    try:
        return await to_thread.run_sync(
            partial(survey, connection, configuration.policy.image), abandon_on_cancel=True
        )
    finally:
        connection.close()


def failed(check: str, error: SandboxError) -> Finding:
    """Return what an error of ours means to a check."""
    return Finding(check=check, state="failed", says=error.message, remedy=error.next_step)


def _configuration(configuration: Configuration) -> Finding:
    where = str(configuration.file) if configuration.file else "built in, there is no file"
    says = f"{where}; workspace {configuration.policy.workspace}, profile {configuration.policy.profile}"
    unsafe = [*configuration.policy.unsafe]
    if configuration.audit.unsafe_run_unrecorded:
        unsafe.append("unsafe_run_unrecorded")
    if unsafe:
        remedy = "Take the key out of the file, unless you mean it."
        return Finding(
            check="configuration",
            state="warning",
            says=f"{says}; weakened by {', '.join(unsafe)}",
            remedy=remedy,
        )
    return Finding(check="configuration", state="ok", says=says)


async def _record(configuration: Configuration) -> Finding:
    store = AuditStore(Path(configuration.audit.path))
    try:
        await store.open()
        await store.aclose()
    except SandboxError as error:
        return failed("record", error)
    return Finding(check="record", state="ok", says=f"{configuration.audit.path} can be written")
