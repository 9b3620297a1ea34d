"""One installation, in a sandbox of its own: the run's lockdown, more room, and the index's hosts alone to reach."""

from __future__ import annotations

import io
import re
import zipfile
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mcp_sandbox.capture import clean
from mcp_sandbox.config.sizes import format_size
from mcp_sandbox.dependencies.index import toml_line
from mcp_sandbox.dependencies.progress import Installing
from mcp_sandbox.dependencies.tree import Tree
from mcp_sandbox.egress.dial import SystemResolver, dial_direct
from mcp_sandbox.egress.proxy import EgressProxy
from mcp_sandbox.egress.record import EgressLimits
from mcp_sandbox.errors import PackagesUnavailable
from mcp_sandbox.guest.protocol import ArtifactLimits, agent_command
from mcp_sandbox.guest.session import Program, run_program
from mcp_sandbox.locks.lock import LockUnusable
from mcp_sandbox.locks.requirements import read_requirements
from mcp_sandbox.plan import ENVIRONMENT, spec
from mcp_sandbox.redact import Redactor
from mcp_sandbox.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.dependencies.index import Index
    from mcp_sandbox.dependencies.progress import Watch
    from mcp_sandbox.egress.record import EgressRecord
    from mcp_sandbox.guest.session import ArtifactSink, Stream
    from mcp_sandbox.locks.lock import Lock
    from mcp_sandbox.locks.script import Inline
    from mcp_sandbox.sandbox import Engine, SandboxSpec

BUILD_SECONDS = 1800.0
"""Longest time for one installation, or one resolution."""
MAX_FILES = 90_000
"""The agent looks at 100,000 at most."""
LIMITS = EgressLimits(requests=20_000, bytes_down=16 << 30)
BESIDE_BYTES = 512 << 20
"""Memory for pip itself, beside the files."""
MAX_LOCK_BYTES = 1 << 20
_WORDS_BYTES = 64 << 10
_LAST_WORDS = 1200
"""Characters of pip's that an error repeats."""


class Installer:
    """Installs and resolves for one workspace."""

    def __init__(self, policy: Policy, engine: Engine, index: Index, folder: Path) -> None:
        self._policy = policy
        self._engine = engine
        self._index = index
        self._folder = folder
        """Where what comes out is kept meanwhile."""

    @contextmanager
    def room(self, image: str, labels: Mapping[str, str]) -> Iterator[Tree]:
        """Yield what takes an installation on an image, given by its id; nothing of it is left afterwards."""
        tree = Tree(self._folder, image, labels)
        try:
            yield tree
        finally:
            tree.close()

    async def install(self, image: str, lock: Lock, *, shared: bool, tree: Tree, watch: Watch) -> BinaryIO:
        """Return a build context with what a lock names, for an image that is given by its id.

        Raises:
            PackagesUnavailable: It cannot be installed; pip's own words are part of the message.
            EngineError: The engine failed.
        """
        task = f"do install\nshared {shared:d}\nwhole {lock.whole:d}\n"
        following = _Following(watch, steps=lock.count)
        await self._run(image, task, lock.text, tree, following)
        return tree.finish()

    async def resolve(self, image: str, inline: Inline, *, watch: Watch) -> Lock:
        """Return the lock of what a program's block asks for, as the index is now.

        Raises:
            PackagesUnavailable: It cannot be had; pip's own words are part of the message.
            EngineError: The engine failed.
        """
        task = f"do resolve\nshared 0\npython {inline.requires_python or 'any'}\n"
        lock = _LockFile()
        await self._run(image, task, "\n".join(inline.dependencies), lock, _Following(watch, steps=0))
        try:
            return read_requirements(lock.content.decode("utf-8", "replace"), whole=True)
        except LockUnusable as error:
            raise PackagesUnavailable(f"what came out of the sandbox {error}.") from None

    async def _run(
        self, image: str, task: str, requirements: str, sink: ArtifactSink, following: _Following
    ) -> None:
        room = self._policy.dependencies.size_limit
        variables = self._index.environment() | (
            {} if self._policy.dependencies.source_builds == "allow" else {"PIP_ONLY_BINARY": ":all:"}
        )
        program = Program(
            language="python",
            code=_installer(),
            timeout_seconds=BUILD_SECONDS,
            head_bytes=_WORDS_BYTES,
            tail_bytes=_WORDS_BYTES,
            stdin=task.encode(),
            files=(
                ("pip.zip", _pip()),
                ("requirements.txt", requirements.encode()),
                ("ca.pem", self._index.ca_bundle),
            ),
            artifacts=ArtifactLimits(files=MAX_FILES, each_bytes=room, all_bytes=room),
            environment=tuple((name, value.encode()) for name, value in variables.items()),
        )
        refused: list[EgressRecord] = []

        def log(made: EgressRecord) -> None:
            following.connection(made)
            if made.verdict == "refused":
                refused.append(made)

        upstream = self._index.upstream
        proxy = EgressProxy(
            self._index.policy,
            resolve=None if upstream else SystemResolver(),
            dial=upstream or dial_direct,
            log=log,
            limits=LIMITS,
        )
        redactor = Redactor(self._index.secrets)
        streams = Streams(program, following, redactor)
        async with self._engine.launch(self._spec(image)) as sandbox:
            report = await run_program(sandbox, program, streams, sink, answer=proxy.serve)
            ending = await sandbox.ending() if report.end is None else None
        streams.settle(report.end)
        end = report.end
        if end is None or end.reason == "deadline":
            out_of_memory = ending is not None and bool(ending.out_of_memory)
            raise self._unfinished(report.lost_because, out_of_memory=out_of_memory)
        if end.exit_code != 0:
            said = (streams.stdout.kept() + b"\n" + streams.stderr.kept()).decode("utf-8", "replace")
            raise self._failed(said, refused)
        if report.artifacts_refused is None:
            raise PackagesUnavailable("the packages did not come out of the sandbox in time.")

    def _spec(self, image: str) -> SandboxSpec:
        """Return the sandbox of a run under this policy, on its bare image, with room to install in."""
        run = spec(self._policy)
        room = self._policy.dependencies.size_limit
        limits = run.limits.model_copy(
            update={
                "scratch_bytes": room,
                "fsize_bytes": room,
                "memory_bytes": room + run.limits.tmp_bytes + run.limits.shm_bytes + BESIDE_BYTES,
                "inodes": 4 * MAX_FILES,
            }
        )
        return run.model_copy(
            update={
                "image": image,
                "command": agent_command(egress=True),
                "environment": ENVIRONMENT,
                "limits": limits,
            }
        )

    def _unfinished(self, because: str, *, out_of_memory: bool) -> PackagesUnavailable:
        if out_of_memory:
            return PackagesUnavailable(
                "the packages take more memory to install than there is.", next_step=self._more_room()
            )
        return PackagesUnavailable(
            f"installing the packages did not end in order: {because or f'it took {BUILD_SECONDS:g} s'}.",
            next_step="Call again; `mcp-sandbox doctor` looks at the engine.",
        )

    def _failed(self, said: str, refused: list[EgressRecord]) -> PackagesUnavailable:
        """Return what to tell of pip's failure: its own words, and what they mean here."""
        words = clean(pips_words(said))
        return PackagesUnavailable(
            f"the packages cannot be installed. pip said: {words.rstrip('.')}.",
            next_step=self._next_step(said, refused),
        )

    def _next_step(self, said: str, refused: list[EgressRecord]) -> str:
        if refused:
            return refused[-1].reason
        if "No space left on device" in said:
            return self._more_room()
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return "Name the certificates of your network as `ca_bundle` under [workspaces.NAME.egress]."
        if "DO NOT MATCH THE HASHES" in said:
            return (
                "The index has other files than the lock names, so nothing was installed. Find out why before you "
                "lock anew."
            )
        if "No matching distribution found" in said:
            return (
                "Where the index has it, no wheel fits the image's Python and platform: lock another version, or build "
                f"it from source, {toml_line(self._policy, 'source_builds', 'allow')}"
            )
        return "Correct the lock or the index, then call again."

    def _more_room(self) -> str:
        more = format_size(2 * self._policy.dependencies.size_limit)
        return f"Allow more, {toml_line(self._policy, 'size_limit', more)}"


class _Following:
    """Follows an installation by pip's words."""

    def __init__(self, watch: Watch, *, steps: int) -> None:
        self.connection = watch.connection
        self._watch = watch
        # Each package is looked for and fetched; then all are installed, compiled and packed.
        self._steps = steps + 3 if steps else 0
        self._step = 0
        self._begun = b""

    def write(self, stream: Stream, data: bytes) -> None:
        """Take the next bytes; see `OutputSink.write`."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._begun = self._begun[-1000:]
        for raw in lines:
            line = clean(raw[:300].decode("utf-8", "replace")).strip()
            if line.startswith(("Collecting ", "Installing collected", "Compiling", "Packing")):
                self._step += 1
            if line:
                step = min(self._step, self._steps) if self._steps else 0
                self._watch.progress(Installing(step, self._steps, line))

    def write_tail(self, stream: Stream, data: bytes) -> None:
        """Take bytes of the end; see `OutputSink.write_tail`."""


class _LockFile:
    """Takes the one file that a resolution leaves."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._wanted = False

    def begin(self, path: bytes, size: int) -> None:
        """See `ArtifactSink.begin`."""
        self._wanted = path == b"lock" and size <= MAX_LOCK_BYTES

    def write(self, data: bytes) -> None:
        """See `ArtifactSink.write`."""
        if self._wanted:
            self.content += data

    def refused(self, path: bytes, reason: str) -> None:
        """See `ArtifactSink.refused`: what is missing is noticed when it is read."""


def pips_words(said: str) -> str:
    """Return what pip gave as the reason: its first errors, and the last warning before; else its last lines."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.match(r"ERROR: |error: ", line)]
    wanted = lines[-8:]
    if errors:  # of an index that cannot be reached the errors do not tell why
        warnings = [line for line in lines[: errors[0]] if line.startswith("WARNING: ")]
        wanted = [*warnings[-1:], *lines[errors[0] :]]
    words = " | ".join(wanted)
    return words if len(words) <= _LAST_WORDS else f"{words[: _LAST_WORDS - 1]}…"


@cache
def _installer() -> bytes:
    return files("mcp_sandbox.dependencies.inside").joinpath("installer.py").read_bytes()


@cache
def _pip() -> bytes:
    """Return this machine's pip as one file: an image need not have one, and each build is made by the same."""
    import pip

    root = Path(pip.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".exe"):
                archive.write(path, path.relative_to(root.parent))
    return packed.getvalue()
