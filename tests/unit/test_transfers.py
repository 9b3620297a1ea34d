"""What a person reads of a transfer where there is no terminal to draw on: a line at its start, few after that."""

from __future__ import annotations

import pytest

from mcp_sandbox.cli.transfers import LARGE_BYTES, LINE_SECONDS, Lines, follow
from mcp_sandbox.guest.progress import Progress

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_transfer_is_told_when_it_begins_and_every_few_seconds() -> None:
    said: list[str] = []
    clock = Clock()
    lines = Lines(said.append, clock)
    for done in range(0, 100_000_000, 1_000_000):
        lines.show("copying", done, 100_000_000)
        clock.now += LINE_SECONDS / 64
    assert said == ["mcp-sandbox: copying, 100.0 MB", "mcp-sandbox: copying, 64.0 MB of 100.0 MB"]
    lines.show("taking files out", 7_000_000, None)
    clock.now += LINE_SECONDS
    lines.show("taking files out", 9_000_000, None)
    assert said[2:] == ["mcp-sandbox: taking files out", "mcp-sandbox: taking files out, 9.0 MB"]


async def test_of_a_run_only_large_transfers_are_told() -> None:
    said: list[str] = []
    progress = Progress()
    follow(progress, Lines(said.append))
    for phase, total in (("copying", LARGE_BYTES - 1), ("starting", None), ("running", None)):
        progress.enter(phase, total)  # type: ignore[arg-type]
        progress.advance(total or 0)
    progress.enter("collecting")
    progress.advance(LARGE_BYTES - 1)
    assert said == []
    progress.advance(1)
    assert said == ["mcp-sandbox: taking files out"]
