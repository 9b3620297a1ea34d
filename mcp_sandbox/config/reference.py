"""The keys as documents: the example file, and the tables of docs/configuration.md.

`python -m mcp_sandbox.config.reference` writes both anew; a test holds them to this.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin

from mcp_sandbox.config.profiles import PROFILES
from mcp_sandbox.config.settings import (
    TABLES,
    Between,
    DependencySettings,
    EgressSettings,
    MountSettings,
    PolicySettings,
    SecretSettings,
    WorkspaceSettings,
    written,
    written_toml,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from mcp_sandbox.config.settings import Settings

BEGIN, END = "<!-- keys: written by mcp_sandbox.config.reference -->\n", "<!-- end of keys -->\n"

_PREAMBLE = """\
# mcp-sandbox: every key, each with its default. Take the # off a key to change it.
# This file goes to ~/.config/mcp-sandbox/config.toml (on macOS to
# ~/Library/Application Support/mcp-sandbox/config.toml), or wherever --config or MCP_SANDBOX_CONFIG says.
# `mcp-sandbox config check` tells what is wrong with it, `mcp-sandbox config show` what it comes to.
"""


def example_toml() -> str:
    """Return a configuration file that names every key with its default and changes none."""
    return _PREAMBLE + "".join(_example_table(header, table) for header, table in TABLES.items())


def _example(table: type[Settings]) -> list[str]:
    """Return a table as somebody would write it, of which the defaults alone say little; empty for the others."""
    if table is EgressSettings:
        return [
            "[workspaces.example.egress]",
            'allow = ["api.example.com"]',
            'upstream_proxy = ""',
            'ca_bundle = ""',
            *(
                f"{key} = {written_toml(table, key, field.default)}"
                for key, field in table.model_fields.items()
                if isinstance(field.default, int | float)
            ),
        ]
    if table is DependencySettings:
        return [
            "[workspaces.example.dependencies]",
            'lock = "requirements.lock"',
            'index = ""',
            "allow = []",
            'inline = "deny"',
            'inline_names = ["requests", "rich"]',
            'source_builds = "deny"',
            'size_limit = "2GiB"',
        ]
    if table is SecretSettings:
        return [
            "[workspaces.example.secrets]",
            'API_KEY = { env = "EXAMPLE_API_KEY" }',
            'TOKEN = { file = "~/.token" }',
            'PASSWORD = { command = ["pass", "show", "example"] }',
            'OTHER = { keyring = "service:user" }',
        ]
    return []


def _example_table(header: str, table: type[Settings]) -> str:
    lines = ["", *_comment(_sentence(table.__doc__))]
    if table is WorkspaceSettings:
        lines += [
            "#[workspaces.example]",
            *_comment(_meaning(table.model_fields["path"])),
            '#path = "~/data"',
            '#profile = "standard"',
        ]
        return "\n".join(lines) + "\n"
    if table is MountSettings:
        example = ["[[workspaces.example.mounts]]", 'source = "~/models"', 'target = "/models"']
        return "\n".join([*lines, *(f"# {line}" for line in example)]) + "\n"
    if example := _example(table):
        return "\n".join([*lines, *(f"#{line}" for line in example)]) + "\n"
    lines.append(header)
    for key, field in table.model_fields.items():
        lines += [*_comment(_meaning(field)), f"#{key} = {written_toml(table, key, field.default)}"]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ")


def keys_markdown() -> str:
    """Return every key, its default, what it may be and what it means, as Markdown tables."""
    return "\n".join(_markdown_tables())


def _markdown_tables() -> Iterator[str]:
    for header, table in TABLES.items():
        yield f"### `{header}`\n\n{_sentence(table.__doc__)}\n"
        yield "| key | default | may be | meaning |\n|---|---|---|---|"
        for key, field in table.model_fields.items():
            if table is WorkspaceSettings and key in PolicySettings.model_fields:
                continue
            default = "none"
            if isinstance(field.default, str | int | float | tuple):
                default = f"`{written_toml(table, key, field.default)}`"
            yield f"| `{key}` | {default} | {_range(field)} | {_meaning(field)} |"
        yield ""
    yield "### Profiles\n\nWhat a profile sets; under `untrusted`, these can only be tightened.\n"
    yield (
        "| key | "
        + " | ".join(f"`{profile}`" for profile in PROFILES)
        + " |\n|---"
        + "|---" * len(PROFILES)
        + "|"
    )
    for key in PROFILES["untrusted"]:
        values = [
            written(PolicySettings, key, bounds.get(key, PolicySettings.model_fields[key].default))
            or "engine's default"
            for bounds in PROFILES.values()
        ]
        yield f"| `{key}` | " + " | ".join(values) + " |"
    yield ""


def _range(field: FieldInfo) -> str:
    if get_origin(field.annotation) is dict:
        return "a table"
    if tuple in (get_origin(part) for part in (field.annotation, *_alternatives(field))):
        return "a list"
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(field.annotation))
    if field.annotation is bool:
        return "`true` or `false`"
    return next((str(part) for part in field.metadata if isinstance(part, Between)), "text")


def _alternatives(field: FieldInfo) -> Iterator[object]:
    """Yield the types of a key that may also be left out."""
    for part in get_args(field.annotation):
        yield get_args(part)[0] if get_origin(part) is Annotated else part


def _meaning(field: FieldInfo) -> str:
    return _sentence(field.description)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _write() -> None:
    root = Path(__file__).parents[2]
    (root / "config.example.toml").write_text(example_toml(), encoding="utf-8")
    docs = root / "docs" / "configuration.md"
    before, rest = docs.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    docs.write_text(before + BEGIN + keys_markdown() + END + after, encoding="utf-8")


if __name__ == "__main__":
    _write()
