"""What the benchmark of peers makes of a log."""

from __future__ import annotations

import pytest

from bench.peers.apps.handler import WORK_S, work_s
from bench.peers.judge import (
    change_seen_s,
    jain_by_level,
    judge,
    late_times,
    rates,
    silence_s,
    skipped,
    utilisation,
)
from bench.peers.show import behind
from bench.peers.workload import LATE, NEW_WEIGHTS, SLOTS, Order, Times, backlog
from dev.receiver import ArrivalLine
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, Weights

ORDERS = [Order(level.value, level, 1_000) for level in Level]
FAIR = ["high", "medium", "high", "high", "medium", "high", "low", "high", "medium", "high"]
TIMES = Times(started_at=0.0, late_at=10.0, changed_at=20.0, ended_at=30.0)


def arrivals(
    levels: list[str], *, begin: float = 0.0, every: float = WORK_S / SLOTS
) -> list[ArrivalLine]:
    """Those levels again and again, one after another, each level with one task."""
    return [
        ArrivalLine(level, place + 1, level, begin + place * every)
        for place, level in enumerate(levels)
    ]


def late(ats: list[float]) -> list[ArrivalLine]:
    return [ArrivalLine(LATE.task, place + 1, "high", at) for place, at in enumerate(ats)]


def test_a_fair_order_that_keeps_all_slots_busy_is_perfect() -> None:
    row = judge(arrivals(FAIR * 1_000), ORDERS, TIMES)
    assert (row["share_error_max"], row["jain"]) == (0, 1)
    assert row["gap_max"] == {"high": 2, "medium": 4, "low": 10}
    assert row["utilisation"] == pytest.approx(1, abs=0.001)


def test_a_level_that_gets_nothing_has_no_fairness() -> None:
    row = judge(arrivals(["high"] * 10_000), ORDERS, TIMES)
    assert (row["share_error_max"], row["jain"]) == (40, 0)


def test_what_comes_after_the_late_task_says_nothing_of_fairness() -> None:
    log = arrivals(FAIR * 500) + arrivals(["low"] * 1_000, begin=TIMES.late_at)
    assert judge(log, ORDERS, TIMES)["share_error_max"] == 0


def test_tasks_of_a_level_served_one_after_the_other_are_unfair() -> None:
    orders = [Order(f"high-{number}", Level.HIGH, 100) for number in range(5)]
    log = [ArrivalLine("high-0", seq, "high", 0.0) for seq in range(100)]
    assert jain_by_level(log, orders)["high"] == pytest.approx(0.2)


def test_work_takes_its_time_on_average() -> None:
    times_s = [work_s(seq) for seq in range(1, 22)]
    assert sum(times_s) / len(times_s) == pytest.approx(WORK_S)
    assert (min(times_s), max(times_s)) == pytest.approx((0.09, 0.11))


def test_utilisation_counts_work_inside_the_time_only() -> None:
    log = [ArrivalLine("high", seq, "high", 1.0 - work_s(seq) + 0.05) for seq in range(SLOTS)]
    assert utilisation(log, 1.0, 1.1) == pytest.approx(0.5)


def test_a_late_task_is_timed_from_its_submit() -> None:
    log = late([10.25 + 0.01 * place for place in range(LATE.pushes)])
    assert late_times(log, 10.0) == (0.25, 1.24)


def test_a_late_task_is_incomplete_until_all_its_pushes_came() -> None:
    assert late_times(late([10.25]), 10.0) == (0.25, None)
    assert late_times(late([10.25] * 99) * 2, 10.0) == (0.25, None)  # a repeat is not another
    assert late_times([], 10.0) == (None, None)


def test_new_weights_show_when_low_gets_more_than_high() -> None:
    log = arrivals(FAIR * 25, begin=20.0) + arrivals(FAIR[:3] + ["low"] * 97, begin=20.5)
    assert change_seen_s(log, 20.0) == pytest.approx(0.54, abs=0.01)


def test_new_weights_that_never_show_have_no_time() -> None:
    assert change_seen_s(arrivals(FAIR * 500, begin=20.0), 20.0) is None


def test_the_silence_is_the_longest_pause_after_the_change() -> None:
    log = [ArrivalLine("high", seq, "high", at) for seq, at in enumerate([10, 19, 20, 21.5, 22])]
    assert silence_s(log, 20.0) == 1.5


def test_a_seq_that_never_came_is_skipped_when_much_later_ones_did() -> None:
    log = [arrival for arrival in arrivals(["high"] * 500) if arrival.seq not in (7, 450)]
    assert skipped(log) == [("high", 7)]


def test_too_little_to_judge_is_no_row() -> None:
    with pytest.raises(Unreachable, match="only 50 pushes"):
        judge(arrivals(FAIR * 5, begin=1.0), ORDERS, TIMES)


def test_rates_tell_the_late_task_apart() -> None:
    found = rates(arrivals(FAIR) + late([10.5]), TIMES)
    assert (found["high"][0], found["late"][10]) == (6, 1)


def test_no_level_runs_dry_at_full_rate() -> None:
    seconds, rate = 30.0, SLOTS / WORK_S
    pushes = {level: sum(o.pushes for o in backlog() if o.level is level) for level in Level}
    assert pushes[Level.HIGH] >= seconds * rate  # a strict priority gives it all
    before, after = Weights().by_level(), Weights.parse(NEW_WEIGHTS).by_level()
    for level in Level:
        assert pushes[level] > rate * (20 * before[level] + 10 * after[level]) / 10


def test_what_a_rival_does_better_is_named() -> None:
    ours = judge(arrivals(FAIR * 1_000), ORDERS, TIMES)
    rows = [{"system": "pushlane", **ours}, {"system": "rival", **ours, "late_first_push_s": 0.1}]
    assert [line.split(":")[0] for line in behind(rows)] == [
        "pushlane is behind rival in late_first_push_s"
    ]
    assert behind(rows[:1]) == []
