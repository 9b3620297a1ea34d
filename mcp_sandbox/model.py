"""What goes into an execution and what comes out of it: plain, frozen values.

Above: everything. Below: nothing but `errors`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Language = Literal["python", "shell"]

Network = Literal["none", "allowlist"]
"""What a run may reach: no host, or those that its workspace allows."""

Status = Literal["exited", "timed_out", "out_of_memory", "cancelled", "lost", "running"]
"""How a run ended. `exited` with any code is the program's own end; `lost` means that the sandbox ended
without a word that could be trusted; `running` that it has not ended."""


class Value(BaseModel):
    """A frozen value that knows all of its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Client(Value):
    """Who asked, as far as they said."""

    name: str = ""
    version: str = ""


class Terminal(Value):
    """The terminal that a program is given instead of three streams."""

    rows: int
    columns: int
    kind: str
    """What programs look up to draw on it: `TERM`."""
    of_run: str = ""
    """The recorded run that is looked into from there; empty for none."""


class ExecutionRequest(Value):
    """One program to run in a sandbox of its own."""

    language: Language
    code: str
    """Source text of the program."""
    timeout_seconds: float | None = None
    """Wall-clock limit asked for, in seconds; None means the workspace's own."""
    stdin: bytes = b""
    files: tuple[tuple[str, bytes], ...] = ()
    """Files that the program finds in its working folder: paths with `/` between their parts, contents."""
    network: Network | None = None
    """What it asked to reach; None means what the workspace allows."""
    terminal: Terminal | None = None
    """Where a person sits at it; None for a program that runs by itself."""
    client: Client = Client()


class Artifact(Value):
    """A file that came out of a run."""

    path: str
    """Path under the scratch folder, with `/` between its parts."""
    size: int
    """Bytes."""
    mime_type: str
    sha256: str
    """Lower-case hex of the content."""
    uri: str


class SkippedArtifact(Value):
    """A file that did not come out."""

    path: str
    """As far as it can be written down; control characters are pictures here."""
    reason: str


class Blocked(Value):
    """A connection that the egress policy refused."""

    host: str
    port: int
    reason: str


class ExecutionResult(Value):
    """How one run ended and what it wrote."""

    run_id: str
    """Name of this run in the record."""
    status: Status
    exit_code: int | None
    """The program's exit code; null where it has none (killed by a signal, or unknown)."""
    signal: str | None = None
    """Name of the signal that ended the program, such as SIGSEGV; null where none did or it is unknown."""
    stdout: str
    """Standard output: head and tail are kept, one marker line where it was cut."""
    stderr: str
    """Standard error: head and tail are kept, one marker line where it was cut."""
    stdout_bytes: int | None
    """Bytes that the program wrote to stdout in all; null where unknown."""
    stderr_bytes: int | None
    """Bytes that the program wrote to stderr in all; null where unknown."""
    truncated: bool
    """True when anything of stdout or stderr is missing here."""
    duration_ms: int | None
    """Wall-clock time of the program, in milliseconds; null where unknown."""
    cpu_ms: int | None = None
    """CPU time of the program and its children, in milliseconds; null where unknown."""
    peak_memory_bytes: int | None = None
    """Most memory that the program held at once, in bytes; null where unknown."""
    artifacts: tuple[Artifact, ...] = ()
    """Files that came out."""
    artifacts_unnamed: int = 0
    """Files that came out and are not named here, for there are too many; `run://RUN_ID` names all."""
    artifacts_skipped: tuple[SkippedArtifact, ...] = ()
    """Files that did not, each with the reason; the first hundred of them."""
    artifacts_skipped_unnamed: int = 0
    """Files that did not, beyond those."""
    blocked: tuple[Blocked, ...] = ()
    """Connections that the egress policy refused."""
    hint: str = ""
    """What to do next, written by the sandbox alone, never from program output; empty where there is nothing
    to say."""
