"""Say in plain words what pydantic found wrong with a table of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.config.problems import Problem, nearest
from mcp_sandbox.config.settings import (
    TABLES,
    DependencySettings,
    EgressSettings,
    FileSettings,
    PolicySettings,
    SecretSettings,
    Settings,
    WorkspaceSettings,
)
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from mcp_sandbox.config.toml import Document, KeyPath

_WORDS = {
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list in brackets",
    "too_long": "is too long a list",
    "missing": "is missing",
}


def explain(error: ValidationError, document: Document, schema: type[Settings]) -> list[Problem]:
    """Return every problem of a document that is not what `schema` says."""
    return [
        _explain_one(detail, document, schema)
        # The input is left out, for it may be anything, nested thousands deep.
        for detail in error.errors(include_url=False, include_input=False)
    ]


def _explain_one(detail: ErrorDetails, document: Document, schema: type[Settings]) -> Problem:
    key_path = tuple(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        words = f"unknown key {quoted(key_path)}{_meant(key_path, schema)}"
    elif detail["type"] in ("model_type", "dict_type"):
        words = f"{quoted(key_path)} must be a table of its own, under the header {_header(key_path)}"
    elif key_path[-1] == "[key]":
        key_path = key_path[:-1]
        words = f"the name `{visible(key_path[-1], limit=64)}` {detail['ctx']['error']}"
    elif detail["type"] == "literal_error":
        words = f"{quoted(key_path)} must be {detail['ctx']['expected']}".replace("'", '"')
    elif detail["type"] == "value_error":
        words = f"{quoted(key_path)} {detail['ctx']['error']}"
    else:
        words = f"{quoted(key_path)} {_WORDS.get(detail['type'], 'is not valid')}"
    return Problem(words, document.line(*key_path))


def quoted(key_path: KeyPath) -> str:
    """Return a key path between back-quotes, safe to print."""
    return f"`{'.'.join(visible(part, limit=64) for part in key_path)}`"


def _header(key_path: KeyPath) -> str:
    return "[workspaces.NAME]" if key_path == ("workspaces",) else f"[{'.'.join(key_path)}]"


def _meant(key_path: KeyPath, schema: type[Settings]) -> str:
    """Say what an unknown key was probably meant to be."""
    key = key_path[-1]
    table = _table_of(key_path[:-1], schema)
    headers = [] if schema is PolicySettings else list(_headers_with(key))
    if headers:
        return f"; it belongs under {' or '.join(headers)}"
    near = nearest(key, table.model_fields)
    if near or schema is PolicySettings:
        return near
    for header, other in TABLES.items():
        near = nearest(key, other.model_fields)
        if near:
            return f"{near.removesuffix('?')}, which belongs under {header}?"
    return ""


def _table_of(key_path: KeyPath, schema: type[Settings]) -> type[Settings]:
    match key_path:
        case ():
            return schema
        case ("workspaces", _):
            return WorkspaceSettings
        case ("workspaces", _, "egress"):
            return EgressSettings
        case ("workspaces", _, "dependencies"):
            return DependencySettings
        case ("workspaces", _, "secrets", _):
            return SecretSettings
        case (name,):
            return TABLES[f"[{name}]"]
    return FileSettings


def _headers_with(key: str) -> Iterator[str]:
    for header, table in TABLES.items():
        if key in table.model_fields:
            yield header
