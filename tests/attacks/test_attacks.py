"""Every attack ends exactly as its row says, under every runtime, and leaves no trace that a later run finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.doctor.attack import Attack, load_attacks
from tests.conftest import RUNTIMES

if TYPE_CHECKING:
    from tests.attacks.campaign import Campaign

pytestmark = pytest.mark.engine

CASES = [
    pytest.param(attack, runtime, id=f"{attack.id}-{runtime}")
    for runtime in RUNTIMES
    for attack in load_attacks()
    if attack.only in ("", runtime)
]


@pytest.mark.parametrize(("attack", "runtime"), CASES)
async def test_an_attack_ends_as_its_row_says(campaign: Campaign, attack: Attack, runtime: str) -> None:
    result = await campaign.result(attack, runtime)
    wanted = attack.outcomes(runtime)
    assert any(outcome.is_of(result) for outcome in wanted), f"{wanted}\n{result}"
