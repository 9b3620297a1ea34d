"""What a program read inside a sandbox, and what `doctor` makes of it."""

from __future__ import annotations

import json

import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.doctor.inside import judge
from mcp_sandbox.model import ExecutionResult

POLICY = Policy()
READ = {
    "python": "3.13.1",
    "memory": POLICY.memory,
    "swap_too": POLICY.memory,
    "cpus": 1.0,
    "pids": POLICY.pids_limit,
    "seccomp": 2,
    "no_new_privileges": 1,
    "core_pattern": "core",
}


def judged(stdout: str, *, gvisor: bool = False) -> dict[str, str]:
    result = ExecutionResult(
        run_id="r",
        status="exited",
        exit_code=0,
        stdout=stdout,
        stderr="",
        stdout_bytes=len(stdout),
        stderr_bytes=0,
        truncated=False,
        duration_ms=1,
    )
    return {finding.check: finding.state for finding in judge(result, POLICY, gvisor=gvisor)}


def test_limits_in_force_are_well() -> None:
    assert set(judged(json.dumps(READ)).values()) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "check", "state"),
    [
        ({"memory": 2**63 - 4096}, "memory limit", "failed"),
        ({"memory": -1}, "memory limit", "failed"),
        ({"swap_too": 2 * POLICY.memory}, "memory and swap limit", "failed"),
        ({"cpus": -1}, "processors limit", "failed"),
        ({"cpus": 8}, "processors limit", "failed"),
        ({"pids": -1}, "processes limit", "failed"),
        ({"seccomp": 0}, "filter", "failed"),
        ({"no_new_privileges": 0}, "filter", "failed"),
        ({"core_pattern": "|/usr/share/apport/apport %p"}, "crash helper", "warning"),
        ({"memory": None, "seccomp": None, "no_new_privileges": None}, "filter", "ok"),
    ],
)
def test_a_limit_that_is_not_in_force_fails(changed: dict[str, object], check: str, state: str) -> None:
    assert judged(json.dumps({**READ, **changed}))[check] == state


def test_groups_of_gvisors_own_are_not_taken_for_limits() -> None:
    own = {"memory": 2**63 - 1, "swap_too": None, "cpus": -0.0, "pids": -1}
    assert judged(json.dumps({**READ, **own}), gvisor=False)["memory limit"] == "failed"
    assert set(judged(json.dumps({**READ, **own}), gvisor=True).values()) == {"ok"}


@pytest.mark.parametrize(
    "stdout", ["", "{}", "[]", "null", '{"python": 3}', "9" * 5000, json.dumps({**READ, "more": 1})]
)
def test_what_is_not_the_programs_answer_is_a_sandbox_that_does_not_work(stdout: str) -> None:
    assert judged(stdout) == {"sandbox": "failed"}
