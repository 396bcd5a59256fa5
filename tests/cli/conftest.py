"""Tests of commands that go over the client's operations run a second time, through a server."""

from __future__ import annotations

import pytest

THROUGH_A_SERVER = (
    *("alerts", "audit", "changes_as_json", "dead", "forget", "limits", "preview", "push", "quota"),
    *("report", "reschedule", "results", "rules", "stop_if_dead", "submit", "suppress", "tables"),
    *("unreadable", "tasks", "times", "tokens", "top", "why"),
)
"""The modules."""

BESIDE_THE_BACKEND = frozenset(
    {
        # a pool lane: what is sent through a server has a lane of its own
        "test_a_low_task_that_leaves_the_pool_for_its_own_level_is_not_so_already",
        "test_a_quota_gives_a_pooled_task_a_lane_of_its_own",
        "test_a_quota_is_shown",
        "test_task_show_says_that_a_pooled_task_has_no_quota",
        "test_recipients_that_the_lane_still_has_are_revealed",
        # this shell's settings, which a server does not have
        "test_a_test_that_fails_prints_why_and_ends_with_its_exit_code",
        "test_the_name_of_an_app_or_a_sink_alone_is_answered_with_its_subject",
        "test_who_nobody_knows_yet_is_remarked_on",
        "test_a_sink_that_nobody_knows_is_refused_with_the_nearest",
        "test_a_task_without_a_sink_is_refused_where_the_settings_name_others",
        "test_sinks_and_addresses_are_named_by_flags",
        "test_a_sink_that_was_taken_out_of_the_settings_is_to_be_put_back",
        "test_the_default_sink_beside_named_ones_is_not_to_be_served",
        "test_a_sink_that_nobody_serves_is_told_beside_lists",
        "test_a_sink_that_rests_is_told_alike_by_tasks_sinks_and_why",
        "test_as_json_it_has_causes_share_pace_backlog_and_end",
        # a remark for which a server is not asked
        "test_apps_and_sinks_have_lists_of_their_own",
        "test_what_a_file_registers_lives",
        # a value that no request can have
        "test_what_cannot_be_is_refused",
        "test_what_cannot_be_registered_is_refused",
        "test_what_no_push_can_have_is_refused_and_not_shown",
        # doctor, which looks at what is at hand
        "test_doctor_lists_them_as_errors",
        # a part that is replaced in this process, or a look at what is stored
        "test_a_dry_run_says_whose_key_it_is",
        "test_a_submit_that_goes_on_makes_the_pushes_that_it_would_have_made",
        "test_an_interrupted_replay_names_the_task_it_leaves",
        "test_task_show_as_json_has_its_settings_and_counts",
        "test_what_is_forgotten_and_what_is_removed_is_listed",
    }
)
"""Their tests of what is of a shared lane, of this shell's settings, or replaced in the process."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".test_")[2]
    name = metafunc.function.__name__
    if "command" not in metafunc.fixturenames or module not in THROUGH_A_SERVER:
        return
    if name not in BESIDE_THE_BACKEND:
        metafunc.parametrize("command", [False, True], ids=["", "served"], indirect=True)
