"""The effective policy of one workspace, and the configuration that it is part of.

Above: everything that plans, runs, records or shows. Below: the keys (`settings`) alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping  # noqa: TC003 - pydantic reads it when the class is made
from pathlib import Path  # noqa: TC003 - pydantic reads it when the class is made
from typing import Annotated, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from mcp_sandbox.config.settings import (
    AuditSettings,
    DependencySettings,
    EgressSettings,
    EngineSettings,
    Mounts,
    PolicySettings,
    SecretName,
    SecretNames,
    SecretSettings,
    ServerSettings,
    Settings,
    ToolName,
    WorkspaceName,
    user_ids,
)
from mcp_sandbox.config.sizes import format_size
from mcp_sandbox.model import Language, Value


def _numeric(user: str) -> str:
    user_ids(user)
    return user


def contradictions(settings: PolicySettings) -> list[tuple[tuple[str, ...], str]]:
    """Return what keys of one policy cannot be true together: the keys, and what is wrong in words."""
    found: list[tuple[tuple[str, ...], str]] = []
    if settings.timeout_seconds > settings.max_timeout_seconds:
        found.append(
            (
                ("timeout_seconds", "max_timeout_seconds"),
                f"timeout_seconds ({settings.timeout_seconds:g}) is more than max_timeout_seconds "
                f"({settings.max_timeout_seconds:g}): lower the first or raise the second",
            )
        )
    keys = ["scratch_size", "tmp_size", "shm_size"]
    if settings.workspace_transfer == "copy":
        keys.append("workspace_copy_limit")
    files = sum(getattr(settings, key) for key in keys)
    if 2 * files > settings.memory:
        # A tmpfs page cannot be reclaimed. Where full file systems leave no memory, the program is killed and
        # then whatever else lives in the sandbox; a person would expect "no space left on device".
        found.append(
            (
                ("memory", *keys),
                f"{', '.join(keys[:-1])} and {keys[-1]} come to {format_size(files)}, more than half of memory "
                f"({format_size(settings.memory)}), and what is written there is held in memory: "
                f"set memory to at least {format_size(2 * files)}, "
                f"or the {'three' if len(keys) == 3 else 'four'} to {format_size(settings.memory // 2)} together",
            )
        )
    return found


class SecretUse(Settings):
    """Who gets a secret."""

    name: SecretName
    hosts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Hosts that alone get it, while programs hold a placeholder; empty where programs get it."""
    tools: Annotated[tuple[ToolName, ...], Field(strict=False)] = get_args(ToolName)
    """Tools whose runs get it."""


class Policy(PolicySettings):
    """What every run of one workspace may use; nothing in it is left to be decided."""

    workspace: WorkspaceName = "default"
    path: str | None = None
    """Folder that programs see, read-only, at `/workspace`: absolute, no symlinks in it; None for none."""
    mounts: Mounts = ()
    """More folders that programs see, read-only; each source absolute, no symlinks in it."""
    egress: EgressSettings = EgressSettings()
    """Hosts that programs may reach."""
    dependencies: DependencySettings = DependencySettings()
    """Packages that programs find installed; the lock's path is absolute."""
    secrets: SecretNames = ()
    """Names of the secrets that programs get as environment variables."""
    secret_use: Annotated[tuple[SecretUse, ...], Field(strict=False)] = ()
    """Of secrets that not every run gets as they are: which hosts alone they go to, and which tools' runs."""
    user: Annotated[str, AfterValidator(_numeric)] = "1000:1000"
    """Numeric `uid:gid` of programs, never root."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        for _, problem in contradictions(self):
            raise ValueError(problem)
        return self

    def secrets_of(self, language: Language) -> dict[str, SecretUse]:
        """Return the secrets that runs of a language get, and how."""
        uses = {name: SecretUse(name=name) for name in self.secrets}
        uses |= {use.name: use for use in self.secret_use}
        return {name: use for name, use in uses.items() if f"execute_{language}" in use.tools}

    @property
    def bound_hosts(self) -> tuple[str, ...]:
        """Hosts that secrets are bound to."""
        return tuple(host for use in self.secret_use for host in use.hosts)

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Names of the keys that weaken the sandbox here."""
        return tuple(
            key for key in type(self).model_fields if key.startswith("unsafe_") and getattr(self, key)
        )

    def policy_hash(self) -> str:
        """Return the SHA-256 of this policy as canonical JSON, in lower-case hex."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


class Configuration(Value):
    """Everything that was decided before the first call, and where each part of it was said."""

    file: Path | None = None
    """The configuration file that was read; None where there is none."""
    engine: EngineSettings = EngineSettings()
    server: ServerSettings = ServerSettings()
    audit: AuditSettings = AuditSettings()
    """`path` is absolute here, never empty, once `load_configuration` made it."""
    policy: Policy = Field(default_factory=Policy)
    secrets: Mapping[SecretName, SecretSettings] = Field(default_factory=dict, repr=False)
    """Where the policy's secrets come from. Not in the policy: the record keeps that, and it keeps names alone."""
    sources: Mapping[str, str] = Field(default_factory=dict)
    """Where each value came from: a policy key (`memory`) or `table.key` (`engine.host`) to words such as
    "built in", "profile untrusted" or "/home/me/.config/mcp-sandbox/config.toml line 12 [defaults]"."""
