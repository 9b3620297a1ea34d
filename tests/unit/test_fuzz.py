"""Each property that `scripts/fuzz` names is there, and takes bytes."""

from __future__ import annotations

import pytest

from tests.fuzz import PROPERTIES, fuzzed


@pytest.mark.parametrize("name", list(PROPERTIES))
def test_what_is_fuzzed_is_a_property_of_the_tests(name: str) -> None:
    take = fuzzed(name)
    for data in (b"", b"\0" * 2000, bytes(range(256)) * 8):
        take(data)
