"""Which runs a rule has, of the times that came due: as long as one leads, and after a gap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.pipeline.rules.history import (
    MOST_OPEN,
    History,
    Run,
    RunState,
    begin,
    end,
    note_due,
    overdue,
    request_run,
)
from pushlane.pipeline.rules.rule import Rule
from tests.rules import a_rule, ms

DAY_MS = 86_400_000
LEADER = 7


def noted(rule: Rule, at: str | int, history: History | None = None) -> History:
    now_ms = at if isinstance(at, int) else ms(at)
    return note_due(rule, history or History(), now_ms, LEADER)


def states(history: History) -> list[tuple[int, str]]:
    return [(run.at_ms, run.state.value) for run in history.runs]


def test_nothing_is_due_before_its_time():
    assert noted(a_rule(), "2026-01-01T08:59:59") == History()


def test_a_time_is_due_once_however_often_one_looks():
    history = noted(a_rule(), "2026-01-01T09:00:01")
    again = noted(a_rule(), "2026-01-01T09:00:04", history)

    assert states(again) == [(ms("2026-01-01T09:00"), "due")]


def test_two_who_look_at_different_moments_write_down_the_same_run():
    history = noted(a_rule(), "2026-01-01T09:00:04", noted(a_rule(), "2026-01-01T09:00:01"))
    late = note_due(a_rule(), history, ms("2026-01-01T09:00:02"), 99)

    assert states(late) == [(ms("2026-01-01T09:00"), "due")]


def test_times_before_the_rule_was_made_do_not_count():
    rule = a_rule(since="2026-01-05T12:00", catch_up="all")

    assert noted(rule, "2026-01-06T08:00") == History()


def test_latest_makes_up_for_the_newest_of_the_missed_and_says_so_of_the_others():
    history = noted(a_rule(catch_up="latest", catch_up_s=10 * 86_400), "2026-01-04T12:00")

    assert states(history) == [
        (ms("2026-01-03T09:00"), "skipped"),
        (ms("2026-01-04T09:00"), "due"),
    ]
    assert history.runs[0].times == 3


def test_all_makes_up_for_each_of_the_missed():
    history = noted(a_rule(catch_up="all", catch_up_s=10 * 86_400), "2026-01-04T12:00")

    assert states(history) == [(ms(f"2026-01-0{day}T09:00"), "due") for day in (1, 2, 3, 4)]


def test_skip_makes_up_for_none():
    history = noted(a_rule(catch_up="skip"), "2026-01-01T12:00")

    assert states(history) == [(ms("2026-01-01T09:00"), "skipped")]


def test_skip_runs_what_is_noticed_within_a_minute():
    history = noted(a_rule(catch_up="skip"), "2026-01-01T09:00:59")

    assert states(history) == [(ms("2026-01-01T09:00"), "due")]


@pytest.mark.parametrize("catch_up", ["latest", "all"])
def test_what_is_older_than_the_window_is_not_made_up_for(catch_up):
    rule = a_rule(catch_up=catch_up, catch_up_s=3600)

    history = noted(rule, "2026-01-03T12:00")

    assert states(history) == [(ms("2026-01-01T09:00"), "skipped")]
    assert "2026-01-03T11:00:00Z" in history.runs[0].reason


def test_no_more_are_made_up_for_than_may_be_open():
    rule = a_rule(cron="* * * * *", catch_up="all")

    history = noted(rule, "2026-01-01T12:00")

    assert len(history.open) == MOST_OPEN
    assert history.open[-1].at_ms == ms("2026-01-01T12:00")
    assert history.runs[0].times == 12 * 60 - MOST_OPEN


def test_a_paused_rule_has_no_runs_and_makes_up_for_none():
    rule = a_rule(catch_up="all")
    history = noted(rule.changed(paused=True), "2026-01-03T12:00")

    resumed = noted(rule, "2026-01-04T09:00:01", history)

    assert states(resumed) == [(ms("2026-01-04T09:00"), "due")]


def test_latest_leaves_out_a_run_that_has_not_begun_when_the_next_is_due():
    rule = a_rule()
    history = noted(rule, "2026-01-01T09:00:01")

    history = noted(rule, "2026-01-02T09:00:01", history)

    assert states(history) == [
        (ms("2026-01-01T09:00"), "skipped"),
        (ms("2026-01-02T09:00"), "due"),
    ]


@pytest.mark.parametrize("day", [2, 3])
@pytest.mark.parametrize("catch_up_s", [86_400, 10 * 86_400])
def test_a_run_asked_for_stays_when_its_time_is_left_out_for_a_schedule(
    day: int, catch_up_s: int
) -> None:
    asked_ms = ms(f"2026-01-0{day}T09:00")
    history = request_run(asked_ms)(History(handled_ms=ms("2026-01-02T08:00")))

    run = noted(a_rule(catch_up_s=catch_up_s), "2026-01-05T12:00", history).find(asked_ms)

    assert run is not None
    assert run.asked
    assert run.state is RunState.DUE


def test_skip_does_not_run_again_while_a_run_is_under_way():
    rule = a_rule(catch_up="skip")
    first_ms = ms("2026-01-01T09:00")
    history = begin(rule, first_ms, LEADER, first_ms)(noted(rule, first_ms))

    history = noted(rule, "2026-01-02T09:00:01", history)

    assert [state for _, state in states(history)] == ["running", "skipped"]
    assert "2026-01-01T09:00:00Z was still under way" in history.runs[1].reason


def test_a_run_that_waited_for_its_turn_is_not_too_late_for_its_own_leader():
    rule = a_rule(catch_up="skip")
    [run] = noted(rule, "2026-01-01T09:00:01").runs

    assert overdue(rule, run, ms("2026-01-01T10:00"), LEADER) == ""
    assert overdue(rule, run, ms("2026-01-01T10:00"), LEADER + 1)


def test_a_run_that_nobody_began_within_the_window_is_too_late():
    rule = a_rule(catch_up="all", catch_up_s=3600)
    [run] = noted(rule, "2026-01-01T09:00:01").runs

    assert overdue(rule, run, ms("2026-01-01T10:00"), LEADER) == ""
    assert overdue(rule, run, ms("2026-01-01T10:00:01"), LEADER)
    assert overdue(rule, run.changed(asked=True), ms("2026-02-01T00:00"), LEADER) == ""


@settings(deadline=None)
@given(
    st.sampled_from(["0 9 * * *", "30 2 * * *", "*/30 * * * *", "0 0 1 * *", "15 */5 * * SUN"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.sampled_from(["latest", "all", "skip"]),
    st.sampled_from([0.0, 3600.0, 86_400.0, 10 * 86_400.0]),
    st.lists(st.integers(1, 9 * 86_400), min_size=1, max_size=12),
)
def test_whatever_the_gaps_each_time_is_run_once_or_said_to_be_left_out(
    cron, zone, catch_up, window_s, gaps_s
):
    rule = a_rule(
        cron=cron, zone=zone, catch_up=catch_up, catch_up_s=window_s, since="2026-03-20T00:00"
    )
    history, now_ms = History(), rule.since_ms
    ran: list[int] = []
    told: dict[int, Run] = {}
    for gap_s in gaps_s:
        now_ms += gap_s * 1000
        history = noted(rule, now_ms, history)
        for run in history.open:
            history = begin(rule, run.at_ms, LEADER, now_ms)(history)
            if history.find(run.at_ms).state is RunState.RUNNING:
                ran.append(run.at_ms)
                history = end(run.at_ms, LEADER, now_ms, RunState.DONE, total=1)(history)
        told |= {run.at_ms: run for run in history.runs}

    due = [*rule.schedule.between(rule.since_ms, now_ms)]
    assert len(ran) == len(set(ran))
    assert set(ran) <= set(due)
    assert set(told) <= set(due)
    assert history.open == []
    left_out = sum(run.times for run in told.values() if run.state is RunState.SKIPPED)
    too_old = any("up to" in run.reason for run in told.values())
    assert len(ran) + left_out == len(due) or (too_old and len(ran) + left_out < len(due))
    if catch_up == "all" and window_s > 9 * 86_400 and len(due) <= MOST_OPEN:
        assert ran == due
