"""Runs many attacks at once, in several places, and knows how each of them ended.

A place is a runtime, or a runtime and " ready": there a sandbox was started, and imported modules, before the
call came, as a server keeps them.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mcp_sandbox.capture import clean
from mcp_sandbox.doctor.attack import prelude
from mcp_sandbox.model import ExecutionRequest, ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from anyio.abc import TaskGroup

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.doctor.attack import Attack
    from mcp_sandbox.executor import Executor

AT_ONCE = 6
IN_ONE_SANDBOX = 24
SECONDS = 110.0
"""Longest wait for one attack, those before it included: they go in the order in which they are asked for."""

_PROGRAMS = Path(__file__).parent / "programs"
LOOKS_FOR_TRACES = (_PROGRAMS / "looks_for_traces.py").read_text()
SEVERAL = (_PROGRAMS / "several.py").read_text()


@dataclass
class Outcome:
    """How one attack ended, once it has."""

    done: anyio.Event = field(default_factory=anyio.Event)
    result: ExecutionResult | None = None
    error: BaseException | None = None


class Campaign:
    """Attacks in several places, a few at once; each run looks first for what others left."""

    def __init__(
        self, executors: Mapping[str, Executor], product: str, wanted: Sequence[tuple[Attack, str]]
    ) -> None:
        self.product = product
        """"Docker" or "Podman"."""
        self._executors = executors
        self._limit = anyio.CapacityLimiter(AT_ONCE)
        self._jobs = list(_jobs(wanted))
        self._outcomes = {(attack.id, place): Outcome() for attack, place in wanted}

    def start(self, tasks: TaskGroup) -> None:
        for attacks, place in self._jobs:
            tasks.start_soon(self._run, attacks, place)

    async def result(self, attack: Attack, place: str) -> ExecutionResult:
        outcome = self._outcomes[attack.id, place]
        with anyio.fail_after(SECONDS):
            await outcome.done.wait()
        if outcome.error:
            raise outcome.error
        assert outcome.result
        return outcome.result

    async def _run(self, attacks: Sequence[Attack], place: str) -> None:
        executor = self._executors[place]
        async with self._limit:
            try:
                if len(attacks) == 1:
                    results = [await executor.execute(looking_first(attacks[0], executor.policy))]
                else:
                    results = apart(await executor.execute(together(attacks, executor.policy)), attacks)
                for attack, result in zip(attacks, results, strict=True):
                    self._outcomes[attack.id, place].result = result
            except Exception as error:  # it is raised in the test that asks for it
                for attack in attacks:
                    self._outcomes[attack.id, place].error = error
            finally:
                for attack in attacks:
                    self._outcomes[attack.id, place].done.set()


def _jobs(wanted: Sequence[tuple[Attack, str]]) -> Iterator[tuple[list[Attack], str]]:
    """Yield what runs in one sandbox each, in the order in which it was asked for."""
    batches: dict[tuple[str, str], list[Attack]] = {}
    for attack, place in wanted:
        if not attack.shares:
            yield [attack], place
            continue
        batch = batches.setdefault((place, attack.claim), [])
        if not batch:
            yield batch, place
        batch.append(attack)
        if len(batch) == IN_ONE_SANDBOX:
            del batches[place, attack.claim]


def looking_first(attack: Attack, policy: Policy) -> ExecutionRequest:
    """Return the attack's call, with a look for traces of other runs before it."""
    request = attack.request(policy)
    if request.language == "python":
        look = f"exec({LOOKS_FOR_TRACES!r}, {{}})\n"
    else:
        look = f"python3 -c {shell_quoted(LOOKS_FOR_TRACES)} || exit 99\n"
    return request.model_copy(update={"code": look + request.code})


def together(attacks: Sequence[Attack], policy: Policy) -> ExecutionRequest:
    """Return one call that makes several attacks, each in a process of its own."""
    programs = [
        {"id": attack.id, "language": attack.language, "code": prelude(policy, attack.given) + attack.code}
        for attack in attacks
    ]
    code = f"exec({LOOKS_FOR_TRACES!r}, {{}})\nprograms = {programs!r}\n{SEVERAL}"
    return ExecutionRequest(language="python", code=code, timeout_seconds=100)


def apart(whole: ExecutionResult, attacks: Sequence[Attack]) -> Iterator[ExecutionResult]:
    """Yield the result of each of several attacks that one run made."""
    ends = {end["id"]: end for end in map(json.loads, whole.stdout.splitlines())}
    for attack in attacks:
        if (end := ends.get(attack.id)) is None:
            yield whole  # it never came to that one: what became of the whole says why
            continue
        yield whole.model_copy(
            update={
                "status": "exited",
                "exit_code": end["exit_code"],
                "signal": end["signal"] and signal.Signals(end["signal"]).name,
                "stdout": clean(end["stdout"]),
                "stdout_bytes": len(end["stdout"].encode()),
                "truncated": False,
            }
        )


def shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
