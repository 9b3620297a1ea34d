"""What several places say, laid over each other until one policy is left.

Lowest first: built in, the profile, `[defaults]`, the workspace's entry, the folder's own file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_sandbox.config.policy import contradictions
from mcp_sandbox.config.problems import Problem
from mcp_sandbox.config.profiles import HIDING, PROFILES, looser
from mcp_sandbox.config.settings import PolicySettings, written_toml
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp_sandbox.config.settings import Profile
    from mcp_sandbox.config.toml import Document, KeyPath


@dataclass(frozen=True)
class Layer:
    """The keys that one table of one file sets."""

    document: Document
    table: KeyPath
    """Where the keys stand in it; empty for its top level."""
    settings: PolicySettings

    @property
    def values(self) -> dict[str, Any]:
        """Return the policy's keys that are written there."""
        return {
            key: getattr(self.settings, key)
            for key in PolicySettings.model_fields
            if key in self.settings.model_fields_set
        }

    def line(self, key: str) -> int | None:
        """Return the line of a key."""
        return self.document.line(*self.table, key)

    def source(self, key: str) -> str:
        """Say where a key is written."""
        return source(self.document, *self.table, key)


@dataclass(frozen=True)
class Resolved:
    """What layers come to: one policy's values, where each was said, and what is wrong with them."""

    values: dict[str, Any]
    sources: dict[str, str]
    problems: list[Problem]
    """All of them in the file of the topmost layer, which is the one to change."""


def source(document: Document, *key_path: str) -> str:
    """Say where a key is written: file, line, table."""
    line = document.line(*key_path)
    table = f" [{'.'.join(key_path[:-1])}]" if key_path[:-1] else ""
    return document.file + (f" line {line}" if line else "") + table


def resolve(layers: Sequence[Layer]) -> Resolved:
    """Return what the layers, lowest first, come to.

    A profile's values bind the layer that chose it and those above. The keys below were written without it in
    mind: where they are looser they give way, where they are tighter they stay.
    """
    chosen = max((i for i, layer in enumerate(layers) if "profile" in layer.values), default=-1)
    profile: Profile = layers[chosen].settings.profile if chosen >= 0 else "standard"
    bounds = PROFILES[profile]
    values = {**dict(PolicySettings()), **bounds}
    sources = {key: f"profile {profile}" if key in bounds else "built in" for key in values}
    problems: list[Problem] = []
    for index, layer in enumerate(layers):
        for key, value in layer.values.items():
            if key == "mask":  # added: who hides one more file does not mean to show the others
                value = tuple(dict.fromkeys((*values[key], *value)))
            if key not in bounds or not looser(key, value, bounds[key]):
                values[key], sources[key] = value, layer.source(key)
            elif index >= chosen:
                words = too_loose(key, value, bounds[key], f"the {profile} profile")
                problems.append(Problem(words, layer.line(key)))
    for keys, words in contradictions(PolicySettings(**values)):
        problems.append(Problem(words, _line_of_any(keys, layers)))
    if not values["user"]:
        values["user"] = own_ids()
        sources["user"] += " (your own ids)"
    return Resolved(values, sources, problems)


def too_loose(key: str, value: object, bound: object, whose: str) -> str:
    """Say that a key's value allows more than somebody's bound does."""
    said = visible(written_toml(PolicySettings, key, value), limit=200)
    allowed = visible(written_toml(PolicySettings, key, bound), limit=200)
    at_most = "at most" if isinstance(bound, (int, float)) and not isinstance(bound, bool) else "only"
    if key in HIDING:
        at_most = "at least"
    return f"`{key} = {said}` is looser than {whose} allows: {at_most} {allowed}"


def own_ids() -> str:
    """Return the invoking user's "uid:gid", or another than root's where root invokes."""
    uid, gid = os.getuid(), os.getgid()
    return f"{uid}:{gid or uid}" if uid else "1000:1000"


def _line_of_any(keys: Sequence[str], layers: Sequence[Layer]) -> int | None:
    for layer in reversed(layers):
        for key in keys:
            if key in layer.values:
                return layer.line(key)
    return None
