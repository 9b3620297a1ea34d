"""The example and the docs say what the keys are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.config.reference import BEGIN, END, example_toml, keys_markdown
from mcp_sandbox.config.settings import TABLES, FileSettings, PolicySettings, WorkspaceSettings

if TYPE_CHECKING:
    from .conftest import User

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "configuration.md"
REWRITE = "run `python -m mcp_sandbox.config.reference`"

ALL_KEYS = [(header, key) for header, table in TABLES.items() for key in table.model_fields]


def taken_off(text: str) -> str:
    """Take the # off every key, as a person would."""
    return re.sub(r"(?m)^#(?! )", "", text)


def test_the_example_file_is_up_to_date() -> None:
    assert (ROOT / "config.example.toml").read_text() == example_toml(), REWRITE


def test_the_docs_are_up_to_date() -> None:
    assert BEGIN + keys_markdown() + END in DOCS.read_text(), REWRITE


def test_the_example_changes_nothing() -> None:
    assert FileSettings.model_validate(tomllib.loads(example_toml())) == FileSettings()


def test_the_example_names_every_key_with_its_default() -> None:
    said = FileSettings.model_validate(tomllib.loads(taken_off(example_toml())))
    assert said.workspaces.keys() == {"example"}
    assert said.model_copy(update={"workspaces": {}}) == FileSettings()
    for name in ("engine", "server", "audit", "defaults"):
        table = getattr(said, name)
        assert table.model_fields_set == set(type(table).model_fields)


def test_a_user_can_start_from_the_example(user: User) -> None:
    user.write(taken_off(example_toml()).replace("~/data", str(user.folder("data"))))
    assert user.load(workspace="example").policy.path == str(user.home / "data")


@pytest.mark.parametrize(("header", "key"), ALL_KEYS)
def test_every_key_is_explained(header: str, key: str) -> None:
    field = TABLES[header].model_fields[key]
    assert field.description
    shared = TABLES[header] is WorkspaceSettings and key in PolicySettings.model_fields
    section = DOCS.read_text().split(f"### `{'[defaults]' if shared else header}`")[1].split("### ")[0]
    assert f"| `{key}` |" in section


def test_the_examples_in_the_docs_are_valid(user: User) -> None:
    for block in re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL):
        for folder in ("sales", "Downloads"):
            user.folder(folder)
        user.write(block)
        for name in tomllib.loads(block)["workspaces"]:
            assert user.load(workspace=name).policy.path


def test_every_key_that_weakens_says_so() -> None:
    for table in TABLES.values():
        for key, field in table.model_fields.items():
            if field.annotation is bool:
                assert key.startswith("unsafe_")
                assert field.default is False
