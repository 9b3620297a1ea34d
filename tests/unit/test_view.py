"""Whatever takes the place of a person's folder, or of what is in it, shows programs nothing that lies elsewhere."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.guest.copies import batches
from mcp_sandbox.view import Folders

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

NOTES = b"notes" * 10
SECRET = b"hunter2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A person's folder, and elsewhere what they do not show."""
    for path, content in (("around/papers/sub/notes", NOTES), ("elsewhere/papers/sub/notes", SECRET)):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path / "around" / "papers"


def folders(folder: Path, **policy: object) -> Folders:
    whole = Policy.model_validate({"path": str(folder), **policy})
    return Folders(whole, hiding=folder.parent.parent / "hiding")


def replace_by_link(path: Path, target: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(target)


@pytest.mark.parametrize("transfer", ["mount", "copy"])
@pytest.mark.parametrize("depth", [0, 1], ids=["its own place", "that of the folder around it"])
async def test_a_link_that_took_the_place_of_the_folder_is_not_followed(
    folder: Path, transfer: str, depth: int
) -> None:
    seen = folders(folder, workspace_transfer=transfer)
    await seen.look()
    elsewhere = folder.parent.parent / "elsewhere"
    replace_by_link(*[(folder, elsewhere / "papers"), (folder.parent, elsewhere)][depth])
    with pytest.raises(RequestRefused, match="a link took its place"):
        await seen.look()
    with pytest.raises(RequestRefused, match="a link took its place"):
        seen.hidden()


async def test_a_link_that_took_the_place_of_a_further_folder_is_not_followed(folder: Path) -> None:
    further = folder.parent / "models"
    further.mkdir()
    seen = folders(folder, mounts=[{"source": str(further), "target": "/models"}])
    await seen.look()
    replace_by_link(further, folder.parent.parent / "elsewhere")
    with pytest.raises(RequestRefused, match="a link took its place"):
        await seen.look()


@pytest.mark.parametrize("name", [".", "sub", "sub/notes"])
async def test_a_link_that_took_the_place_of_what_is_about_to_be_copied_is_not_followed(
    folder: Path, name: str
) -> None:
    view = await folders(folder, workspace_transfer="copy").look()
    assert NOTES in b"".join(batches(view.copies))
    replace_by_link(folder / name, folder.parent.parent / "elsewhere" / "papers" / name)
    assert SECRET not in b"".join(batches(view.copies))


@pytest.mark.parametrize("kind", ["pipe", "folder", "nothing"])
async def test_what_is_no_file_any_more_when_it_is_copied_is_left_out(folder: Path, kind: str) -> None:
    view = await folders(folder, workspace_transfer="copy").look()
    (folder / "sub" / "notes").unlink()
    if kind == "pipe":
        os.mkfifo(folder / "sub" / "notes")
    elif kind == "folder":
        (folder / "sub" / "notes").mkdir()
    assert NOTES not in b"".join(batches(view.copies))
