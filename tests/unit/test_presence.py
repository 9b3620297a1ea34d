"""Signs of life: who is alive is left alone, and who is dead stays known to be for as long as something may turn up."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from mcp_sandbox.presence import FORGOTTEN_AFTER_SECONDS, Presence

if TYPE_CHECKING:
    from pathlib import Path


def test_a_living_server_is_not_dead_and_keeps_its_sign(tmp_path: Path) -> None:
    living, other = Presence(tmp_path), Presence(tmp_path)
    other.forget_the_dead()
    assert not other.is_dead(living.server)
    assert (tmp_path / living.server).exists()


def test_a_server_that_left_is_dead(tmp_path: Path) -> None:
    gone, other = Presence(tmp_path), Presence(tmp_path)
    gone.leave()
    assert other.is_dead(gone.server)


def test_a_server_of_which_nothing_is_known_is_not_taken_for_dead(tmp_path: Path) -> None:
    assert not Presence(tmp_path).is_dead("0123456789abcdef")
    assert not Presence(tmp_path).is_dead("../../etc")


def test_a_dead_server_is_still_known_when_the_engine_makes_its_last_container(tmp_path: Path) -> None:
    gone, other = Presence(tmp_path), Presence(tmp_path)
    gone.leave()
    other.forget_the_dead()
    other.forget_the_dead()
    assert other.is_dead(gone.server)


def test_a_server_that_has_been_dead_for_long_is_forgotten(tmp_path: Path) -> None:
    gone, other = Presence(tmp_path), Presence(tmp_path)
    gone.leave()
    long_ago = time.time() - 10 * FORGOTTEN_AFTER_SECONDS
    os.utime(tmp_path / gone.server, (long_ago, long_ago))
    other.forget_the_dead()  # however long it lived, it is dead since now, as far as anybody knows
    assert (tmp_path / gone.server).exists()
    os.utime(tmp_path / gone.server, (long_ago, long_ago))
    other.forget_the_dead()
    assert not (tmp_path / gone.server).exists()
