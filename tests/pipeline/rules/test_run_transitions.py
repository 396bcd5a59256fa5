"""How a run begins and ends: budgets, what it keeps, who may change it."""

from __future__ import annotations

import pytest

from pushlane.model.documents import MOST_BYTES
from pushlane.pipeline.rules.history import (
    MOST_BEGUN,
    History,
    Run,
    RunState,
    begin,
    decode_history,
    end,
    request_run,
    retry_later,
    run_key,
    withdraw_run,
)
from pushlane.util.errors import Superseded
from tests.rules import a_rule, ms

NINE = ms("2026-01-01T09:00")
TEN = ms("2026-01-01T10:00")
LEADER = 7


def due(*times: int) -> History:
    return History().with_runs(*(Run(at_ms=at_ms, fence=LEADER) for at_ms in times or (NINE,)))


def begun(rule, history: History | None = None, at_ms: int = NINE) -> History:
    return begin(rule, at_ms, LEADER, at_ms)(history or due(at_ms))


def done(history: History, total: int, at_ms: int = NINE) -> History:
    return end(at_ms, LEADER, at_ms, RunState.DONE, task_id="t", total=total)(history)


def test_a_run_keeps_the_rule_that_it_began_with():
    rule = a_rule()
    history = begun(rule)

    later = begin(rule.changed(where="x > 1"), NINE, LEADER + 1, TEN)(history)

    [run] = later.runs
    assert (run.rule, run.revision, run.fence, run.begun) == (rule, 1, LEADER + 1, 2)
    assert run.begun_at_ms == NINE


def test_a_run_that_has_ended_keeps_no_rule_but_its_revision():
    [run] = done(begun(a_rule()), 5).runs

    assert (run.rule, run.revision, run.state, run.total) == (None, 1, RunState.DONE, 5)


def test_a_run_that_has_ended_does_not_begin_again():
    history = done(begun(a_rule()), 5)

    assert begin(a_rule(), NINE, LEADER, TEN)(history) == history


def test_a_leader_of_before_changes_nothing():
    history = begin(a_rule(), NINE, LEADER + 1, TEN)(begun(a_rule()))

    with pytest.raises(Superseded):
        done(history, 5)
    with pytest.raises(Superseded):
        retry_later(NINE, LEADER, TEN, "why")(history)


def test_the_end_of_a_run_whose_rule_was_removed_is_not_written_down():
    with pytest.raises(Superseded):
        done(History(), 5)


def test_a_run_may_have_what_its_budgets_leave():
    assert begun(a_rule()).runs[0].most is None
    assert begun(a_rule(budget_run=10)).runs[0].most == 10
    assert begun(a_rule(budget_run=10, budget_day=4)).runs[0].most == 4


def test_the_budget_of_a_day_counts_what_was_sent_and_what_is_under_way():
    rule = a_rule(budget_run=40, budget_day=100)
    eleven = TEN + 3_600_000
    history = begun(rule, due(NINE, TEN, eleven))
    history = begun(rule, history, TEN)

    history = done(history, 30)

    assert begun(rule, history, eleven).find(eleven).most == 30  # 100 - 30 sent - 40 under way


def test_a_day_whose_budget_is_used_up_refuses_the_run_and_says_so():
    rule = a_rule(budget_day=100)
    history = done(begun(rule, due(NINE, TEN)), 100)

    refused = begun(rule, history, TEN).find(TEN)

    assert refused.state is RunState.REFUSED
    assert "100 of 100" in refused.reason


def test_the_next_day_in_the_zone_of_the_rule_has_its_own_budget():
    rule = a_rule(budget_day=100, zone="America/New_York")
    evening, midnight = ms("2026-01-02T04:59"), ms("2026-01-02T05:00")
    history = done(begun(rule, due(NINE, evening, midnight)), 60)
    history = done(begun(rule, history, evening), 40, evening)

    assert begun(rule, history, midnight).find(midnight).most == 100
    assert history.spent == {"2026-01-01": 100}


def test_a_failed_run_of_unknown_size_counts_as_all_that_it_was_allowed():
    rule = a_rule(budget_run=40, budget_day=100)
    failed = end(NINE, LEADER, NINE, RunState.FAILED, reason="why", total=None)

    assert failed(begun(rule)).spent == {"2026-01-01": 40}


def test_a_failed_run_that_put_nothing_on_a_lane_counts_nothing():
    failed = end(NINE, LEADER, NINE, RunState.FAILED, reason="why", total=0)

    assert failed(begun(a_rule(budget_day=100))).spent == {}


def test_a_failed_run_waits_longer_each_time():
    history = begun(a_rule())
    waits = []
    for _ in range(3):
        history = retry_later(NINE, LEADER, TEN, "why")(history)
        waits.append((history.runs[0].retry_at_ms - TEN) // 1000)
        history = begin(a_rule(), NINE, LEADER, TEN)(history)

    assert waits == [30, 120, 480]


def test_a_run_that_kills_whoever_makes_it_fails_in_the_end():
    history = begun(a_rule(budget_run=5))
    for _ in range(MOST_BEGUN):
        history = begin(a_rule(), NINE, LEADER, TEN)(history)

    [run] = history.runs
    assert (run.state, run.begun) == (RunState.FAILED, MOST_BEGUN)
    assert history.spent == {"2026-01-01": 5}


def test_a_scheduled_run_of_a_paused_rule_does_not_begin_but_one_asked_for_does():
    paused = a_rule().changed(paused=True)

    assert begun(paused).runs[0].state is RunState.SKIPPED
    assert begun(paused, request_run(NINE)(History())).runs[0].state is RunState.RUNNING


def test_asking_again_opens_what_failed_and_leaves_what_is_done():
    finished = done(begun(a_rule()), 5)
    failed = end(NINE, LEADER, NINE, RunState.FAILED, total=0)(begun(a_rule()))

    assert request_run(NINE)(finished) == finished
    assert request_run(NINE)(failed).runs == (Run(at_ms=NINE, asked=True),)


def test_only_a_run_that_did_not_begin_is_withdrawn():
    asked = request_run(NINE)(History())

    assert withdraw_run(NINE)(asked).runs == ()
    assert withdraw_run(NINE)(begun(a_rule(), asked)).runs[0].state is RunState.RUNNING
    assert withdraw_run(NINE)(due()) == due()


def test_a_history_stays_within_a_document_and_keeps_what_is_open():
    rule = a_rule(where="x" * 20_000)
    ended = [Run(at_ms=at_ms).ended(RunState.FAILED, at_ms, "ü" * 300) for at_ms in range(500)]
    history = begun(rule, due(NINE)).with_runs(*ended)

    body = history.encode()

    kept = decode_history("daily", body)
    assert len(body) <= MOST_BYTES
    assert kept.runs[-1] == history.runs[-1]
    assert kept.runs[-2].at_ms == 499


def test_the_key_of_a_run_names_its_rule_and_its_time():
    assert run_key("weekly", NINE) == "rule-weekly-2026-01-01T09:00:00Z"
    assert run_key("weekly", NINE + 7) == "rule-weekly-2026-01-01T09:00:00.007Z"
