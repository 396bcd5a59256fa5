"""Shares and ends are told by the same rules as the scheduler's: weights, apps, quotas, limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.names import pool_lanes
from pushlane.core.task import Level, Weights
from pushlane.diagnosis.fluid import forecast, forecasts
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import SinkLoad, Standing, entitled_rates, entitled_shares, sink_now
from tests.diagnosis.support import NOW_MS, busy_sink, load_of, process_of, task_of

LEVELS = (Level.HIGH, Level.MEDIUM, Level.LOW)
LANE = pool_lanes(1)[0]


def standing(task_id: str, left: int = 1_000, level: Level = Level.HIGH, **fields) -> Standing:
    return Standing(task_of(task_id, level, **fields), left)


def ends_in_s(load: SinkLoad, task_id: str) -> float:
    expected = forecast(load, task_id, load.per_s())
    assert expected is not None
    return expected.ends_in_s


def shares(load: SinkLoad) -> dict[str, float]:
    found = entitled_shares(load, load.standings)
    return {lane.removeprefix("task-"): share for lane, share in found.items()}


def rates(load: SinkLoad) -> dict[str, float]:
    found = entitled_rates(load, load.standings, load.per_s() or 0)
    return {lane.removeprefix("task-"): rate for lane, rate in found.items()}


def test_levels_share_by_their_weights() -> None:
    load = load_of(*(standing(level, level=level) for level in LEVELS))

    assert shares(load) == pytest.approx({"high": 0.6, "medium": 0.3, "low": 0.1})


def test_a_level_of_weight_0_gets_what_nobody_else_takes() -> None:
    high, low = standing("h"), standing("l", level=Level.LOW)
    limits = {Subject("task", "h"): Limit(rate_per_s=30)}
    weights = Weights(6, 3, 0)

    assert shares(load_of(high, low, weights=weights)) == {"h": 1.0, "l": 0.0}
    assert shares(load_of(low, weights=weights)) == {"l": 1.0}
    assert rates(load_of(high, low, weights=weights, limits=limits)) == {"h": 30, "l": 70}


def test_apps_share_a_level_and_tasks_share_their_app_by_quota() -> None:
    load = load_of(
        standing("a", app="shop"),
        standing("b", app="shop", quota=3),
        standing("c", app="news"),
        limits={Subject("app", "shop"): Limit(quota=3)},
    )

    assert shares(load) == pytest.approx({"a": 0.1875, "b": 0.5625, "c": 0.25})


def test_what_every_app_has_holds_where_one_has_none_of_its_own() -> None:
    limits = {
        Subject("app", "*"): Limit(quota=3, rate_per_s=40),
        Subject("app", "shop"): Limit(quota=1),
    }
    load = load_of(standing("a", app="shop"), standing("b", app="news"), limits=limits)

    assert shares(load) == pytest.approx({"a": 0.25, "b": 0.75})
    assert rates(load) == pytest.approx({"a": 40, "b": 40})


@pytest.mark.parametrize(
    ("high", "others", "expected"),
    [
        ({"app": 1}, True, {"app": 0.3, "medium": 0.525, "low": 0.175}),
        ({"app": 1, "b": 1}, True, {"app": 0.3, "b": 0.3, "medium": 0.3, "low": 0.1}),
        ({"app": 5, "b": 1}, True, {"app": 0.3, "b": 0.3, "medium": 0.3, "low": 0.1}),
        (
            {"app": 1, "b": 1, "c": 1},
            True,
            {"app": 0.2, "b": 0.2, "c": 0.2, "medium": 0.3, "low": 0.1},
        ),
        ({"app": 1}, False, {"app": 1.0}),
    ],
)
def test_an_app_is_kept_to_its_part_of_high(
    high: dict[str, int], others: bool, expected: dict[str, float]
) -> None:
    """The table of docs/fairness.md."""
    standings = [standing(app, app=app) for app in high]
    if others:
        standings += [standing(level, level=level) for level in (Level.MEDIUM, Level.LOW)]
    limits = {Subject("app", app): Limit(quota=quota) for app, quota in high.items()}
    limits[Subject("app", "app")] = Limit(quota=high["app"], high_part=0.5)

    assert shares(load_of(*standings, limits=limits)) == pytest.approx(expected)


def test_tasks_of_a_pool_lane_share_one_part() -> None:
    load = load_of(
        standing("a", level=Level.LOW, lane=LANE),
        standing("b", level=Level.LOW, lane=LANE),
        standing("c", level=Level.LOW),
    )

    assert shares(load) == pytest.approx({LANE: 0.5, "c": 0.5})


@pytest.mark.parametrize("subject", [Subject("task", "a"), Subject("app", "shop")])
def test_what_a_limit_leaves_goes_to_the_others(subject: Subject) -> None:
    limits = {subject: Limit(rate_per_s=10)}
    load = load_of(standing("a", app="shop"), standing("b", level=Level.LOW), limits=limits)

    assert rates(load) == pytest.approx({"a": 10, "b": 90})


@given(
    tasks=st.lists(
        st.tuples(st.sampled_from(LEVELS), st.integers(1, 9), st.sampled_from("xyz")), min_size=1
    ),
    caps=st.dictionaries(st.integers(0, 9), st.floats(0.5, 200), max_size=4),
)
def test_no_more_is_given_than_there_is_and_none_is_left_that_somebody_could_take(
    tasks: list[tuple[Level, int, str]], caps: dict[int, float]
) -> None:
    standings = [
        standing(f"t{number}", level=level, quota=quota, app=app)
        for number, (level, quota, app) in enumerate(tasks)
    ]
    limits = {Subject("task", f"t{n}"): Limit(rate_per_s=cap) for n, cap in caps.items()}

    given_ = rates(load_of(*standings, limits=limits))

    most = [caps.get(number, math.inf) for number in range(len(tasks))]
    assert sum(given_.values()) == pytest.approx(min(100.0, sum(most)))
    assert all(given_[f"t{n}"] <= cap + 1e-6 for n, cap in enumerate(most))


def test_a_task_alone_takes_its_backlog_over_the_rate() -> None:
    assert ends_in_s(load_of(standing("a", 500)), "a") == pytest.approx(5)


def test_the_share_grows_while_others_drain() -> None:
    """100 a second: a has 50 for 2 s, in which b is through, and then all of it."""
    load = load_of(standing("a", 300), standing("b", 100))

    assert ends_in_s(load, "b") == pytest.approx(2)
    assert ends_in_s(load, "a") == pytest.approx(4)


def test_a_task_that_starts_later_takes_its_share_from_then_on() -> None:
    later = standing("b", 500, not_before_ms=NOW_MS + 2_000)
    load = load_of(standing("a", 400), later)

    expected = forecast(load, "b", load.per_s())

    assert expected == pytest.approx((2, 9))
    assert ends_in_s(load, "a") == pytest.approx(6)


def test_tasks_of_a_pool_lane_go_one_after_the_other() -> None:
    older = standing("a", 200, Level.LOW, lane=LANE, created_at_ms=1)
    mine = standing("b", 300, Level.LOW, lane=LANE, created_at_ms=2)
    load = load_of(mine, older)

    assert forecast(load, "b", load.per_s()) == pytest.approx((2, 5))


def test_a_limit_sets_the_end() -> None:
    limits = {Subject("task", "a"): Limit(rate_per_s=10)}

    assert ends_in_s(load_of(standing("a", 100), limits=limits), "a") == pytest.approx(10)


def test_of_an_unknown_sink_or_backlog_no_end_is_told() -> None:
    endless = Standing(task_of("a", total=None), None)

    assert forecast(load_of(standing("a")), "a", None) is None
    assert forecast(load_of(endless), "a", 100.0) is None
    assert forecast(load_of(standing("a")), "other", 100.0) is None


def test_a_task_that_gets_nothing_for_ever_has_no_end() -> None:
    endless = Standing(task_of("a", total=None), None)
    load = load_of(endless, standing("b", level=Level.LOW), weights=Weights(1, 0, 0))

    assert forecast(load, "b", 100.0) is None


def test_the_end_among_very_many_tasks_is_exact() -> None:
    """They share equally: a task ends once each has sent as much as it has."""
    lefts = [100 + number for number in range(7_000)]
    load = load_of(*(standing(f"t{number}", left) for number, left in enumerate(lefts)))

    found = forecasts(load, [f"t{place}" for place in (0, 3_500, 6_999)], 100.0)

    for place in (0, 3_500, 6_999):
        sent = sum(min(left, lefts[place]) for left in lefts)
        assert found[f"t{place}"].ends_in_s == pytest.approx(sent / 100)


def test_a_busy_sink_is_taken_at_its_pace_and_an_idle_one_by_its_slots() -> None:
    """It delivers 40 a second; its ten slots could take 200."""
    sink = sink_now([process_of(busy_sink(40.0, delivery_s=0.05, in_flight=2))], "default")
    full = sink_now([process_of(busy_sink(40.0, delivery_s=0.05))], "default")
    limits = {Subject("task", "a"): Limit(rate_per_s=1)}
    sink_limit = {Subject("sink", "default"): Limit(rate_per_s=7)}

    assert load_of(standing("a"), sink=sink).per_s() == 40.0
    assert load_of(standing("a"), sink=sink).per_s(but="a") == pytest.approx(200)
    assert load_of(sink=sink).per_s() == pytest.approx(200)
    assert load_of(standing("a"), sink=full).per_s() == pytest.approx(200)
    assert load_of(standing("a"), sink=sink, limits=limits).per_s() == pytest.approx(200)
    assert load_of(sink=sink, limits=sink_limit).per_s() == 7.0


def test_what_a_limit_of_the_sink_lets_go_is_not_its_pace() -> None:
    """It delivers 29 of 200 a second for its limit of 30: without that it takes 200."""
    limits = {Subject("sink", "default"): Limit(rate_per_s=30)}
    sink = sink_now([process_of(busy_sink(29.0, delivery_s=0.05, in_flight=2))], "default")
    load = load_of(standing("a"), sink=sink, limits=limits)

    assert (load.pace_per_s(), load.per_s()) == (pytest.approx(200), 30)


@pytest.mark.parametrize(
    ("fields", "per_s"),
    [
        ({"created_at_ms": NOW_MS - 20_000}, 40),
        ({"created_at_ms": NOW_MS - 2_000}, 200),
        ({"not_before_ms": NOW_MS - 2_000}, 200),
        ({"not_before_ms": NOW_MS - 20_000}, 40),
    ],
)
def test_a_rate_is_its_pace_once_a_task_had_more_while_it_was_measured(
    fields: dict[str, int], per_s: float
) -> None:
    sink = sink_now([process_of(busy_sink(40.0, delivery_s=0.05, in_flight=2))], "default")
    load = load_of(standing("a", **fields), sink=sink)

    assert load.per_s(settled=True) == pytest.approx(per_s)
    assert load.per_s() == 40
