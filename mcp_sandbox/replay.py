"""Run a recorded program again, in a fresh sandbox, and tell what came out differently.

Above: `cli`. Below: `app`, `audit`, `config`. A replay never allows more than the configuration does now, whatever
it did then; what differs beforehand is said beforehand.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio.to_thread
from pydantic import ValidationError

from mcp_sandbox.app import image_now, running
from mcp_sandbox.audit.archive import read_archive
from mcp_sandbox.config.policy import Configuration, Policy, SecretUse
from mcp_sandbox.config.profiles import looser
from mcp_sandbox.config.settings import PolicySettings, WorkspaceSettings, written
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.manifest import ManifestTaker, changes
from mcp_sandbox.model import ExecutionRequest
from mcp_sandbox.view import Folders

if TYPE_CHECKING:
    from mcp_sandbox.audit.query import RunRecord
    from mcp_sandbox.audit.store import AuditStore
    from mcp_sandbox.model import ExecutionResult

MAX_DIFF_LINES = 60
_NOT_OF_THE_PROGRAM = {
    "workspace",
    "path",
    "mounts",
    "egress",
    "dependencies",
    "profile",
    "image",
    "runtime",
    "user",
}
_IMAGE_ID = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Recorded:
    """A run as the record has it: enough to run it again, and to compare."""

    run: RunRecord
    result: ExecutionResult
    stdout: bytes
    stderr: bytes
    stdin: bytes
    files: tuple[tuple[str, bytes], ...]
    manifest: bytes | None

    @property
    def facts(self) -> dict[str, Any]:
        """What was noted of the sandbox: image, runtime, engine."""
        closing = self.run.closing or {}
        facts: dict[str, Any] = closing.get("data", {}).get("facts") or {}
        return facts


@dataclass
class Comparison:
    """A run and its replay."""

    original: str
    replay: str
    differences: list[str] = field(default_factory=list)
    """In words; a difference of text as a unified diff."""

    @property
    def same(self) -> bool:
        """Tell whether status, exit, output and files were the same."""
        return not self.differences


async def recorded(store: AuditStore, prefix: str) -> Recorded:
    """Read back one run.

    Raises:
        RequestRefused: There is no such run, or it never ran.
        AuditError: The record cannot be read.
    """
    run = await store.get(prefix)
    run_id = run.summary.run_id
    result = await store.result(run_id)
    if result is None:
        raise RequestRefused(
            f"the run {run_id} has no result: it was refused, failed, or has not ended.",
            next_step="Choose another; `mcp-sandbox runs list` shows them.",
        )
    paths = [role.removeprefix("file:") for role in run.contents if role.startswith("file:")]
    return Recorded(
        run=run,
        result=result,
        stdout=await store.content(run_id, "stdout") or b"",
        stderr=await store.content(run_id, "stderr") or b"",
        stdin=await store.content(run_id, "stdin") or b"",
        files=tuple([(path, await store.content(run_id, f"file:{path}") or b"") for path in sorted(paths)]),
        manifest=await store.content(run_id, "manifest"),
    )


def recorded_elsewhere(file: BinaryIO) -> Recorded:
    """Read a run from the tar file that `runs export` writes; all of it is checked, and none of it trusted.

    Raises:
        RequestRefused: It is no such file, it was altered or cut short, or the run never ran.
    """
    archived = read_archive(file)
    if archived.result is None:
        raise RequestRefused(
            "the exported run has no result: it was refused, failed, or had not ended.",
            next_step="Export another.",
        )
    contents = archived.contents
    return Recorded(
        run=archived.run,
        result=archived.result,
        stdout=contents.get("stdout", b""),
        stderr=contents.get("stderr", b""),
        stdin=contents.get("stdin", b""),
        files=tuple(
            (role.removeprefix("file:"), contents[role])
            for role in sorted(contents)
            if role.startswith("file:")
        ),
        manifest=contents.get("manifest"),
    )


def policy_now(original: Recorded, configuration: Configuration) -> tuple[Policy, list[str]]:
    """Return the policy for a replay, and what of it differs from then: never looser than the configuration's.

    Raises:
        RequestRefused: The recorded policy cannot be read by this version.
    """
    now = configuration.policy
    try:
        then = Policy.model_validate(original.run.policy, strict=False)
    except ValidationError:
        raise RequestRefused(
            "the recorded policy has keys or values that this version does not know.",
            next_step="Replay it with the version that recorded it.",
        ) from None
    differences: list[str] = []
    values = dict(then)
    for key in PolicySettings.model_fields:
        if key in _NOT_OF_THE_PROGRAM or getattr(then, key) == getattr(now, key):
            continue
        if looser(key, getattr(then, key), getattr(now, key)):
            values[key] = getattr(now, key)
            said = written(PolicySettings, key, getattr(then, key))
            differences.append(f"{key}: {said} then, {written(PolicySettings, key, values[key])} now")
    for key in ("path", "mounts", "egress", "runtime", "user"):
        values[key] = getattr(now, key)
        if getattr(then, key) != values[key]:
            differences.append(f"{key}: {getattr(then, key)!s} then, {values[key]!s} now")
    differences += [
        f"the secret {name}: given then, not in the workspace's configuration now"
        for name in then.secrets
        if name not in now.secrets
    ]
    if then.dependencies != now.dependencies:
        differences.append(f"dependencies: {_written(then)} then, {_written(now)} now")
    values["dependencies"] = then.dependencies  # they are in the image of then, and nothing is installed
    differences += [
        f"the secret {name}: bound to other hosts or tools then"
        for name in then.secrets
        if name in now.secrets and _use(then, name) != _use(now, name)
    ]
    values["secrets"] = tuple(name for name in then.secrets if name in now.secrets)
    values["secret_use"] = tuple(use for use in now.secret_use if use.name in then.secrets)
    values |= {"workspace": now.workspace, "profile": now.profile}
    values["image"] = _image(original)
    try:
        return Policy(**values), differences
    except ValidationError as error:
        said = "; ".join(
            str(problem["msg"]) for problem in error.errors(include_url=False, include_input=False)
        )
        raise RequestRefused(
            f"the limits of then and those of now cannot hold together: {said}.",
            next_step="Raise those of now in the configuration.",
        ) from None


def _written(policy: Policy) -> str:
    return written(WorkspaceSettings, "dependencies", policy.dependencies)


def _use(policy: Policy, name: str) -> list[SecretUse]:
    return [use for use in policy.secret_use if use.name == name]


def _image(original: Recorded) -> str:
    """Return the id of the image that it ran in: a name may stand for another one by now, here or elsewhere."""
    image = str(original.facts.get("image", ""))
    if not _IMAGE_ID.fullmatch(image):
        raise RequestRefused("the record does not tell which image it ran in.", next_step="Run it anew.")
    return image


async def image_changes(original: Recorded, policy: Policy, configuration: Configuration) -> list[str]:
    """Return in words what has become of the image.

    Raises:
        EngineError: The engine failed.
    """
    name = configuration.policy.image
    if not await image_now(configuration, os.environ, policy.image):
        return [f"the image {policy.image} is gone from the engine"]
    base = str((original.facts.get("packages") or {}).get("base") or policy.image)
    now = await image_now(configuration, os.environ, name)
    if now == base:
        return []
    return [f"image: {base} then; {name}, as configured, is {now or 'not there'} now"]


def taken_out(original: Recorded) -> list[str]:
    """Return in words which secrets stood in what went in, and so are not in what can be replayed."""
    given = [original.run.code.encode("utf-8", "surrogatepass"), original.stdin, *map(_whole, original.files)]
    return [
        f"the secret {name}: its value stood in the program, stdin or files, and is not on the record"
        for name in original.run.opening["data"].get("environment", ())
        if any(f"[secret {name}]".encode() in data for data in given)
    ]


def _whole(file: tuple[str, bytes]) -> bytes:
    return file[0].encode("utf-8", "surrogatepass") + b"\0" + file[1]


async def workspace_changes(original: Recorded, policy: Policy, configuration: Configuration) -> list[str]:
    """Return in words which of the workspace's files, as far as runs see them, are not what they were.

    Raises:
        RequestRefused: There is too much to look at.
    """
    if original.manifest is None or not policy.path:
        return []
    view = await Folders(policy, hiding=Path(configuration.audit.path, "hidden")).look()
    now = await anyio.to_thread.run_sync(ManifestTaker(policy.path).take, view.hidden)
    complete = now.complete and original.facts.get("workspace_files", {}).get("complete", True)
    said = changes(original.manifest, now.lines, complete=complete)
    if not complete:
        said.append("not all files of the workspace were listed: what is new or gone is not told")
    return said


async def replay(original: Recorded, policy: Policy, configuration: Configuration) -> Comparison:
    """Run it again under this policy and compare.

    Raises:
        SandboxError: It could not be run.
    """
    if original.run.summary.origin == "shell":
        raise RequestRefused(
            "a person sat at the terminal of that run, and what was typed there is not recorded.",
            next_step="Look at what it showed: `mcp-sandbox runs output`.",
        )
    request = ExecutionRequest(
        language=original.run.opening["data"]["language"],
        code=original.run.code,
        timeout_seconds=min(
            original.run.opening["data"]["timeout_seconds"] or policy.timeout_seconds,
            policy.max_timeout_seconds,
        ),
        stdin=original.stdin,
        files=original.files,
        # What it asked to reach more than that is the default, and up to the policy of now.
        network="none" if original.run.opening["data"].get("network") == "none" else None,
    )
    again = configuration.model_copy(update={"policy": policy})
    async with running(again, os.environ, origin="replay") as executor:
        result = await executor.execute(request, replay_of=original.run.summary.run_id)
        stdout = await executor.record.content(result.run_id, "stdout") or b""
        stderr = await executor.record.content(result.run_id, "stderr") or b""
    return compare(original.result, (original.stdout, original.stderr), result, (stdout, stderr))


def compare(
    one: ExecutionResult,
    one_output: tuple[bytes, bytes],
    other: ExecutionResult,
    other_output: tuple[bytes, bytes],
) -> Comparison:
    """Tell what differs between the ends, outputs and files of two runs."""
    comparison = Comparison(one.run_id, other.run_id)
    for key in ("status", "exit_code", "signal"):
        if getattr(one, key) != getattr(other, key):
            comparison.differences.append(f"{key}: {getattr(one, key)} and {getattr(other, key)}")
    for name, before, after in zip(("stdout", "stderr"), one_output, other_output, strict=True):
        if before != after:
            comparison.differences.append(f"{name} differs:\n{_diff(before, after)}")
    before_files = {file.path: file.sha256 for file in one.artifacts}
    after_files = {file.path: file.sha256 for file in other.artifacts}
    for path in sorted(before_files.keys() | after_files.keys()):
        if path not in after_files:
            comparison.differences.append(f"file {path}: only in the first")
        elif path not in before_files:
            comparison.differences.append(f"file {path}: only in the second")
        elif before_files[path] != after_files[path]:
            comparison.differences.append(f"file {path}: other content")
    return comparison


def _diff(before: bytes, after: bytes) -> str:
    lines = list(
        difflib.unified_diff(
            before.decode("utf-8", "replace").splitlines(),
            after.decode("utf-8", "replace").splitlines(),
            "then",
            "now",
            lineterm="",
            n=1,
        )
    )
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"… and {len(lines) - MAX_DIFF_LINES} more lines"]
    return "\n".join(lines) or "(only in line ends or bytes that are no text)"
