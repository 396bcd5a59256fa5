"""The laws of the scheduler: shares, gaps, turns, and that nothing ever blocks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.task import Level, Weights
from pushlane.core.turns import Scheduler

Lane = tuple[Level, int]
ENTITLED = {Level.HIGH: 60, Level.MEDIUM: 30, Level.LOW: 10}
LONGEST_GAP = {Level.HIGH: 2, Level.MEDIUM: 4, Level.LOW: 10}


def backlogged(lanes_a_level: int = 1, weights: Weights | None = None) -> Scheduler[Lane]:
    scheduler: Scheduler[Lane] = Scheduler(weights)
    for level in Level:
        for number in range(lanes_a_level):
            scheduler.add((level, number), level)
            scheduler.ready((level, number))
    return scheduler


def serve(scheduler: Scheduler[Lane]) -> Lane | None:
    lane = scheduler.pick()
    if lane is not None:
        scheduler.charge()
    return lane


def served(scheduler: Scheduler[Lane], times: int) -> list[Lane]:
    lanes = [serve(scheduler) for _ in range(times)]
    assert None not in lanes
    return [lane for lane in lanes if lane is not None]


def share_error(levels: list[Level]) -> int:
    """The worst difference from the entitled count in any window of 100 picks."""
    windows = (levels[start : start + 100] for start in range(len(levels) - 99))
    return max(abs(window.count(level) - ENTITLED[level]) for window in windows for level in Level)


def longest_gap(levels: list[Level], level: Level) -> int:
    places = [-1, *(place for place, other in enumerate(levels) if other is level)]
    return max(after - before for before, after in pairwise(places))


def test_levels_interleave_as_6_3_1() -> None:
    picked = served(backlogged(), 10)

    assert "".join(level[0] for level, _ in picked) == "hmhhmhlhmh"


def test_a_lane_that_waits_for_an_answer_at_its_turn_has_that_turn_afterwards() -> None:
    scheduler: Scheduler[str] = Scheduler()
    for lane in "abcd":
        scheduler.add(lane, Level.HIGH)
        scheduler.ready(lane)
    first = "".join(serve(scheduler) for _ in range(4))

    assert scheduler.pick() == "a"
    scheduler.rest("a", is_next=True)
    meanwhile = serve(scheduler)
    scheduler.ready("a")

    assert (first, meanwhile) == ("abcd", "b")
    assert "".join(serve(scheduler) for _ in range(8)) == "acdbacdb"


@pytest.mark.parametrize("lanes_a_level", [1, 7, 20])
def test_a_full_backlog_is_shared_exactly_with_short_gaps(lanes_a_level: int) -> None:
    levels = [level for level, _ in served(backlogged(lanes_a_level), 1_000)]

    assert share_error(levels) == 0
    assert {level: longest_gap(levels, level) for level in Level} == LONGEST_GAP


step = st.sampled_from(["ready", "ready", "rest", "serve", "serve", "serve"])
slow_step = st.sampled_from(["ready", "ready", "rest", "serve", "serve", "slow", "bill"])
histories = st.lists(st.tuples(step, st.sampled_from(list(Level)), st.integers(0, 2)), max_size=150)
slow_histories = st.lists(
    st.tuples(slow_step, st.sampled_from(list(Level)), st.integers(0, 2)), max_size=150
)


def live_through(scheduler: Scheduler[Lane], history: list[tuple[str, Level, int]]) -> None:
    for action, level, number in history:
        if action == "serve":
            serve(scheduler)
        elif action == "slow":
            scheduler.set_rounds((level, number), 1 + 3 * number)
        elif action == "bill":
            scheduler.bill(level, 7.5, most=100)
        else:
            getattr(scheduler, action)((level, number))


@given(histories)
@settings(max_examples=300, deadline=None)
def test_whatever_went_before_the_share_error_is_at_most_one_pick(
    history: list[tuple[str, Level, int]],
) -> None:
    scheduler: Scheduler[Lane] = Scheduler()
    for level in Level:
        for number in range(3):
            scheduler.add((level, number), level)
    live_through(scheduler, history)

    for level in Level:
        for number in range(3):
            scheduler.ready((level, number))
    levels = [level for level, _ in served(scheduler, 250)]

    assert share_error(levels) <= 1


@given(slow_histories)
@settings(max_examples=300, deadline=None)
def test_it_is_work_conserving_and_never_picks_a_lane_that_rests(
    history: list[tuple[str, Level, int]],
) -> None:
    scheduler = backlogged(3)
    ready = {(level, number) for level in Level for number in range(3)}

    for action, level, number in history:
        if action == "ready":
            ready.add((level, number))
        elif action == "rest":
            ready.discard((level, number))
        live_through(scheduler, [(action, level, number)])

        assert (scheduler.pick() in ready) if ready else (scheduler.pick() is None)


def test_an_idle_levels_share_goes_to_the_others_in_proportion() -> None:
    scheduler = backlogged()

    scheduler.rest((Level.LOW, 0))
    levels = [level for level, _ in served(scheduler, 900)]

    assert (levels.count(Level.HIGH), levels.count(Level.MEDIUM)) == (600, 300)


def test_a_level_idle_for_long_brings_no_hoard() -> None:
    scheduler = backlogged()
    scheduler.rest((Level.HIGH, 0))
    served(scheduler, 10_000)

    scheduler.ready((Level.HIGH, 0))
    levels = [level for level, _ in served(scheduler, 200)]

    assert share_error(levels) <= 1


def test_a_level_that_is_empty_for_an_instant_loses_nothing() -> None:
    scheduler = backlogged()
    levels = []

    for _ in range(500):
        levels += [level for level, _ in served(scheduler, 1)]
        scheduler.rest((Level.LOW, 0))
        scheduler.ready((Level.LOW, 0))

    assert share_error(levels) <= 1


def test_a_level_of_weight_zero_is_served_only_when_no_other_can_be() -> None:
    scheduler = backlogged(weights=Weights(6, 3, 0))
    assert Level.LOW not in [level for level, _ in served(scheduler, 500)]

    scheduler.rest((Level.HIGH, 0))
    scheduler.rest((Level.MEDIUM, 0))

    assert serve(scheduler) == (Level.LOW, 0)


def test_lanes_of_a_level_take_turns_of_their_quota() -> None:
    scheduler: Scheduler[str] = Scheduler()
    for lane, quota in (("a", 1), ("b", 3), ("c", 2)):
        scheduler.add(lane, Level.HIGH, quota)
        scheduler.ready(lane)

    picked = []
    for _ in range(12):
        picked.append(scheduler.pick())
        scheduler.charge()

    assert "".join(map(str, picked)) == "abbbccabbbcc"


def test_a_quota_changed_in_mid_turn_counts_at_once() -> None:
    scheduler: Scheduler[str] = Scheduler()
    for lane in "ab":
        scheduler.add(lane, Level.HIGH, 5)
        scheduler.ready(lane)
    scheduler.pick()
    scheduler.charge()

    scheduler.set_quota("a", 2)
    picked = []
    for _ in range(3):
        picked.append(scheduler.pick())
        scheduler.charge()

    assert picked == ["a", "b", "b"]


def test_weights_changed_between_two_picks_hold_from_the_next() -> None:
    scheduler = backlogged()
    served(scheduler, 7)

    scheduler.set_weights(Weights(1, 1, 8))
    levels = [level for level, _ in served(scheduler, 100)]

    counts = (levels.count(Level.HIGH), levels.count(Level.MEDIUM), levels.count(Level.LOW))
    assert all(abs(count - due) <= 1 for count, due in zip(counts, (10, 10, 80), strict=True))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)), max_size=10))
@settings(max_examples=100)
def test_any_change_of_weights_at_any_time_keeps_the_new_shares(
    changes: list[tuple[int, int, int]],
) -> None:
    scheduler = backlogged(2)
    for high, medium, low in changes:
        served(scheduler, 3)
        scheduler.set_weights(Weights(high, medium, low))

    scheduler.set_weights(Weights())
    levels = [level for level, _ in served(scheduler, 300)]

    assert share_error(levels) <= 1


def test_a_new_lane_is_the_next_of_its_level() -> None:
    scheduler = backlogged(50)
    served(scheduler, 1_000)

    late = (Level.HIGH, 999)
    scheduler.add(late, Level.HIGH)
    scheduler.ready(late)

    assert late in served(scheduler, LONGEST_GAP[Level.HIGH] + 1)


def test_a_flood_of_new_lanes_does_not_starve_the_old_ones() -> None:
    scheduler: Scheduler[int] = Scheduler()
    old = list(range(5))
    for lane in old:
        scheduler.add(lane, Level.HIGH)
        scheduler.ready(lane)
        scheduler.pick()
        scheduler.charge()

    seen = set()
    for newcomer in range(100, 112):
        scheduler.add(newcomer, Level.HIGH)
        scheduler.ready(newcomer)
        seen.add(scheduler.pick())
        scheduler.charge()

    assert set(old) <= seen


def test_a_lane_that_turns_out_empty_costs_its_level_nothing() -> None:
    scheduler = backlogged(2)

    picked = []
    for _ in range(300):
        lane = scheduler.pick()
        assert lane is not None
        if lane[1] == 1:
            scheduler.rest(lane)
            continue
        scheduler.charge()
        picked.append(lane[0])

    assert share_error(picked) == 0


def test_a_removed_lane_is_forgotten() -> None:
    scheduler = backlogged()

    scheduler.remove((Level.HIGH, 0))

    assert (Level.HIGH, 0) not in served(scheduler, 50)
    with pytest.raises(KeyError):
        scheduler.ready((Level.HIGH, 0))


def test_ready_and_rest_may_be_said_twice() -> None:
    scheduler = backlogged()
    for say in (scheduler.ready, scheduler.ready, scheduler.rest, scheduler.rest):
        say((Level.HIGH, 0))

    assert (Level.HIGH, 0) not in served(scheduler, 20)


def test_a_lane_of_many_rounds_has_its_turn_after_so_many_of_the_others() -> None:
    scheduler = backlogged(3)
    slow = (Level.HIGH, 1)
    scheduler.set_rounds(slow, 5)
    high = [lane for lane in served(scheduler, 1_000) if lane[0] is Level.HIGH]

    places = [place for place, lane in enumerate(high) if lane == slow][2:]

    assert {after - before for before, after in pairwise(places)} == {2 * 5 + 1}


def test_lanes_that_all_have_many_rounds_wait_for_nobody() -> None:
    scheduler: Scheduler[str] = Scheduler()
    for lane, rounds in (("a", 200), ("b", 100)):
        scheduler.add(lane, Level.HIGH)
        scheduler.ready(lane)
        scheduler.set_rounds(lane, rounds)

    picked = []
    for _ in range(303):
        picked.append(scheduler.pick())
        scheduler.charge()

    assert picked[3:].count("b") == 2 * picked[3:].count("a")


def test_a_lane_that_is_quick_again_does_not_wait_for_the_round_it_was_due_in() -> None:
    scheduler = backlogged(2)
    scheduler.set_rounds((Level.HIGH, 0), 200)
    served(scheduler, 20)

    scheduler.set_rounds((Level.HIGH, 0), 1)

    assert (Level.HIGH, 0) in served(scheduler, 7)


def test_a_level_that_is_billed_steps_aside_for_what_it_owes_and_no_longer() -> None:
    scheduler = backlogged()
    served(scheduler, 30)

    scheduler.bill(Level.LOW, 10, most=1_000)
    levels = [level for level, _ in served(scheduler, 390)]

    assert Level.LOW not in levels[:90]
    assert (levels[:90].count(Level.HIGH), levels[:90].count(Level.MEDIUM)) == (60, 30)
    assert share_error(levels[90:]) <= 1


def test_what_a_level_may_owe_is_bounded() -> None:
    scheduler = backlogged()

    scheduler.bill(Level.LOW, 1_000_000, most=200)

    assert Level.LOW in [level for level, _ in served(scheduler, 195)]


def test_a_level_that_is_alone_owes_nobody() -> None:
    scheduler = backlogged()
    scheduler.rest((Level.HIGH, 0))
    scheduler.rest((Level.MEDIUM, 0))
    scheduler.bill(Level.LOW, 1_000, most=1_000)

    scheduler.ready((Level.HIGH, 0))

    assert Level.LOW in [level for level, _ in served(scheduler, 8)]


def test_levels_that_all_owe_share_among_themselves() -> None:
    scheduler = backlogged()
    for level, picks in ((Level.HIGH, 60), (Level.MEDIUM, 30), (Level.LOW, 10)):
        scheduler.bill(level, picks, most=1_000)

    assert share_error([level for level, _ in served(scheduler, 200)]) <= 1


def test_a_level_holds_no_more_slots_than_its_share_and_what_chance_adds() -> None:
    scheduler: Scheduler[Lane] = Scheduler(slots=50)
    for level in Level:
        scheduler.add((level, 0), level)
        scheduler.ready((level, 0))

    levels = []
    for _ in range(500):
        [(level, _)] = served(scheduler, 1)
        levels.append(level)
        if level is not Level.LOW:
            scheduler.slots_freed(level, 1)

    assert levels.count(Level.LOW) == 13


def test_a_level_of_long_deliveries_leaves_a_tenth_of_the_slots_to_those_that_are_away() -> None:
    scheduler: Scheduler[str] = Scheduler(slots=50)
    scheduler.add("low", Level.LOW)
    scheduler.add("high", Level.HIGH)
    scheduler.ready("low")
    scheduler.set_long(Level.LOW, True)

    lent = 0
    while scheduler.pick():
        scheduler.charge()
        lent += 1
    scheduler.ready("high")

    assert lent == 45
    assert scheduler.pick() == "high"


def test_a_level_that_holds_less_than_its_part_owes_nothing() -> None:
    scheduler: Scheduler[Lane] = Scheduler(slots=50)
    for level in Level:
        scheduler.add((level, 0), level)
        scheduler.ready((level, 0))
    scheduler.bill(Level.HIGH, 10_000, most=10_000)

    assert served(scheduler, 1)[0][0] is Level.HIGH


def test_a_level_that_was_away_owes_nothing_when_it_is_back() -> None:
    scheduler: Scheduler[Lane] = Scheduler(slots=50)
    for level in Level:
        scheduler.add((level, 0), level)
        scheduler.ready((level, 0))
    for _ in range(40):
        scheduler.slot_taken(Level.HIGH)
    scheduler.bill(Level.HIGH, 10_000, most=10_000)
    scheduler.rest((Level.HIGH, 0))
    scheduler.slots_freed(Level.HIGH, 40)

    scheduler.ready((Level.HIGH, 0))

    assert Level.HIGH in [level for level, _ in served(scheduler, 3)]


def test_a_level_of_weight_zero_does_not_go_before_one_that_owes() -> None:
    scheduler = backlogged(weights=Weights(6, 0, 0))
    scheduler.bill(Level.HIGH, 10_000, most=10_000)

    assert {level for level, _ in served(scheduler, 100)} == {Level.HIGH}


def test_a_level_at_its_cap_earns_no_hoard() -> None:
    scheduler: Scheduler[Lane] = Scheduler(slots=50)
    for level in Level:
        scheduler.add((level, 0), level)
        scheduler.ready((level, 0))

    levels = []
    for _ in range(4_000):
        [(level, _)] = served(scheduler, 1)
        levels.append(level)
        if level is not Level.HIGH:
            scheduler.slots_freed(level, 1)
    scheduler.slots_freed(Level.HIGH, levels.count(Level.HIGH))
    after = []
    for _ in range(120):
        after += [level for level, _ in served(scheduler, 1)]
        scheduler.slots_freed(after[-1], 1)

    others = [level for level in levels if level is not Level.HIGH]
    assert others.count(Level.MEDIUM) / len(others) == pytest.approx(0.75, abs=0.01)
    assert share_error(after) <= 2


def test_an_instant_in_which_no_other_is_ready_wipes_out_nothing() -> None:
    scheduler = backlogged()
    scheduler.bill(Level.LOW, 10, most=1_000)

    for say in (scheduler.rest, scheduler.ready):
        for level in (Level.HIGH, Level.MEDIUM):
            say((level, 0))

    assert Level.LOW not in [level for level, _ in served(scheduler, 80)]


def holding(scheduler: Scheduler[Lane], level: Level) -> int:
    """Count the slots that the level takes when its deliveries never end."""
    taken = 0
    for _ in range(200):
        lane = scheduler.pick()
        if lane is None:
            break
        scheduler.charge()
        taken += lane[0] is level
    return taken


def test_a_level_that_turns_quick_while_it_is_idle_has_its_cap_when_it_joins() -> None:
    scheduler: Scheduler[Lane] = Scheduler(slots=50)
    for level in Level:
        scheduler.add((level, 0), level)
        scheduler.ready((level, 0))
    scheduler.set_long(Level.HIGH, True)
    scheduler.rest((Level.HIGH, 0))
    served(scheduler, 8)

    scheduler.set_long(Level.HIGH, False)
    scheduler.ready((Level.HIGH, 0))

    assert holding(scheduler, Level.HIGH) == 42
