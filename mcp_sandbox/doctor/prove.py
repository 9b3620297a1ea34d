"""Attacks the user's own engine, under the user's own policy, and tells which claims held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mcp_sandbox.doctor.attack import load_attacks
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.model import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_sandbox.doctor.attack import Attack, Outcome
    from mcp_sandbox.executor import Executor
    from mcp_sandbox.model import ExecutionResult


class Verdict(Value):
    """What became of one attack."""

    claim: str
    attack: str
    does: str
    happened: str
    held: bool
    """Whether the claim held; an attack that could not be made proves nothing, and counts as if it had not."""
    note: str = ""
    """Why the claim held though this is not what one would expect to see; empty where it is."""


def chosen(runtime: str) -> tuple[Attack, ...]:
    """Return the attacks that prove the claims under a runtime."""
    return tuple(attack for attack in load_attacks() if attack.prove and attack.only in ("", runtime))


async def prove(
    executor: Executor,
    attacks: tuple[Attack, ...],
    runtime: str,
    *,
    product: str = "Docker",
    variables: tuple[str, ...] = (),
    progress: Callable[[], None] = lambda: None,
) -> list[Verdict]:
    """Make every attack and return the verdicts, in the order of the attacks.

    Each has a sandbox of its own and several run at once, so each is also a neighbour to others; those that look
    for traces come when the rest is over. `product` is the engine's, `variables` are those that the image sets.
    """
    verdicts: dict[str, Verdict] = {}

    async def make(attack: Attack) -> None:
        outcomes = attack.outcomes(runtime, product)
        verdicts[attack.id] = await _make(executor, attack, outcomes, variables)
        progress()

    for last in (False, True):
        async with anyio.create_task_group() as tasks:
            for attack in attacks:
                if attack.last is last:
                    tasks.start_soon(make, attack)
    return [verdicts[attack.id] for attack in attacks]


async def _make(
    executor: Executor, attack: Attack, outcomes: tuple[Outcome, ...], variables: tuple[str, ...]
) -> Verdict:
    try:
        result = await executor.execute(attack.request(executor.policy, variables))
    except SandboxError as error:
        happened, held, note = f"could not be tried: {error.message}", False, ""
    else:
        happened, held = told(result), any(outcome.is_of(result) for outcome in outcomes)
        note = attack.why if held and not attack.expect[0].is_of(result) else ""
    return Verdict(
        claim=attack.claim, attack=attack.id, does=attack.does, happened=happened, held=held, note=note
    )


def told(result: ExecutionResult) -> str:
    """Return how an attack ended, in a few words; what it printed is its own account, and clean text."""
    if result.status == "exited" and result.signal:
        return f"killed by {result.signal}"
    if result.status != "exited":
        return result.status.replace("_", " ")
    if result.truncated:
        return f"kept {len(result.stdout):,} of {result.stdout_bytes or 0:,} bytes"
    line = " ".join(result.stdout.split()) or result.stderr.strip().rpartition("\n")[2]
    return line if len(line) <= 90 else line[:89] + "…"
