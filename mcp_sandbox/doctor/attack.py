"""An attack: a hostile program, the claim that it tests, and exactly how it must end.

The attacks are rows of `attacks/*.toml`, one file a theme. Rules for a row:

- Its program is harmless where it succeeds: it tries the handle of a door and does not walk through, for it runs
  on people's own machines, also on those where the door turns out to be open.
- It prints what it found, in words that do not depend on the machine; what does (counts, paths) goes to stderr.
- `expect` is how it ends where the host's kernel is shared (runc, crun), `gvisor` how it ends under gVisor, `podman`
  how it ends on that engine, where these differ. A list means that any of these will do. Where less is asserted than
  one might wish, `why` says why.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mcp_sandbox.config.settings import GVISOR
from mcp_sandbox.model import ExecutionRequest, ExecutionResult, Language, Status, Value
from mcp_sandbox.plan import spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp_sandbox.config.policy import Policy


class Outcome(Value):
    """How a run ends, as far as that matters; None stands for anything."""

    status: Status = "exited"
    exit_code: int | None = 0
    """Of a program that exits of itself; otherwise there is none, which is checked too."""
    signal: str | None = None
    prints: str | None = None
    """All of stdout, but for blank space around it."""
    stdout_bytes: int | None = None
    truncated: bool = False
    files: tuple[str, ...] | None = None
    """Paths of the files that come out."""
    skipped: tuple[str, ...] | None = None
    """What does not come out and why, each as `PATH: REASON`."""

    def is_of(self, result: ExecutionResult) -> bool:
        """Tell whether this is how a run ended."""
        ended_itself = self.status == "exited" and self.signal is None
        return (
            result.status == self.status
            and result.exit_code == (self.exit_code if ended_itself else None)
            and result.signal == self.signal
            and (self.prints is None or result.stdout.strip() == self.prints.strip())
            and (self.stdout_bytes is None or result.stdout_bytes == self.stdout_bytes)
            and result.truncated == self.truncated
            and _same(self.files, [file.path for file in result.artifacts])
            and _same(self.skipped, [f"{file.path}: {file.reason}" for file in result.artifacts_skipped])
        )


def _same(wanted: tuple[str, ...] | None, found: list[str]) -> bool:
    return wanted is None or sorted(wanted) == sorted(found)


Outcomes = Annotated[
    tuple[Outcome, ...], BeforeValidator(lambda value: value if isinstance(value, list) else [value])
]


class Attack(Value):
    """One hostile program."""

    id: str
    """A telling name, with the number of its kind at the end."""
    does: str
    """What the program does, in a few words."""
    claim: str
    """Id of the claim that it tests."""
    language: Language = "python"
    code: str
    given: dict[str, str | int | list[int]] = Field(default_factory=dict)
    """Variables that the program finds set: what differs between rows that share their code."""
    timeout: float = 10.0
    """Wall-clock limit, in seconds."""
    prove: bool = False
    """Whether `doctor --prove` runs it."""
    shares: bool = False
    """Whether it may run beside others in one sandbox: it only looks, and uses nothing up."""
    last: bool = False
    """Whether it looks for what others did, and so comes after them."""
    expect: Outcomes
    gvisor: Outcomes = ()
    """How it ends under gVisor, where that differs."""
    podman: Outcomes = ()
    """How it ends on Podman, where that differs."""
    only: Literal["", "runc", "runsc"] = ""
    """The kind of runtime under which it can tell anything; empty for both."""
    why: str = ""
    """Why the outcome is not the strictest that one could think of."""

    def outcomes(self, runtime: str, product: str) -> tuple[Outcome, ...]:
        """Return the ways in which it may end under a runtime, on an engine that is Docker or Podman."""
        if self.podman and product == "Podman":
            return self.podman
        return self.gvisor if self.gvisor and runtime == GVISOR else self.expect

    def request(self, policy: Policy, variables: Iterable[str] = ()) -> ExecutionRequest:
        """Return the call that makes this attack under this policy; `variables` are the image's own."""
        return ExecutionRequest(
            language=self.language,
            code=prelude(policy, self.given, variables) + self.code,
            timeout_seconds=min(self.timeout, policy.max_timeout_seconds),
        )


def prelude(policy: Policy, given: Mapping[str, object], variables: Iterable[str] = ()) -> str:
    """Return the line that tells a program what it attacks, limits above all: both Python and a shell read it."""
    known: dict[str, object] = {
        "memory": policy.memory,
        "pids": policy.pids_limit,
        "nofile": policy.nofile,
        "inodes": policy.inodes,
        "scratch": policy.scratch_size,
        "tmp": policy.tmp_size,
        "shm": policy.shm_size,
        "cpus": policy.cpus,
        "variables": " ".join([*variables, *(name for name, _ in spec(policy).environment)]),
        **given,
    }
    return "; ".join(f"{name}={value!r}" for name, value in known.items()) + "\n"


def load_attacks() -> tuple[Attack, ...]:
    """Return every attack, in the order of the files' names and of the rows in them."""
    folder = files("mcp_sandbox.doctor") / "attacks"
    tables = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name
    )
    return tuple(_attacks(tomllib.loads(table.read_text(encoding="utf-8")) for table in tables))


def _attacks(tables: Iterable[dict[str, Any]]) -> Iterable[Attack]:
    for table in tables:
        # What stands above the first row holds for every row that does not say otherwise.
        shared = {key: value for key, value in table.items() if key != "attack"}
        for row in table["attack"]:
            given = {**shared.get("given", {}), **row.get("given", {})}
            yield Attack.model_validate({**shared, **row, "given": given})
