"""Judges an engine by what it says of itself: pure functions of a survey."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mcp_sandbox.config.settings import GVISOR
from mcp_sandbox.doctor.finding import Finding
from mcp_sandbox.engines.docker.errors import build_command, runtime_advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.engines.docker.survey import Survey

OLDEST = (20, 10)
"""Docker releases before this one lack options that the sandbox rests on."""
RUNC_FIXED = (1, 2, 8)
"""First runc release without a known way out: CVE-2019-5736, CVE-2024-21626, CVE-2025-31133, -52565, -52881."""
STALE = timedelta(days=90)
_WEAK_DRIVERS = {"aufs", "devicemapper", "overlay", "vfs"}
_LIMITS_MISSING = re.compile(
    r"no (memory|swap|cpu|pids|cfs)\S* ?\S* ?(limit|quota|cfs|support)", re.IGNORECASE
)


def judge(survey: Survey, policy: Policy) -> Iterator[Finding]:
    """Yield what each check makes of an engine, for runs under this policy."""
    for check in CHECKS:
        yield check(survey, policy)


def runtime_of(survey: Survey, policy: Policy) -> str:
    """Return the name of the runtime that runs under this policy get."""
    return policy.runtime or survey.facts.default_runtime


def is_gvisor(survey: Survey, policy: Policy) -> bool:
    """Tell whether programs get gVisor's kernel rather than the host's."""
    return GVISOR in runtime_of(survey, policy)


def _engine(survey: Survey, _: Policy) -> Finding:
    facts, address = survey.facts, survey.address
    says = (
        f"{facts.product} {facts.version} at {address.url} (from {address.source}), API {facts.api_version}"
    )
    if facts.product == "Docker" and _numbers(facts.version) < OLDEST:
        return Finding(check="engine", state="failed", says=says, remedy="Update Docker to 20.10 or newer.")
    return Finding(check="engine", state="ok", says=says)


def _transport(survey: Survey, _: Policy) -> Finding:
    if survey.encrypted:
        says = "a local socket" if survey.address.local else "encrypted"
        return Finding(check="transport", state="ok", says=says)
    return Finding(
        check="transport",
        state="failed",
        says="the engine is reached over the network without TLS: whoever reaches that port owns its machine",
        remedy="Turn TLS on (`dockerd --tlsverify`), or forward its socket by ssh.",
    )


def _privileges(survey: Survey, policy: Policy) -> Finding:
    if survey.facts.rootless:
        return Finding(
            check="engine's user", state="ok", says="rootless: a way out would end at your own user"
        )
    if survey.remaps_users:
        return Finding(check="engine's user", state="ok", says="user ids are remapped (userns-remap)")
    if is_gvisor(survey, policy):
        return Finding(check="engine's user", state="ok", says="root, with gVisor between it and programs")
    return Finding(
        check="engine's user",
        state="warning",
        says="root: a way out through a bug of the kernel would be root on the engine's host",
        remedy='Set runtime = "runsc" (gVisor), or use a rootless engine, for programs that you trust least.',
    )


def _cgroup(survey: Survey, _: Policy) -> Finding:
    facts = survey.facts
    says = f"version {facts.cgroup_version}, driver {survey.cgroup_driver or 'unknown'}"
    missing = [warning for warning in facts.warnings if _LIMITS_MISSING.search(warning)]
    if survey.cgroup_driver == "none" or (facts.rootless and facts.cgroup_version == "1"):
        return Finding(
            check="cgroups",
            state="failed",
            says=f"{says}: this engine enforces no limits",
            remedy="Boot with cgroup v2 and delegate controllers to your user (systemd), or use a rootful engine.",
        )
    if missing:
        return Finding(
            check="cgroups",
            state="failed",
            says=f"{says}: {'; '.join(missing)}",
            remedy="Enable the controller: on cgroup v1 boot with cgroup_enable=memory swapaccount=1.",
        )
    return Finding(check="cgroups", state="ok", says=says)


def _seccomp(survey: Survey, policy: Policy) -> Finding:
    if survey.facts.filters_system_calls:
        return Finding(check="seccomp", state="ok", says="supported; sandboxes bring a profile of their own")
    says = "the engine filters no system calls"
    if policy.unsafe_allow_unconfined_seccomp:
        says += ", which unsafe_allow_unconfined_seccomp allows"
    return Finding(
        check="seccomp",
        state="failed",
        says=says,
        remedy="Start the engine with its default seccomp profile, on a kernel with CONFIG_SECCOMP_FILTER.",
    )


def _mandatory(survey: Survey, _: Policy) -> Finding:
    names = {option.partition(",")[0].removeprefix("name=") for option in survey.facts.security_options}
    found = sorted(names & {"apparmor", "selinux"})
    if found:
        return Finding(check="AppArmor", state="ok", says=" and ".join(found))
    return Finding(
        check="AppArmor",
        state="warning",
        says="neither AppArmor nor SELinux: one layer less between a program and the host",
        remedy="Enable the one that your distribution comes with; nothing here depends on it.",
    )


def _storage(survey: Survey, _: Policy) -> Finding:
    driver = survey.facts.storage_driver
    if (
        driver in _WEAK_DRIVERS and survey.facts.product == "Docker"
    ):  # Podman's "overlay" is Docker's overlay2
        return Finding(
            check="storage",
            state="warning",
            says=f"{driver}, which is slow or no longer maintained",
            remedy="Use overlay2 (`storage-driver` in daemon.json); images are then built anew.",
        )
    return Finding(check="storage", state="ok", says=driver)


def _runtime(survey: Survey, policy: Policy) -> Finding:
    known = ", ".join(sorted(survey.facts.runtimes))
    name = runtime_of(survey, policy)
    if name in survey.facts.runtimes:
        return Finding(check="runtime", state="ok", says=f"{name} (known: {known})")
    return Finding(
        check="runtime",
        state="failed",
        says=f"{name} is not known to the engine (known: {known})",
        remedy=runtime_advice(name, survey.facts.product),
    )


def _runc(survey: Survey, policy: Policy) -> Finding:
    version = survey.runc_version
    if is_gvisor(survey, policy) or not version:
        return Finding(check="runc", state="ok", says=f"{version or 'not told'}, not what programs run under")
    if _numbers(version) >= RUNC_FIXED:
        return Finding(check="runc", state="ok", says=version)
    return Finding(
        check="runc",
        state="warning",
        says=f"{version} is older than {'.'.join(map(str, RUNC_FIXED))}, before which there are known ways out",
        remedy="Update runc, or see whether your distribution put the fixes into its own version "
        "(CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881).",
    )


def _image(survey: Survey, policy: Policy) -> Finding:
    image = survey.image
    if image is None:
        remedy = build_command(policy.image)
        return Finding(check="image", state="failed", says=f"{policy.image} is not there", remedy=remedy)
    days = (datetime.now(UTC) - image.created).days
    says = f"{policy.image}, {days} days old"
    if image.current is False:
        says += ", not what this version would build"
    if image.current is False or datetime.now(UTC) - image.created > STALE:
        remedy = build_command(policy.image).replace(" once", " again")
        return Finding(check="image", state="warning", says=says, remedy=remedy)
    return Finding(check="image", state="ok", says=says)


def _workspace(survey: Survey, policy: Policy) -> Finding:
    if not policy.path:
        return Finding(check="workspace", state="ok", says="no folder")
    if policy.workspace_transfer == "copy" or (
        policy.workspace_transfer == "auto" and not survey.address.local
    ):
        return Finding(check="workspace", state="ok", says=f"{policy.path} is copied to each sandbox")
    if survey.facts.rootless or survey.remaps_users:
        return Finding(
            check="workspace",
            state="warning",
            says=f"{policy.path} is mounted, and this engine maps user ids: what only you may read there, programs "
            "cannot",
            remedy='Set workspace_transfer = "copy", or let others read these files.',
        )
    return Finding(check="workspace", state="ok", says=f"{policy.path} is mounted read-only")


CHECKS: tuple[Callable[[Survey, Policy], Finding], ...] = (
    _engine,
    _transport,
    _privileges,
    _cgroup,
    _seccomp,
    _mandatory,
    _storage,
    _runtime,
    _runc,
    _image,
    _workspace,
)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, such as (20, 10, 24) of 20.10.24+dfsg1."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()
