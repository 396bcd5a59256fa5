"""Shares of slots, on a sink with a clock of its own: who answers slowly holds no more than others.

Parts are of 50 slots and deliveries of 0.1 s, so 300, 150 and 50 a second.
"""

from __future__ import annotations

import itertools
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane.core.lane import Lane as CoreLane
from pushlane.core.task import Level, Weights
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.slow import Read, Shares, Stopwatch
from tests.fairness.sink_sim import (
    HIGH,
    LOW,
    MEDIUM,
    Lane,
    Sim,
    Times,
    five_each,
    fixed,
    random_about,
)

PARTS = {HIGH: 300, MEDIUM: 150, LOW: 50}
either = pytest.mark.parametrize("times", [fixed, random_about])


@either
@pytest.mark.parametrize("slots", [50, 5, 1])
def test_while_all_answer_alike_turns_alone_decide(times, slots) -> None:
    sim = Sim(five_each(times(0.1)), slots).run(40)

    assert sim.share_error() == 0
    assert not sim.ever_slow


@either
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_level_fifty_times_slower_holds_no_more_than_its_slots(times, seed) -> None:
    sim = Sim(five_each(times(0.1), low=times(5.0)), 50, seed=seed).run(60, count_from_s=15)

    assert [sim.held(level, 45) for level in PARTS] == pytest.approx([30, 15, 5], abs=1)
    assert sim.most_held[LOW] <= 13
    for level in (HIGH, MEDIUM):
        assert sim.rate(level, 0, 5) >= 0.80 * PARTS[level]
        assert sim.rate(level, 10, 60) >= 0.95 * PARTS[level]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_slow_task_of_a_level_takes_nothing_from_the_others(seed) -> None:
    lanes = five_each(random_about(0.1), high0=random_about(5.0))
    sim = Sim(lanes, 50, seed=seed).run(60, count_from_s=15)

    assert all(lane.rate(15, 60) >= 0.95 * 60 for lane in lanes[1:5])
    assert sim.rate(MEDIUM, 15, 60) >= 0.97 * 150
    assert sim.rate(LOW, 15, 60) >= 0.97 * 50
    assert [lane.held_s / 45 for lane in lanes[:5]] == pytest.approx([6] * 5, abs=1)


def test_slots_of_tasks_are_as_their_quotas_also_when_some_are_slow() -> None:
    slow, usual = Lane(HIGH, random_about(2.0), quota=2), Lane(HIGH, random_about(0.1), quota=3)
    Sim([slow, usual], 50).run(60, count_from_s=15)

    assert [slow.held_s / 45, usual.held_s / 45] == pytest.approx([20, 30], abs=2.5)


@pytest.mark.parametrize(("low_s", "within_s"), [(5.0, 0.3), (0.1, 0.05)])
def test_a_level_that_comes_back_finds_a_slot(low_s: float, within_s: float) -> None:
    late = Lane(HIGH, random_about(0.1), waits=lambda now_s: now_s >= 20)
    sim = Sim([late, Lane(LOW, random_about(low_s))], 50, seed=4).run(30)

    assert sim.picked_at[sim.picks.index(late)] <= 20 + within_s


def test_slots_are_kept_free_only_from_deliveries_that_are_long() -> None:
    lanes = [Lane(LOW, fixed(0.5)), Lane(LOW, fixed(5.0))]
    for lane in lanes:
        Sim([lane], 50).run(40, count_from_s=20)

    assert [lane.held_s / 20 for lane in lanes] == pytest.approx([50, 45], abs=0.5)


def test_who_answers_quickly_again_has_its_part_again() -> None:
    low: Times = lambda rolls, now_s: rolls.expovariate(1 / (5.0 if now_s < 30 else 0.1))  # noqa: E731
    sim = Sim(five_each(random_about(0.1), low=low), 50).run(75)

    assert sim.rate(LOW, 40, 75) >= 0.8 * PARTS[LOW]
    assert sim.rate(HIGH, 30, 75) >= 0.95 * PARTS[HIGH]


def test_deliveries_that_hang_are_noticed_before_they_end() -> None:
    low: Times = lambda rolls, now_s: rolls.expovariate(10) if now_s < 10 else 30.0  # noqa: E731
    sim = Sim(five_each(random_about(0.1), low=low), 50).run(100)

    assert sim.rate(HIGH, 10, 40) >= 0.75 * PARTS[HIGH]
    assert sim.rate(HIGH, 40, 100) >= 0.95 * PARTS[HIGH]


def test_a_level_a_fifth_slower_counts_as_alike() -> None:
    sim = Sim(five_each(random_about(0.1), low=random_about(0.12)), 50).run(60)

    assert sim.share_error() == 0


def test_microseconds_are_our_own() -> None:
    sim = Sim(five_each(fixed(0.0002), low=fixed(0.009)), 50).run(0.4)

    assert not sim.ever_slow


@either
@pytest.mark.parametrize("mixes", [False, True])
def test_a_sink_that_takes_batches_shares_its_slots_too(times, mixes: bool) -> None:
    alike = Sim(five_each(times(0.1)), 50, batch=10, mixes=mixes).run(40)
    low = {"low": times(5.0)}
    sim = Sim(five_each(times(0.1), **low), 50, batch=10, mixes=mixes).run(60, count_from_s=15)

    assert alike.share_error() <= 1
    assert [sim.held(level, 45) for level in PARTS] == pytest.approx([30, 15, 5], abs=1)


def test_many_small_slow_tasks_are_judged_by_their_level() -> None:
    small = [Lane(LOW, random_about(5.0)) for _ in range(400)]
    sim = Sim([*five_each(random_about(0.1))[:10], *small], 50).run(40, count_from_s=10)

    assert [sim.held(level, 30) for level in PARTS] == pytest.approx([30, 15, 5], abs=1)


def test_levels_hold_their_parts_though_there_are_more_lanes_than_one_look_is_at() -> None:
    lanes = [Lane(level, random_about(0.1)) for level in (HIGH, MEDIUM) for _ in range(300)]
    slow = [Lane(LOW, random_about(1.0)) for _ in range(300)]
    sim = Sim([*lanes, *slow], 800).run(6, count_from_s=3)

    assert [sim.held(level, 3) for level in PARTS] == pytest.approx([480, 240, 80], rel=0.08)


def test_of_many_lanes_a_page_is_looked_at_each_time_and_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler: Scheduler[Lane] = Scheduler(slots=4_096)
    shares: Shares[Lane] = Shares(scheduler, 4_096, ran_s=lambda: 0.0)
    lanes = [Lane(HIGH, fixed(0.1)) for _ in range(4_096)]
    for lane in lanes:
        scheduler.add(lane, lane.level)
    shares.took(0.0, lanes)
    read: list[Stopwatch] = []
    read_one = Stopwatch.read

    def noted(watch: Stopwatch, now_s: float) -> Read:
        read.append(watch)
        return read_one(watch, now_s)

    monkeypatch.setattr(Stopwatch, "read", noted)
    pages = []
    for look in range(16):
        shares.look(look / 16)
        pages.append(len(read) - sum(pages))

    assert pages == [512] * 16
    assert Counter(map(id, read)) == Counter(2 * list(map(id, read[:4_096])))
    assert len(set(map(id, read))) == 4_096


def test_looks_take_a_small_part_of_the_time() -> None:
    ran_s = itertools.count(0.0, 0.006)  # each look runs for 6 ms
    shares: Shares[Lane] = Shares(Scheduler(slots=1), 1, ran_s=lambda: next(ran_s))
    for now_ms in range(1_000):
        shares.look(now_ms / 1000)

    assert next(ran_s) / 2 <= 0.03 * 1.0 + 0.006


def test_a_sink_that_becomes_slow_for_all_has_no_slow_lanes_for_long() -> None:
    times: Times = lambda rolls, now_s: rolls.expovariate(1 / (0.1 if now_s < 20 else 1.0))  # noqa: E731
    sim = Sim(five_each(times), 50).run(120, count_from_s=60)

    assert [sim.held(level, 60) for level in PARTS] == pytest.approx([30, 15, 5], abs=1.5)
    assert not sim.shares.slow()


def test_what_is_slow_is_told_until_it_has_been_idle_for_a_while() -> None:
    slow = Lane(HIGH, fixed(2.0), waits=lambda now_s: 5 < now_s < 30)
    usual = Lane(HIGH, fixed(0.1))
    sim = Sim([slow, usual], 50)

    sim.run(29)
    [told] = sim.shares.slow()
    sim.run(50)

    assert told.lane is slow
    assert told.times == pytest.approx(20, rel=0.2)
    assert 1_005 < told.since_s < 1_010
    assert not sim.shares.slow()


def test_lanes_that_hold_most_slots_are_told_until_theirs_have_landed() -> None:
    shares: Shares = Shares(Scheduler(slots=50), 50)
    lanes = [CoreLane(f"task-{number}", HIGH) for number in range(30)]
    holds = [shares.took(1.0, [lane] * (number + 1)) for number, lane in enumerate(lanes)]

    told = shares.slots(20)
    assert told == {f"task-{number}": number + 1 for number in range(10, 30)}

    shares.gave(2.0, holds.pop())
    assert "task-29" not in shares.slots(20)

    lanes[28].level = LOW  # moved while its pushes are under way
    shares.took(3.0, [lanes[28]])
    assert shares.slots(1) == {"task-28": 30}


def test_a_lane_that_was_removed_may_still_land() -> None:
    slow, usual = Lane(LOW, fixed(2.0)), Lane(LOW, fixed(0.1))
    sim = Sim([slow, usual], 50).run(10)

    sim.scheduler.remove(slow)
    sim.lanes.remove(slow)
    sim.run(30)

    assert not slow.in_flight
    assert not sim.shares.slow()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_was_slow_before_all_are_goes_on_beside_them(seed: int) -> None:
    """What it owes was counted in deliveries as short as they were before."""
    times: Times = lambda rolls, now_s: rolls.expovariate(1 / (0.1 if now_s < 20 else 5.0))  # noqa: E731
    lanes = five_each(times, high=random_about(5.0))
    sim = Sim(lanes, 50, seed=seed).run(80)

    high = [at_s for at_s, lane in zip(sim.picked_at, sim.picks, strict=True) if lane.level is HIGH]
    assert max(after - before for before, after in pairwise(high)) <= 5.0


def test_a_level_of_long_deliveries_finds_what_was_kept_for_it() -> None:
    late = Lane(HIGH, fixed(5.0), waits=lambda now_s: 5 < now_s < 15 or now_s > 41)
    sim = Sim([late, Lane(LOW, fixed(5.0))], 50).run(50)

    back = [at_s for at_s, lane in zip(sim.picked_at, sim.picks, strict=True) if lane is late]
    assert min(at_s for at_s in back if at_s > 41) <= 41.3


def test_a_lane_that_changed_its_level_starts_anew_there() -> None:
    moved = Lane(LOW, lambda rolls, now_s: 5.0 if now_s < 10 else 0.1)
    sim = Sim([moved, Lane(LOW, fixed(0.1)), Lane(HIGH, fixed(0.1))], 50).run(10)

    sim.scheduler.remove(moved)
    moved.level = HIGH
    sim.scheduler.add(moved, HIGH)
    sim.scheduler.ready(moved)
    sim.run(40)

    assert moved.rate(15, 40) >= 0.9 * sim.lanes[2].rate(15, 40)


def test_the_time_in_which_this_process_was_stopped_is_nobodys() -> None:
    sim = Sim(five_each(random_about(0.1)), 50).run(20)

    sim.sleep(60.0)
    sim.run(120)

    assert not sim.ever_slow


PHASE_S = 4.0
Phase = tuple[float, float, float]
"""For each level how long a delivery takes in a phase; 0 when the level has nothing to send."""

phase = st.tuples(*[st.sampled_from([0.0, 0.02, 0.1, 0.9, 1.1, 3.0])] * 3)
uneven = st.sampled_from([Weights(), Weights(5, 3, 2), Weights(1, 1, 1), Weights(1000, 1, 1)])


@given(st.lists(phase, min_size=1, max_size=8), uneven, st.sampled_from([1, 5, 50]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_levels_that_empty_fill_and_turn_slow_or_quick_keep_the_sink_going(
    phases: list[Phase], weights: Weights, slots: int, flickers: bool
) -> None:
    """Given means that cross a second both ways, when levels come and go, then none is lost.

    A minute after all answer alike again, levels have what their weights say.
    """
    settles_s = PHASE_S * len(phases) + 60
    lanes = [_by_phase(place, level, phases, flickers) for place, level in enumerate(Level)]
    sim = Sim(lanes, slots, weights=weights)

    for tenth in range(1, round(10 * settles_s)):
        sim.run(tenth / 10)
        is_ready = any(sim.scheduler.has_ready(level) for level in Level)
        assert not is_ready or any(lane.in_flight for lane in lanes)
    sim.run(settles_s + 60)

    entitled = weights.by_level()
    total = sum(entitled.values())
    for lane in lanes:
        part = lane.rate(settles_s, settles_s + 60) / (slots / 0.1)
        assert part == pytest.approx(entitled[lane.level] / total, abs=0.02)


def _by_phase(place: int, level: Level, phases: list[Phase], flickers: bool) -> Lane:
    def takes_s(now_s: float) -> float:
        at = int(now_s / PHASE_S)
        return phases[at][place] if at < len(phases) else 0.1

    def has_more(now_s: float) -> bool:
        return takes_s(now_s) > 0 and not (flickers and now_s % 0.7 < 0.3 and now_s < 30)

    return Lane(level, lambda rolls, now_s: takes_s(now_s), waits=has_more)
