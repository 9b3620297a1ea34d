"""The folder that attacks of the proof are shown."""

from __future__ import annotations

from pathlib import Path

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.doctor.bait import bait
from mcp_sandbox.view import Folders


async def test_it_can_be_shown_wherever_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    policy = Policy().model_copy(update={"mounts": (bait(tmp_path / "link" / "bait"),)})
    (mount,) = (await Folders(policy, hiding=tmp_path / "hiding").look()).mounts
    assert (mount.source, mount.target) == (f"{tmp_path.resolve()}/real/bait", "/bait")
    assert Path(mount.source, "kept.txt").stat().st_mode & 0o777 == 0o666
