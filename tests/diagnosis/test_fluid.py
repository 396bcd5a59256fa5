"""One run for all ends is as exact as steps from event to event."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pushlane.core.names import pool_lanes
from pushlane.core.task import Level, Weights
from pushlane.diagnosis.fluid import Expected, forecasts
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import SinkLoad, Standing, entitled_rates, shared_by_lane
from tests.diagnosis.support import NOW_MS, load_of, task_of

LEVELS = tuple(Level)
PER_S = 500.0
WEIGHTS = [Weights(6, 3, 1), Weights(1, 1, 1), Weights(1, 0, 0), Weights(5, 3, 2)]


def stepped(load: SinkLoad, per_s: float) -> dict[str, Expected]:
    """Go from event to event, and share anew at each: slow, and plainly what is meant."""
    left = {one.task.id: float(one.backlog) for one in load.standings}
    starts = {one.task.id: (one.starts_at_ms(NOW_MS) - NOW_MS) / 1000 for one in load.standings}
    now_s, began, found = 0.0, {}, {}
    while True:
        going = [
            one
            for one in load.standings
            if left[one.task.id] > 1e-9 and starts[one.task.id] <= now_s + 1e-9
        ]
        heads = {lane: tasks[0].task.id for lane, tasks in shared_by_lane(going).items()}
        by_lane = entitled_rates(
            load, [one for one in going if heads[one.task.lane] == one.task.id], per_s
        )
        flows = {heads[lane]: rate for lane, rate in by_lane.items() if rate > 1e-9}
        events = [left[one] / rate for one, rate in flows.items()]
        events += [start - now_s for start in starts.values() if start > now_s + 1e-9]
        if not events or min(events) == float("inf"):
            return found
        step_s = min(events)
        for one, rate in flows.items():
            began.setdefault(one, now_s)
            left[one] -= rate * step_s
            if left[one] <= 1e-9 * max(1.0, rate * step_s):
                left[one] = 0.0
                found[one] = Expected(began[one], now_s + step_s)
        now_s += step_s


@st.composite
def loads(draw: st.DrawFn) -> SinkLoad:
    """Some tasks of several apps, some of a pool, some that start later, with limits on some."""
    rng = random.Random(draw(st.integers(0, 10**9)))
    has_limits = draw(st.booleans())
    standings, limits = [], {}
    for number in range(draw(st.integers(1, 25))):
        level = rng.choice(LEVELS)
        is_pooled = level is Level.LOW and rng.random() < 0.6
        task = task_of(
            f"t{number}",
            level,
            app=rng.choice("xyz"),
            quota=rng.choice([1, 1, 2, 5]),
            created_at_ms=rng.randrange(1, 10**6),
            not_before_ms=NOW_MS + rng.randrange(1, 90_000) if rng.random() < 0.3 else 0,
            **({"lane": rng.choice(pool_lanes(2))} if is_pooled else {}),
        )
        standings.append(Standing(task, rng.randrange(1, 20_000)))
        if has_limits and rng.random() < 0.4:
            limits[Subject("task", task.id)] = Limit(rate_per_s=rng.choice([1, 5, 50, 200]))
    for app in "xyz" if has_limits else "":
        part = rng.choice([None, 0.3, 0.6])
        limits[Subject("app", app)] = Limit(
            rate_per_s=rng.choice([None, 20, 100]), quota=rng.choice([None, 3]), high_part=part
        )
    return load_of(*standings, limits=limits, weights=draw(st.sampled_from(WEIGHTS)))


def ids(load: SinkLoad) -> list[str]:
    return [one.task.id for one in load.standings]


@given(loads())
def test_all_ends_are_those_of_steps_from_event_to_event(load: SinkLoad) -> None:
    found, expected = forecasts(load, ids(load), PER_S), stepped(load, PER_S)

    assert found.keys() == expected.keys()
    for task_id, one in expected.items():
        assert found[task_id] == pytest.approx(one, rel=1e-6, abs=1e-6), task_id


@given(loads(), st.data())
def test_more_quota_ends_no_task_later(load: SinkLoad, data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(load.standings))
    more = replace(chosen.task, quota=chosen.task.quota * 3)
    others = [one for one in load.standings if one is not chosen]
    changed = load_of(
        *others, Standing(more, chosen.left), limits=load.limits, weights=load.weights
    )

    before = forecasts(load, [more.id], PER_S).get(more.id)
    after = forecasts(changed, [more.id], PER_S).get(more.id)

    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.ends_in_s <= before.ends_in_s * (1 + 1e-6) + 1e-6


@given(loads())
def test_who_is_asked_about_changes_nothing(load: SinkLoad) -> None:
    everybody = forecasts(load, ids(load), PER_S)

    for task_id in ids(load)[:5]:
        assert forecasts(load, [task_id], PER_S).get(task_id) == everybody.get(task_id)


def test_what_gets_nothing_beside_others_begins_only_after_them() -> None:
    first = Standing(task_of("first", Level.HIGH, app="x"), 500)
    idle = Standing(task_of("idle", Level.MEDIUM, app="y"), 100)
    load = load_of(first, idle, weights=Weights(1, 0, 0))

    assert forecasts(load, ["idle"], PER_S)["idle"] == pytest.approx((1.0, 1.2))


def test_what_starts_as_another_takes_all_begins_only_after_that() -> None:
    """At that moment its level had the sink still, but what it gets is nothing."""
    at_ms = NOW_MS + 1_000
    going = Standing(task_of("going", Level.MEDIUM, app="x"), 5_000)
    first = Standing(task_of("first", Level.HIGH, app="x", not_before_ms=at_ms), 500)
    second = Standing(task_of("second", Level.MEDIUM, app="y", not_before_ms=at_ms), 100)
    load = load_of(going, first, second, weights=Weights(1, 0, 0))

    assert forecasts(load, ["second"], PER_S)["second"] == pytest.approx((2.0, 2.4))


def test_an_app_that_may_have_a_part_of_high_has_it_beside_others_of_a_level_without_weight() -> (
    None
):
    bound = Standing(task_of("bound", Level.HIGH, app="x"), 100)
    other = Standing(task_of("other", Level.HIGH, app="y"), 500)
    load = load_of(
        bound,
        other,
        weights=Weights(0, 1, 0),
        limits={Subject("app", "x"): Limit(high_part=0.25)},
    )

    assert forecasts(load, ["bound"], PER_S)["bound"] == pytest.approx((0.0, 0.8))


def test_a_task_of_the_pool_is_through_before_an_older_one_starts_at_that_moment() -> None:
    pool = pool_lanes(1)[0]
    young = task_of("young", Level.LOW, created_at_ms=2, lane=pool)
    old = task_of("old", Level.LOW, created_at_ms=1, lane=pool, not_before_ms=NOW_MS + 1_000)
    load = load_of(Standing(young, 500), Standing(old, 500))

    assert forecasts(load, ["young"], PER_S)["young"].ends_in_s == pytest.approx(1.0)
