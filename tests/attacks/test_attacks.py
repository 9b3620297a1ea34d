"""Every attack ends exactly as its row says, under every runtime, and leaves no trace that a later run finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.doctor.attack import Attack, load_attacks
from tests.conftest import RUNTIMES

if TYPE_CHECKING:
    from tests.attacks.campaign import Campaign

pytestmark = pytest.mark.engine

OF_THE_AGENT = {"agent", "environment", "fresh", "artifacts"}
"""Claims that rest on what was in the sandbox before the program came."""


def cases(place: str, *claims: str) -> list[object]:
    runtime = place.partition(" ")[0]
    return [
        pytest.param(attack, place, id=f"{attack.id}-{place}")
        for attack in load_attacks()
        if attack.only in ("", runtime) and (not claims or attack.claim in claims)
    ]


@pytest.mark.parametrize(
    ("attack", "place"),
    [case for runtime in RUNTIMES for case in [*cases(runtime), *cases(f"{runtime} ready", *OF_THE_AGENT)]],
)
async def test_an_attack_ends_as_its_row_says(campaign: Campaign, attack: Attack, place: str) -> None:
    result = await campaign.result(attack, place)
    wanted = attack.outcomes(place.partition(" ")[0], campaign.product)
    assert any(outcome.is_of(result) for outcome in wanted), f"{wanted}\n{result}"
