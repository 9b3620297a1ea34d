"""Judges a sandbox by what can be read inside it: an engine's word is one thing, the kernel's another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mcp_sandbox.doctor.finding import Finding
from mcp_sandbox.model import ExecutionRequest, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.model import ExecutionResult

SECONDS = 10.0

PROGRAM = """
import json
import platform


def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def number(*paths):
    for path in paths:
        text = read("/sys/fs/cgroup/" + path)
        if text is not None and text.lstrip("-").isdigit():
            return int(text)
    return None


def cpus():
    whole = (read("/sys/fs/cgroup/cpu.max") or "").split()
    quota = int(whole[0]) if len(whole) == 2 and whole[0].isdigit() else number("cpu/cpu.cfs_quota_us")
    period = int(whole[1]) if len(whole) == 2 else number("cpu/cpu.cfs_period_us")
    return round(quota / period, 2) if quota and period else None


def unlimited(found, *paths):
    # "max" is a limit that is not there, which is not the same as one that cannot be read.
    open_end = any((read("/sys/fs/cgroup/" + path) or "").startswith("max") for path in paths)
    return -1 if found is None and open_end else found


status = dict(line.split(":\\t", 1) for line in (read("/proc/self/status") or "").splitlines() if ":\\t" in line)
memory = number("memory.max", "memory/memory.limit_in_bytes")
swap = number("memory.swap.max")
both = number("memory/memory.memsw.limit_in_bytes") if swap is None else swap + (memory or 0)
filtered = "NoNewPrivs" in status
print(
    json.dumps(
        {
            "python": platform.python_version(),
            "memory": unlimited(memory, "memory.max"),
            "swap_too": unlimited(both, "memory.swap.max"),
            "cpus": unlimited(cpus(), "cpu.max"),
            "pids": unlimited(number("pids.max", "pids/pids.max"), "pids.max", "pids/pids.max"),
            "seccomp": int(status["Seccomp"]) if filtered else None,
            "no_new_privileges": int(status["NoNewPrivs"]) if filtered else None,
            "core_pattern": read("/proc/sys/kernel/core_pattern"),
        }
    )
)
"""
"""Prints, as JSON, what of its sandbox a program can read."""


class Inside(Value):
    """What a program could read; None where it could not."""

    python: str
    memory: int | None
    """Bytes."""
    swap_too: int | None
    """Memory and swap together, in bytes."""
    cpus: float | None
    pids: int | None
    seccomp: int | None
    no_new_privileges: int | None
    core_pattern: str | None


def looking(policy: Policy) -> ExecutionRequest:
    """Return the call whose program reads all of it."""
    return ExecutionRequest(
        language="python", code=PROGRAM, timeout_seconds=min(SECONDS, policy.max_timeout_seconds)
    )


def judge(result: ExecutionResult, policy: Policy, *, gvisor: bool = False) -> Iterator[Finding]:
    """Yield what each check makes of what the program read."""
    try:
        found = Inside.model_validate(json.loads(result.stdout))
    except (ValueError, ValidationError):
        end = result.stderr.strip().rpartition("\n")[2] or result.status
        yield Finding(
            check="sandbox",
            state="failed",
            says=f"a program did not run as it should: {end[:200]}",
            remedy="Look at the run with `mcp-sandbox run -c 'print(1)'`; build the image again.",
        )
        return
    yield Finding(check="sandbox", state="ok", says=f"ran a program with Python {found.python}")
    if gvisor:  # newer ones show groups there, which are gVisor's own and bound nothing
        found = found.model_copy(update=dict.fromkeys(("memory", "swap_too", "cpus", "pids")))
    yield _limit("memory", found.memory, policy.memory, "bytes")
    yield _limit("memory and swap", found.swap_too, policy.memory, "bytes")
    yield _limit("processors", found.cpus, policy.cpus, "CPUs")
    yield _limit("processes", found.pids, policy.pids_limit, "processes")
    yield _filter(found)
    yield _core_pattern(found)


def _limit(check: str, found: float | None, wanted: float, unit: str) -> Finding:
    check = f"{check} limit"
    if found is None:
        says = "cannot be read inside under this runtime: `doctor --prove` tries it"
        return Finding(check=check, state="ok", says=says)
    # cgroups round down to whole pages, and to hundredths of a processor.
    if 0 < found <= wanted:
        return Finding(check=check, state="ok", says=f"{found:,} {unit}, read inside")
    return Finding(
        check=check,
        state="failed",
        says=f"{found:,} {unit} inside, where {wanted:,} were asked for",
        remedy="The engine does not enforce it: use cgroup v2, or v1 with every controller on.",
    )


def _filter(found: Inside) -> Finding:
    if found.seccomp is None or found.no_new_privileges is None:
        return Finding(
            check="filter", state="ok", says="gVisor's kernel answers system calls, not the host's"
        )
    if found.seccomp == 2 and found.no_new_privileges == 1:
        return Finding(check="filter", state="ok", says="system calls are filtered, no new privileges")
    return Finding(
        check="filter",
        state="failed",
        says="system calls are not filtered, or a program could gain privileges",
        remedy="The engine ignores security options: use one that does not.",
    )


def _core_pattern(found: Inside) -> Finding:
    pattern = found.core_pattern
    if pattern is None or not pattern.startswith("|"):
        return Finding(check="crash helper", state="ok", says="none: crashes in a sandbox stay there")
    return Finding(
        check="crash helper",
        state="warning",
        says=f"the host runs {pattern.split()[0][1:]} on every crash, also on those in a sandbox",
        remedy="`sysctl kernel.core_pattern=core` keeps what crashes there from being read by a program of the host's.",
    )
