"""Nothing is promised that no attack tests, and nothing is attacked that is not promised, word for word."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from mcp_sandbox.doctor.attack import load_attacks
from mcp_sandbox.doctor.claims import CLAIMS
from tests.claims import TESTS, Claim, claims

TESTS_FOLDER = Path(__file__).resolve().parents[2]
PAGE = (TESTS_FOLDER.parent / "docs" / "security.md").read_text(encoding="utf-8")


def promised() -> list[str]:
    """Return the sentences of the page's list."""
    section = re.search(r"^## What is promised\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    assert section
    return [" ".join(item.split()) for item in re.split(r"^- ", section[1], flags=re.MULTILINE)[1:]]


def test_the_page_says_what_is_claimed_word_for_word_and_nothing_else() -> None:
    assert promised() == list(CLAIMS.values())


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_a_claim_is_proven_by_an_attack_or_a_test(claim: Claim) -> None:
    assert claim.attacks or claim.tests


def test_every_attack_and_every_test_of_a_claim_is_of_one_that_is_made() -> None:
    assert {attack.claim for attack in load_attacks()} <= CLAIMS.keys()
    assert TESTS.keys() <= CLAIMS.keys()


@pytest.mark.parametrize("test", sorted({test for tests in TESTS.values() for test in tests}))
def test_a_test_that_proves_a_claim_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((TESTS_FOLDER / file).read_text(encoding="utf-8"))
    assert name in {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_page_tells_how_many_attacks_are_proof() -> None:
    assert (
        f"{sum(attack.prove for attack in load_attacks())} attacks, under your workspace's own policy" in PAGE
    )
