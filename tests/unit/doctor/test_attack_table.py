"""The table of attacks: complete, well-formed, and open about what it does not ask for."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.doctor.attack import Attack, Outcome, load_attacks, prelude
from mcp_sandbox.doctor.claims import CLAIMS
from mcp_sandbox.model import ExecutionResult
from mcp_sandbox.plan import plan

ATTACKS = load_attacks()


def test_there_are_many_attacks_each_with_a_name_of_its_own() -> None:
    assert len(ATTACKS) >= 120
    assert max(Counter(attack.id for attack in ATTACKS).values()) == 1


def test_thirty_attacks_are_proof() -> None:
    assert sum(attack.prove for attack in ATTACKS) == 30


OF_THE_SERVER = {"unseen", "policy", "lease", "neighbours", "nothing_left", "proof"}
"""Claims that no program can test from inside."""


def test_the_proof_touches_every_claim_on_programs_but_two() -> None:
    inside = CLAIMS.keys() - OF_THE_SERVER
    assert {attack.claim for attack in ATTACKS} == inside
    assert {attack.claim for attack in ATTACKS if attack.prove} == inside - {"descriptors", "artifacts"}


def test_nothing_that_is_proof_could_take_a_machine_down_where_it_succeeds() -> None:
    # A fork bomb is one: on an engine that drops the limit it would take the user's machine with it.
    assert not [attack.id for attack in ATTACKS if attack.prove and "bomb" in attack.id]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_every_row_is_a_call_that_would_not_be_refused(attack: Attack) -> None:
    policy = Policy()
    request = attack.request(policy)
    assert plan(request, policy)
    assert attack.claim in CLAIMS
    assert attack.does[0].islower()
    assert not attack.does.endswith(".")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.id)
def test_a_row_that_takes_more_than_one_outcome_says_why(attack: Attack) -> None:
    lenient = len(attack.expect) > 1 or (attack.gvisor and attack.gvisor != attack.expect)
    assert attack.why or attack.only or not lenient


def test_the_limits_stand_before_the_program_in_words_that_python_reads() -> None:
    line = prelude(Policy(), {"path": "a'b", "values": [1, -1]})
    names: dict[str, object] = {}
    exec(compile(ast.parse(line), "prelude", "exec"), names)
    assert names["memory"] == Policy().memory
    assert names["path"] == "a'b"
    assert names["values"] == [1, -1]


ENDED = ExecutionResult(
    run_id="r",
    status="exited",
    exit_code=0,
    stdout="EPERM\n",
    stderr="",
    stdout_bytes=6,
    stderr_bytes=0,
    truncated=False,
    duration_ms=1,
)


@pytest.mark.parametrize(
    ("outcome", "held"),
    [
        (Outcome(prints="EPERM"), True),
        (Outcome(), True),
        (Outcome(prints="EPER"), False),
        (Outcome(prints="EPERM EPERM"), False),
        (Outcome(exit_code=1), False),
        (Outcome(signal="SIGSYS"), False),
        (Outcome(status="lost"), False),
        (Outcome(stdout_bytes=7), False),
        (Outcome(truncated=True), False),
    ],
)
def test_an_outcome_is_only_what_it_says(outcome: Outcome, held: bool) -> None:
    assert outcome.is_of(ENDED) is held


def test_a_run_that_was_lost_is_no_exit_and_no_signal() -> None:
    lost = ENDED.model_copy(update={"status": "lost", "exit_code": None})
    assert Outcome(status="lost").is_of(lost)
    assert not Outcome().is_of(lost)
    assert not Outcome(status="lost").is_of(lost.model_copy(update={"exit_code": 0}))
