"""The laws of apps in the scheduler: turns by quota, and no more of the high level than their part.

A lane is named by its app and a number.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.task import Level, Weights
from pushlane.core.turns import Scheduler

Lane = tuple[str, int]
Step = tuple[str, int]

quotas = st.integers(1, 5)
parts = st.sampled_from([0.05, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0])
steps = st.lists(
    st.tuples(
        st.sampled_from(["ready", "ready", "rest", "again", "slow", "quota", *["serve"] * 4]),
        st.integers(0, 5),
    ),
    max_size=150,
)


def add(
    scheduler: Scheduler[Lane], app: str, lanes: int = 1, level: Level = Level.HIGH, first: int = 0
) -> None:
    """Give the app so many lanes that are ready."""
    for number in range(first, first + lanes):
        scheduler.add((app, number), level, app=app)
        scheduler.ready((app, number))


def served(scheduler: Scheduler[Lane], times: int) -> list[Lane]:
    lanes = []
    for _ in range(times):
        lane = scheduler.pick()
        assert lane is not None
        scheduler.charge()
        lanes.append(lane)
    return lanes


def counts(scheduler: Scheduler[Lane], times: int) -> Counter[str]:
    return Counter(app for app, _ in served(scheduler, times))


def apps_of(lanes: list[Lane]) -> str:
    return "".join(app for app, _ in lanes)


def do(scheduler: Scheduler[int], app: str, step: Step) -> int | None:
    """Take a step with one of six lanes; the lane that was served, if one was."""
    action, lane = step
    match action:
        case "serve":
            picked = scheduler.pick()
            if picked is not None:
                scheduler.charge()
            return picked
        case "again":
            scheduler.remove(lane)
            scheduler.add(lane, list(Level)[lane % 2], 1 + lane % 3, app)
        case "slow":
            scheduler.set_rounds(lane, 1 + 2 * lane)
        case "quota":
            scheduler.set_quota(lane, 1 + lane)
        case "ready":
            scheduler.ready(lane)
        case "rest":
            scheduler.rest(lane)
    return None


@given(steps, quotas)
@settings(max_examples=100, deadline=None)
def test_with_one_app_the_order_is_as_without_apps(history: list[Step], quota: int) -> None:
    without: Scheduler[int] = Scheduler()
    with_one: Scheduler[int] = Scheduler()
    with_one.set_app_quota("shop", quota)
    for lane in range(6):
        without.add(lane, list(Level)[lane % 2], 1 + lane % 3)
        with_one.add(lane, list(Level)[lane % 2], 1 + lane % 3, "shop")

    order = [do(without, "", step) for step in history]

    assert [do(with_one, "shop", step) for step in history] == order


def test_an_app_of_a_thousand_tasks_takes_turns_with_one_of_one_task() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    add(scheduler, "a", 1_000)
    add(scheduler, "b")

    assert apps_of(served(scheduler, 3_000)) == "ab" * 1_500


@given(
    st.lists(st.tuples(quotas, st.lists(quotas, min_size=1, max_size=4)), min_size=2, max_size=5)
)
@settings(max_examples=100, deadline=None)
def test_apps_share_by_their_quotas_and_tasks_of_an_app_by_theirs(
    apps: list[tuple[int, list[int]]],
) -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for number, (app_quota, task_quotas) in enumerate(apps):
        scheduler.set_app_quota(f"a{number}", app_quota)
        for task, quota in enumerate(task_quotas):
            scheduler.add((f"a{number}", task), Level.HIGH, quota, f"a{number}")
            scheduler.ready((f"a{number}", task))

    rounds = 12
    lanes = Counter(served(scheduler, rounds * sum(app_quota for app_quota, _ in apps)))

    for number, (app_quota, task_quotas) in enumerate(apps):
        of_app = [lanes[f"a{number}", task] for task in range(len(task_quotas))]
        assert sum(of_app) == rounds * app_quota
        turns, rest = divmod(sum(of_app), sum(task_quotas))
        for count, quota in zip(of_app, task_quotas, strict=True):
            assert turns * quota <= count <= turns * quota + min(quota, rest)


def test_a_task_goes_on_with_its_turn_in_the_next_turn_of_its_app() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for task, quota in (("a", 0), 3), (("a", 1), 1), (("b", 0), 1):
        scheduler.add(task, Level.HIGH, quota, task[0])
        scheduler.ready(task)
    scheduler.set_app_quota("a", 2)

    of_a = [number for app, number in served(scheduler, 12) if app == "a"]

    assert of_a == [0, 0, 0, 1, 0, 0, 0, 1]


def test_a_new_lane_is_the_next_of_its_app_and_a_new_app_of_its_level() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for app in "abc":
        add(scheduler, app, 20)
    served(scheduler, 90)

    add(scheduler, "b", first=99)
    add(scheduler, "new")

    assert served(scheduler, 1) == [("new", 0)]
    assert ("b", 99) in served(scheduler, 3)


def test_a_flood_of_new_apps_does_not_starve_the_others() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for app in "abc":
        add(scheduler, app)
    served(scheduler, 30)

    order = []
    for number in range(20):
        add(scheduler, f"new{number}")
        order += served(scheduler, 1)

    assert order[0] == ("new0", 0)
    assert {("a", 0), ("b", 0), ("c", 0)} <= set(order[:8])


def test_an_app_that_is_empty_for_an_instant_keeps_its_place() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for app in "abc":
        add(scheduler, app)
    served(scheduler, 7)

    order = []
    for _ in range(30):
        order += served(scheduler, 1)
        scheduler.rest(("b", 0))
        scheduler.ready(("b", 0))

    assert Counter(apps_of(order)) == {"a": 10, "b": 10, "c": 10}


def test_a_lane_without_an_app_takes_turns_as_if_it_were_one() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    add(scheduler, "a", 50, Level.LOW)
    for number in range(3):
        scheduler.add(("", number), Level.LOW)
        scheduler.ready(("", number))

    assert counts(scheduler, 400) == {"a": 100, "": 300}


def test_an_apps_quota_holds_from_the_next_push_and_that_of_every_app_for_those_without() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_app_quota("a", 1_000)
    for app in "abc":
        add(scheduler, app)
    served(scheduler, 500)

    scheduler.set_app_quota("a", 4)
    scheduler.set_app_quota("*", 2)
    served(scheduler, 9)

    assert counts(scheduler, 80) == {"a": 40, "b": 20, "c": 20}
    scheduler.set_app_quota("a", None)
    served(scheduler, 6)
    assert counts(scheduler, 60) == {"a": 20, "b": 20, "c": 20}


def test_an_app_of_slow_lanes_has_turns_as_seldom_as_they() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    add(scheduler, "slow", 3)
    add(scheduler, "b", 2)
    for number in range(3):
        scheduler.set_rounds(("slow", number), 10)
    served(scheduler, 100)

    assert counts(scheduler, 1_100) == {"slow": 100, "b": 1_000}


def test_an_app_alone_in_high_has_its_part_and_other_levels_have_the_rest() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_high_part("a", 0.5)
    add(scheduler, "a", 10)
    add(scheduler, "medium", level=Level.MEDIUM)
    add(scheduler, "low", level=Level.LOW)

    assert counts(scheduler, 4_000) == {"a": 1_200, "medium": 2_100, "low": 700}


def test_an_app_beside_another_has_its_part_and_the_other_what_is_left() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_high_part("a", 0.25)
    add(scheduler, "a", 10)
    add(scheduler, "b")
    add(scheduler, "low", level=Level.LOW)

    found = counts(scheduler, 7_000)

    assert found["low"] == 1_000
    assert found["a"] == pytest.approx(1_500, abs=2)


def test_a_part_costs_nothing_while_nobody_else_is_there() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_high_part("*", 0.1)
    add(scheduler, "a", 2)

    assert counts(scheduler, 100) == {"a": 100}


def test_a_part_that_is_lifted_holds_no_longer() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_high_part("*", 0.001)
    add(scheduler, "a")
    add(scheduler, "b")
    add(scheduler, "low", level=Level.LOW)
    served(scheduler, 50)

    scheduler.set_high_part("a", 1)

    found = counts(scheduler, 700)
    assert found["low"] == pytest.approx(100, abs=1)
    assert found["a"] >= 590


def filled(apps: list[tuple[int, float]]) -> list[float]:
    """What each app is due of the high level: by quota, but no more than its part."""
    due = [0.0] * len(apps)
    left, open_ones = 1.0, set(range(len(apps)))
    while open_ones:
        quota_sum = sum(apps[one][0] for one in open_ones)
        full = {one for one in open_ones if left * apps[one][0] / quota_sum >= apps[one][1]}
        for one in full or open_ones:
            due[one] = apps[one][1] if full else left * apps[one][0] / quota_sum
        left -= sum(due[one] for one in full)
        open_ones = open_ones - full if full else set()
    return due


@given(
    st.lists(st.tuples(quotas, parts), min_size=1, max_size=6), st.sampled_from(["ml", "m", "l"])
)
@settings(max_examples=100, deadline=None)
def test_high_is_shared_by_quota_up_to_each_apps_part_and_others_have_the_rest(
    apps: list[tuple[int, float]], others: str
) -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for number, (quota, part) in enumerate(apps):
        scheduler.set_app_quota(f"a{number}", quota)
        scheduler.set_high_part(f"a{number}", part)
        add(scheduler, f"a{number}", 2)
    weights = {"m": 3, "l": 1}
    for other in others:
        add(scheduler, other, level=Level.MEDIUM if other == "m" else Level.LOW)
    picks = 12_000
    found = counts(scheduler, picks)

    rest = sum(weights[other] for other in others)
    of_high = picks * 6 / (6 + rest)
    due = filled(apps)
    high = of_high * sum(due)
    for other in others:
        assert found[other] == pytest.approx((picks - high) * weights[other] / rest, abs=2)
    for number, share in enumerate(due):
        app = f"a{number}"
        assert found[app] <= of_high * apps[number][1] + 3 * apps[number][0] + 3
        assert found[app] == pytest.approx(of_high * share, rel=0.2, abs=15)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ready", "ready", "rest", "slow", "part", *["serve"] * 3]),
            st.integers(0, 11),
            parts,
        ),
        max_size=150,
    )
)
@settings(max_examples=100, deadline=None)
def test_with_parts_it_is_work_conserving_and_fair_to_levels_again_once_they_are_gone(
    history: list[tuple[str, int, float]],
) -> None:
    scheduler: Scheduler[int] = Scheduler()
    ready = set()
    for lane in range(12):
        scheduler.add(lane, list(Level)[lane // 6 if lane < 11 else 2], app=f"a{lane % 4}")
    for action, lane, part in history:
        if action == "part":
            scheduler.set_high_part(f"a{lane % 4}", part)
        elif action == "serve":
            picked = scheduler.pick()
            assert (picked in ready) if ready else (picked is None)
            if picked is not None:
                scheduler.charge()
        elif action == "slow":
            scheduler.set_rounds(lane, 1 + lane)
        else:
            (ready.add if action == "ready" else ready.discard)(lane)
            (scheduler.ready if action == "ready" else scheduler.rest)(lane)

    for lane in range(12):
        scheduler.ready(lane)
    for app in range(4):
        scheduler.set_high_part(f"a{app}", None)
    levels = Counter(level_of(scheduler) for _ in range(100))

    for level, due in zip(Level, (60, 30, 10), strict=True):
        assert abs(levels[level] - due) <= 1


def level_of(scheduler: Scheduler[int]) -> Level:
    """The level of the lane that was served."""
    lane = scheduler.pick()
    assert lane is not None
    scheduler.charge()
    return list(Level)[lane // 6 if lane < 11 else 2]


def test_weights_changed_while_parts_are_set_hold_from_the_next_pick() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_high_part("a", 0.5)
    add(scheduler, "a")
    add(scheduler, "low", level=Level.LOW)
    served(scheduler, 13)

    scheduler.set_weights(Weights(1, 0, 1))

    assert scheduler.weights() == {Level.HIGH: 1, Level.MEDIUM: 0, Level.LOW: 1}
    assert counts(scheduler, 400) == {"a": 100, "low": 300}


def test_apps_that_come_and_go_are_forgotten() -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    scheduler.set_high_part("*", 0.2)
    add(scheduler, "stays")
    for number in range(50):
        add(scheduler, f"a{number}")
        served(scheduler, 3)
        scheduler.remove((f"a{number}", 0))

    assert list(islice({app for app, _ in served(scheduler, 20)}, 2)) == ["stays"]
