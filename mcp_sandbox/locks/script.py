"""The packages that a program asks for itself, in a `# /// script` block (PEP 723)."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from mcp_sandbox.visible import visible

MAX_DEPENDENCIES = 100

# As the standard writes it.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


class BlockInvalid(ValueError):
    """A `# /// script` block cannot be understood; in words that follow its name."""


@dataclass(frozen=True, slots=True)
class Inline:
    """What a program's block asks for."""

    dependencies: tuple[str, ...]
    """Requirements in one form and order."""
    names: tuple[str, ...]
    """Canonical names of the packages."""
    requires_python: str = ""

    @property
    def sha256(self) -> str:
        """Lower-case hex of all that it says."""
        text = "\n".join((self.requires_python, *self.dependencies))
        return hashlib.sha256(text.encode()).hexdigest()


def inline_dependencies(code: str) -> Inline | None:
    """Return what a program asks for; None where it asks for no packages.

    Raises:
        BlockInvalid: What it has is no proper block.
    """
    if "# /// script" not in code:
        return None
    blocks = [match for match in _BLOCK.finditer(code.replace("\r\n", "\n")) if match["type"] == "script"]
    if len(blocks) > 1:
        raise BlockInvalid("is there more than once")
    if not blocks:
        return None
    content = "".join(
        line[2:] if line.startswith("# ") else line[1:] for line in _lines(blocks[0]["content"])
    )
    try:
        table = tomllib.loads(content)
    except (ValueError, RecursionError):
        raise BlockInvalid("is no valid TOML") from None
    dependencies = table.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise BlockInvalid("has `dependencies` that are no list of text")
    if len(dependencies) > MAX_DEPENDENCIES:
        raise BlockInvalid(f"names {len(dependencies)} packages; at most {MAX_DEPENDENCIES} are taken")
    requirements = [_requirement(each) for each in dependencies]
    if not requirements:
        return None
    return Inline(
        dependencies=tuple(sorted({str(each) for each in requirements})),
        names=tuple(sorted({canonicalize_name(each.name) for each in requirements})),
        requires_python=_requires_python(table.get("requires-python", "")),
    )


def _lines(content: str) -> list[str]:
    return content.splitlines(keepends=True)


def _requirement(text: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise BlockInvalid(f"asks for {visible(text, limit=80)!r}, which is no requirement") from None
    if requirement.url:
        name = visible(requirement.name, limit=60)
        raise BlockInvalid(f"asks for {name} from a place of its own; packages come from the index alone")
    return requirement


def _requires_python(said: object) -> str:
    try:
        return str(SpecifierSet(str(said)))
    except InvalidSpecifier:
        raise BlockInvalid("has a `requires-python` that is no version specifier") from None
