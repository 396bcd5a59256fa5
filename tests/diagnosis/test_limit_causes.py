"""Limits as causes: totals that are spent, and rates that let less go than a task would get."""

from __future__ import annotations

import pytest

from pushlane.diagnosis.causes import causes
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import Standing
from pushlane.model.presence import LaneWait
from tests.diagnosis.support import busy_sink, names, process_of, situation_of, task_of


@pytest.mark.parametrize(
    ("subject", "name", "what"),
    [
        ("task/t", "total", "10 pushes in all"),
        ("task/t", "total_cost", "10 of cost in all"),
        ("app/default", "a_day", "10 pushes a day, until 00:00 UTC"),
        ("sink/default", "cost_a_day", "10 of cost a day, until 00:00 UTC"),
    ],
)
def test_a_total_that_is_spent_holds_what_is_left(subject: str, name: str, what: str) -> None:
    limited = Subject.parse(subject)
    limits = {limited: Limit(**{name: 10})}

    [cause] = causes(situation_of(limits=limits, spent={limited: {name: 10.0}}))
    before = names(situation_of(limits=limits, spent={limited: {name: 9.0}}))

    assert (cause.name, cause.detail) == (
        "limit_spent",
        f"the limit of {subject} is spent: {what}",
    )
    assert before == ["going"]


def test_a_total_is_spent_when_less_is_left_than_a_push_costs() -> None:
    app = Subject("app", "default")
    processes = [process_of(busy_sink(100, in_flight=0, cost=4))]
    limited = {"limits": {app: Limit(total_cost=10)}, "processes": processes}

    [cause] = causes(situation_of(spent={app: {"total_cost": 8.0}}, **limited))

    assert cause.name == "limit_spent"
    assert cause.detail.endswith("10 of cost in all, of which 2 is left, and a push takes 4")
    assert names(situation_of(spent={app: {"total_cost": 6.0}}, **limited)) == ["going"]


def test_a_spent_total_holds_nothing_once_all_pushes_are_charged() -> None:
    app, own = Subject("app", "default"), Subject("task", "t")
    of_app = {"limits": {app: Limit(a_day=10)}, "spent": {app: {"a_day": 10.0}}}
    of_task = {"limits": {own: Limit(total=1_000)}, "spent": {own: {"total": 1_000.0}}}
    waits = process_of(waiting=(LaneWait("task-t", "default", "budget"),))

    assert names(situation_of(later=3, **of_app)) == ["later"]
    assert names(situation_of(later=3, processes=[waits], **of_app)) == ["limit_spent", "later"]
    assert names(situation_of(**of_task)) == ["going"]


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        (Subject("task", "t"), "task/t"),
        (Subject("app", "default"), "app/default"),
        (Subject("app", "*"), "app/default"),
        (Subject("sink", "default"), "sink/default"),
    ],
)
def test_a_rate_below_what_it_would_get_is_told(subject: Subject, shown: str) -> None:
    processes = [process_of(busy_sink(100))]

    slow = causes(situation_of(limits={subject: Limit(rate_per_s=5)}, processes=processes))
    fast = names(situation_of(limits={subject: Limit(rate_per_s=500)}, processes=processes))

    assert (slow[0].name, slow[0].detail) == ("limit", f"the limit of {shown} is 5 pushes/s")
    assert "limit" not in fast


def test_a_limit_is_told_once_and_without_what_it_makes_vain() -> None:
    waits = process_of(
        busy_sink(100, in_flight=0), waiting=(LaneWait("task-t", "default", "budget"),)
    )
    limits = {Subject("task", "t"): Limit(rate_per_s=5)}
    other = Standing(task_of("o"), 500)

    assert names(situation_of(limits=limits, processes=[waits])) == ["limit"]
    assert names(situation_of(None, 0, other, limits=limits, processes=[waits])) == ["limit"]
    assert names(situation_of(processes=[waits])) == ["lane_budget", "going"]


def test_a_rate_of_the_sinks_own_settings_counts_in_pushes() -> None:
    processes = [process_of(busy_sink(100, rate_per_s=20, cost=4))]

    cause, *_ = causes(situation_of(processes=processes))

    assert cause.detail == "the limit of sink/default is 5 pushes/s"


def test_deliveries_in_flight_limit_like_slots() -> None:
    """Of 10 slots with deliveries of a tenth of a second 3 may be used."""
    limits = {Subject("app", "default"): Limit(in_flight=3)}
    of_settings = [process_of(busy_sink(100, most_in_flight=4))]

    by_limit, *_ = causes(situation_of(limits=limits, processes=[process_of(busy_sink(100))]))
    by_settings, *_ = causes(situation_of(processes=of_settings))

    assert by_limit.detail == "the limit of app/default is 3 in flight, so about 30 pushes/s"
    assert by_settings.detail == "the limit of sink/default is 4 in flight, so about 40 pushes/s"
    assert by_limit.do == "pushlane limit app/default --in-flight N, or none"
