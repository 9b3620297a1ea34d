"""Each promise of docs/security.md, and what proves it: attacks by the row that names it, and these tests."""

from __future__ import annotations

from typing import NamedTuple

from mcp_sandbox.doctor.attack import load_attacks
from mcp_sandbox.doctor.claims import CLAIMS


class Claim(NamedTuple):
    """One promise."""

    id: str
    sentence: str
    """As docs/security.md says it."""
    attacks: tuple[str, ...]
    """Rows of `mcp_sandbox/doctor/attacks/`, each run by tests/attacks/test_attacks.py."""
    tests: tuple[str, ...]
    """Files with the names of tests in them, `FILE::TEST`."""


TESTS: dict[str, tuple[str, ...]] = {
    "processes": (
        "attacks/test_outside.py::test_the_host_never_has_more_processes_of_a_fork_bomb_than_the_limit",
    ),
    "cpu": ("attacks/test_outside.py::test_the_host_gives_no_more_processor_time_than_the_share",),
    "output": (
        "attacks/test_outside.py::test_the_engine_answers_others_while_a_program_floods",
        "engine/test_floods.py::test_a_flood_is_counted_and_does_not_stay_in_memory",
        "engine/test_floods.py::test_other_calls_are_answered_while_one_goes_on",
    ),
    "clean": (
        "engine/test_bad_input.py::test_whatever_a_program_writes_its_result_is_valid",
        "engine/test_cli_run.py::test_at_a_terminal_nothing_that_a_program_writes_reaches_past_the_screen",
    ),
    "deadline": (
        "attacks/test_outside.py::test_a_container_that_somebody_pauses_ends_at_its_deadline",
        "attacks/test_outside.py::test_an_agent_that_is_drowned_in_work_still_ends_the_program",
        "attacks/test_lifecycle.py::test_a_server_that_slept_through_a_deadline_finds_the_program_ended_at_it",
    ),
    "network": (
        "attacks/test_outside.py::test_no_listener_of_the_host_hears_a_program",
        "engine/test_egress.py::test_no_bypass_gets_anywhere_and_each_is_refused_and_recorded",
        "engine/test_egress.py::test_what_ignores_the_proxy_fails_at_once_and_the_hint_says_why",
        "attacks/test_outside.py::test_a_way_out_that_lies_in_the_workspace_is_closed",
    ),
    "host": (
        "unit/test_view.py::test_a_link_that_took_the_place_of_the_folder_is_not_followed",
        "attacks/test_outside.py::test_the_engine_was_asked_for_every_restriction_of_a_live_run",
        "attacks/test_outside.py::test_a_way_out_that_lies_in_the_workspace_is_closed",
    ),
    "image": ("engine/test_workspace.py::test_nothing_that_a_program_does_changes_the_folder",),
    "environment": ("attacks/test_outside.py::test_the_servers_environment_stays_outside",),
    "artifacts": ("attacks/test_outside.py::test_a_file_that_comes_out_never_holds_what_a_link_leads_to",),
    "fresh": ("attacks/test_outside.py::test_two_runs_at_once_see_nothing_of_each_other",),
    "unseen": (
        "attacks/test_outside.py::test_nothing_of_a_program_shows_in_what_the_engine_and_the_host_tell_of_it",
    ),
    "policy": (
        "unit/config/test_folder_file.py::test_a_folder_cannot_give_itself_more",
        "unit/config/test_folder_file.py::test_a_folder_cannot_leave_the_untrusted_profile",
        "unit/config/test_folder_file.py::test_trust_ends_when_a_byte_changes_and_returns_with_it",
        "engine/test_bad_input.py::test_a_call_that_cannot_be_is_refused_in_words",
    ),
    "lease": (
        "attacks/test_lifecycle.py::test_servers_killed_at_any_moment_leave_no_sandbox",
        "engine/test_stdio.py::test_the_end_of_stdin_ends_a_running_call_and_its_sandbox",
        "engine/test_stdio.py::test_a_signal_ends_a_running_call_and_its_sandbox",
        "engine/test_stdio.py::test_sandboxes_go_by_themselves_when_the_server_is_killed",
        "engine/test_cancellation.py::test_a_sandbox_made_after_its_server_died_is_removed_by_the_next",
        "attacks/test_lifecycle.py::test_a_run_whose_containers_keeper_is_killed_is_lost_and_leaves_nothing",
        "unit/test_presence.py::test_a_dead_server_is_still_known_when_the_engine_makes_its_last_container",
    ),
    "neighbours": (
        "attacks/test_lifecycle.py"
        "::test_a_server_that_starts_leaves_the_sandboxes_of_a_living_one_and_takes_those_of_a_dead_one",
        "attacks/test_lifecycle.py::test_servers_of_other_records_never_touch_each_others_sandboxes",
    ),
    "nothing_left": (
        "attacks/test_lifecycle.py::test_five_hundred_runs_leave_a_server_and_its_machine_as_they_were",
    ),
    "proof": (
        "engine/test_doctor.py::test_a_protection_that_is_taken_away_turns_exactly_its_rows_red",
        "engine/test_doctor.py::test_an_engine_that_drops_a_limit_fails_that_check_alone",
    ),
}


def claims() -> tuple[Claim, ...]:
    """Return every promise with what proves it."""
    attacks = load_attacks()
    return tuple(
        Claim(
            id=id_,
            sentence=sentence,
            attacks=tuple(attack.id for attack in attacks if attack.claim == id_),
            tests=TESTS.get(id_, ()),
        )
        for id_, sentence in CLAIMS.items()
    )
