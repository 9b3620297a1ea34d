"""What would happen to a connection, and which line of which file decides; nothing is connected.

Above: `cli`. Below: `workspace` and `egress`, whose own policy and address check give the answer.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from mcp_sandbox.egress import addresses
from mcp_sandbox.egress.policy import EgressPolicy, Scheme
from mcp_sandbox.model import Value

if TYPE_CHECKING:
    from mcp_sandbox.egress.dial import Resolve
    from mcp_sandbox.egress.policy import Decision
    from mcp_sandbox.workspace import Found


class PolicyCheck(Value):
    """The answer to: may runs of this workspace reach that host and port?"""

    workspace: str
    host: str
    port: int
    allowed: bool
    """True where a connection would be tried."""
    why: str
    rule: str | None
    """The entry that fits; null where none does."""
    file: str | None
    """The configuration file; null where there is none."""
    line: int | None
    """Line of that entry, or of the list that lacks one; null where there is neither."""
    addresses: tuple[str, ...] = ()
    """What the name resolves to now; empty where it was not looked up."""
    toml: str = ""
    """What would allow it in the configuration; empty where it is allowed, or nothing would."""


async def check(
    found: Found, host: str, port: int, scheme: Scheme | None, *, resolve: Resolve
) -> PolicyCheck:
    """Decide as the proxy would, for a host as it is asked for; `scheme` None takes either one."""
    policy = EgressPolicy.parse(found.egress.allow, workspace=found.name)
    decision = policy.decide(host, port, scheme)
    answers: tuple[str, ...] = ()
    # An upstream proxy is given names, and resolves them itself.
    if decision.allowed and decision.address is None and not found.egress.upstream_proxy:
        decision, answers = await _resolved(found, policy, decision, resolve)
    return PolicyCheck(
        workspace=found.name,
        host=decision.host,
        port=port,
        allowed=decision.allowed,
        why=decision.why,
        rule=decision.rule,
        file=str(found.file) if found.file else None,
        line=_line(found, decision.rule),
        addresses=answers,
        toml=_toml(found, policy, decision.missing),
    )


async def _resolved(
    found: Found, policy: EgressPolicy, decision: Decision, resolve: Resolve
) -> tuple[Decision, tuple[str, ...]]:
    """Return the decision about a name once it has resolved, and what to."""
    seconds = found.egress.connect_seconds
    try:
        with anyio.fail_after(seconds):
            answers = await resolve(decision.host)
    except TimeoutError:
        why = f"{decision.host} did not resolve within {seconds:g} s."
        return replace(decision, allowed=False, why=why), ()
    except OSError:
        answers = ()
    if not answers:
        return replace(decision, allowed=False, why=f"{decision.host} has no address."), ()
    decision = addresses.decide_on(decision, answers, policy, is_own=addresses.is_own)
    return decision, tuple(map(str, answers))


def _line(found: Found, rule: str | None) -> int | None:
    """Return the line of the entry that fits, or of the list where it would stand."""
    if not found.entry or not found.egress.allow:
        return None
    document, keys = found.user_file.document, ("workspaces", found.entry, "egress", "allow")
    return document.line(*keys) if rule is None else document.line_of_item(rule, *keys)


def _toml(found: Found, policy: EgressPolicy, missing: str) -> str:
    """Return the tables that would allow what is missing; a workspace that has none is made one."""
    if not missing:
        return ""
    lines: list[str] = []
    name = found.entry
    if name is None:
        name = found.name if found.folder else "example"
        lines += [f"[workspaces.{name}]"]
        lines += [f"path = {json.dumps(str(found.folder), ensure_ascii=False)}"] if found.folder else []
    return "\n".join([*lines, f"[workspaces.{name}.egress]", policy.allow_with(missing)])
