"""From a request and a policy to what will run: pure, and every refusal of a call happens here.

Above: `executor`. Below: `config`, `guest`, `sandbox`.
"""

from __future__ import annotations

import json
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mcp_sandbox.certificates import TRUST_ENVIRONMENT, TRUST_FILE, trust_file
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.guest.protocol import PROXY_PORT, ArtifactLimits, agent_command
from mcp_sandbox.guest.session import Program
from mcp_sandbox.guest.terminal import Size
from mcp_sandbox.paths import is_plain_path
from mcp_sandbox.sandbox import Limits, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp_sandbox.config.policy import Policy
    from mcp_sandbox.locks.script import Inline
    from mcp_sandbox.model import ExecutionRequest, Network

MIN_TIMEOUT_SECONDS = 0.1
MAX_FILES = 1000
"""Files that one call may bring along."""
RESERVED = frozenset({"main.py"})
SHELL_CODE_BYTES = (128 << 10) - 1
"""The kernel's limit for one argument, and a command is one: `bash -c COMMAND`."""

ENVIRONMENT = (
    ("HOME", "/tmp"),  # noqa: S108  # inside the sandbox: the one place besides /scratch that takes a cache
    ("LANG", "C.UTF-8"),
    # What a program printed must be there when it is stopped: a buffer would die with it.
    ("PYTHONUNBUFFERED", "1"),
    ("TMPDIR", "/tmp"),  # noqa: S108
)

_PROXY = f"http://127.0.0.1:{PROXY_PORT}"
PROXY_ENVIRONMENT = tuple(
    (name, value)
    for upper, value in (
        ("ALL_PROXY", _PROXY),
        ("HTTP_PROXY", _PROXY),
        ("HTTPS_PROXY", _PROXY),
        ("NO_PROXY", "localhost,127.0.0.1,::1"),
    )
    for name in (upper, upper.lower())  # programs differ in which one they read
)


class Plan(NamedTuple):
    """What will run, in which sandbox."""

    spec: SandboxSpec
    program: Program
    network: Network
    """Whether it may reach the hosts that the policy allows, or none."""
    inline: Inline | None = None
    """Packages that the program names itself, and finds alone; None where it names none."""


def plan(
    request: ExecutionRequest,
    policy: Policy,
    secrets: Mapping[str, bytes] = MappingProxyType({}),
    authorities: Sequence[bytes] = (),
) -> Plan:
    """Return what to run for this request under this policy.

    `secrets` are variables of this run alone, `authorities` certificates that it trusts beside the public ones.

    Raises:
        RequestRefused: The policy does not allow it, or it is no program.
    """
    return Plan(
        spec(policy),
        _program(request, policy, secrets, authorities),
        _network(request, policy),
        _inline(request, policy),
    )


def spec(policy: Policy) -> SandboxSpec:
    """Return the sandbox of every run under this policy; what it sees of the workspace is up to `view`."""
    return SandboxSpec(
        image=policy.image,
        runtime=policy.runtime,
        command=agent_command(egress=bool(policy.egress.allow)),
        environment=(
            *ENVIRONMENT,
            *(PROXY_ENVIRONMENT if policy.egress.allow else ()),
            *(TRUST_ENVIRONMENT if trusts_more(policy) else ()),
        ),
        user=policy.user,
        limits=Limits(
            memory_bytes=policy.memory,
            cpus=policy.cpus,
            pids=policy.pids_limit,
            scratch_bytes=policy.scratch_size,
            tmp_bytes=policy.tmp_size,
            shm_bytes=policy.shm_size,
            nofile=policy.nofile,
            fsize_bytes=policy.scratch_size,
            inodes=policy.inodes,
        ),
        unsafe_allow_unconfined_seccomp=policy.unsafe_allow_unconfined_seccomp,
    )


def trusts_more(policy: Policy) -> bool:
    """Tell whether runs under this policy are given authorities to trust."""
    return bool(policy.egress.allow and (policy.egress.ca_bundle or policy.bound_hosts))


def ready_spec(policy: Policy) -> SandboxSpec:
    """Return a sandbox that serves `spec` as well, with what takes long done before the program comes."""
    command = agent_command(policy.preload, egress=bool(policy.egress.allow))
    return spec(policy).model_copy(update={"command": command})


def _program(
    request: ExecutionRequest, policy: Policy, secrets: Mapping[str, bytes], authorities: Sequence[bytes]
) -> Program:
    tail = policy.output_limit // 4
    return Program(
        language=request.language,
        code=_code(request, policy),
        timeout_seconds=_timeout(request, policy),
        head_bytes=policy.output_limit - tail,
        tail_bytes=tail,
        stdin=request.stdin,
        files=(*_files(request, policy), *_trusted(policy, authorities)),
        artifacts=ArtifactLimits(
            files=policy.artifact_count,
            each_bytes=policy.artifact_limit,
            all_bytes=policy.artifact_total_limit,
        ),
        environment=tuple(secrets.items()) + _terminal_environment(request),
        terminal=Size(request.terminal.rows, request.terminal.columns) if request.terminal else None,
    )


def _terminal_environment(request: ExecutionRequest) -> tuple[tuple[str, bytes], ...]:
    return (("TERM", request.terminal.kind.encode("ascii")),) if request.terminal else ()


def _code(request: ExecutionRequest, policy: Policy) -> bytes:
    name = "code" if request.language == "python" else "command"
    if not request.code.strip():
        raise RequestRefused(f"`{name}` is empty.", next_step=f"Send the program as `{name}`.")
    try:
        code = request.code.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestRefused(
            f"`{name}` holds a lone surrogate at character {error.start}, which is no text.",
            next_step="Write the character as an escape sequence of the language.",
        ) from None
    limit = policy.code_limit
    if request.language == "shell":
        limit = min(limit, SHELL_CODE_BYTES)
        if b"\0" in code:
            raise RequestRefused("`command` holds a NUL character.", next_step="Write it as $'\\0' or \\x00.")
    if len(code) > limit:
        raise RequestRefused(
            f"`{name}` has {len(code):,} bytes; at most {limit:,} are taken.",
            next_step="Shorten the program; large data belongs into the workspace folder.",
        )
    return code


def _files(request: ExecutionRequest, policy: Policy) -> tuple[tuple[str, bytes], ...]:
    if len(request.files) > MAX_FILES:
        raise RequestRefused(
            f"`files` has {len(request.files)} entries; at most {MAX_FILES} are taken.",
            next_step="Send fewer, or one archive.",
        )
    size = len(request.stdin) + sum(len(content) for _, content in request.files)
    if size > policy.input_limit:
        raise RequestRefused(
            f"`files` and `stdin` come to {size:,} bytes; at most {policy.input_limit:,} are taken.",
            next_step="Put large data into the workspace folder.",
        )
    # Where a person sits at a terminal, the program of that name is not what runs: it is there to be looked at.
    taken = set() if request.terminal else set(RESERVED)
    for path, _ in request.files:
        if not is_plain_path(path) or path in taken:
            raise RequestRefused(
                f"`files` holds a path that is not usable: {path[:100]!r}.",
                next_step="Use relative paths of printable characters without `..`; main.py is the program.",
            )
        taken.add(path)
    return request.files


def _network(request: ExecutionRequest, policy: Policy) -> Network:
    if request.network == "allowlist" and not policy.egress.allow:
        raise RequestRefused(
            "this workspace allows no host, so a call cannot ask for any.",
            next_step="Leave `network` out; `mcp-sandbox policy check HOST` tells the person how to allow one.",
        )
    return request.network or ("allowlist" if policy.egress.allow else "none")


def _trusted(policy: Policy, authorities: Sequence[bytes]) -> tuple[tuple[str, bytes], ...]:
    """Return the file of authorities; it is there, too, where the variables name it and nothing was added."""
    return ((TRUST_FILE, trust_file(*authorities)),) if trusts_more(policy) else ()


def _inline(request: ExecutionRequest, policy: Policy) -> Inline | None:
    """Return the packages that a Python program names itself, in a `# /// script` block."""
    if request.language != "python" or "# /// script" not in request.code:
        return None
    from packaging.utils import canonicalize_name  # most programs name none

    from mcp_sandbox.locks.script import BlockInvalid, inline_dependencies

    try:
        inline = inline_dependencies(request.code)
    except BlockInvalid as error:
        raise RequestRefused(
            f"the program's `# /// script` block {error}.", next_step="Correct it, or leave it out."
        ) from None
    if inline is None:
        return None
    allowed = policy.dependencies.inline == "allow"
    known = {canonicalize_name(name) for name in policy.dependencies.inline_names if name != "*"}
    refused = [name for name in inline.names if not allowed or (name not in known and not _any_name(policy))]
    if refused:
        names = json.dumps([*sorted(known), *refused])
        line = f"inline_names = {names}" if allowed else f'inline = "allow", inline_names = {names}'
        raise RequestRefused(
            f"the program's `# /// script` block names packages that this workspace does not allow: "
            f"{', '.join(refused)}.",
            next_step="Leave the block out to run with what is installed. The user can allow it in the configuration, "
            f"under [workspaces.{policy.workspace}.dependencies]: {line}",
        )
    return inline


def _any_name(policy: Policy) -> bool:
    return "*" in policy.dependencies.inline_names


def _timeout(request: ExecutionRequest, policy: Policy) -> float:
    seconds = request.timeout_seconds
    if seconds is None:
        return policy.timeout_seconds
    if not math.isfinite(seconds) or not MIN_TIMEOUT_SECONDS <= seconds <= policy.max_timeout_seconds:
        raise RequestRefused(
            f"`timeout_seconds` must be from {MIN_TIMEOUT_SECONDS:g} to {policy.max_timeout_seconds:g}, "
            f"not {seconds:g}.",
            next_step="Ask for a time in that range; the person can raise max_timeout_seconds in the "
            "configuration.",
        )
    return seconds
