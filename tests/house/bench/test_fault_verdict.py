"""How the fault benchmark judges: lost, repeated, on again, and whether a promise was kept."""

from __future__ import annotations

from typing import Any

import pytest

from bench.faults.verdict import Arrival, Bound, Repeat, Row, Tally


def arrival(seq: int, answer: str = "kept", at_s: float = 0.0, attempt: int = 1) -> Arrival:
    return Arrival("t1", seq, attempt, answer, at_s)


def tally(*arrivals: Arrival) -> Tally:
    counted = Tally()
    counted.add(arrivals)
    return counted


def test_what_never_arrived_is_lost() -> None:
    assert tally(arrival(1), arrival(3)).lost({"t1": 3, "t2": 1}) == [("t1", 2), ("t2", 1)]


@pytest.mark.parametrize("answer", ["429", "500", "reset", "hang"])
def test_what_was_refused_every_time_is_lost(answer: str) -> None:
    assert tally(arrival(1, answer), arrival(1, answer)).lost({"t1": 1}) == [("t1", 1)]


@pytest.mark.parametrize("answer", ["kept", "cut", "held"])
def test_what_was_kept_is_not_lost_whatever_its_sender_heard(answer: str) -> None:
    assert tally(arrival(1, answer)).lost({"t1": 1}) == []


def test_a_push_kept_again_is_a_duplicate_each_time() -> None:
    assert tally(arrival(1), arrival(1), arrival(1), arrival(2)).duplicates == 2


def test_a_push_that_was_refused_before_is_no_duplicate() -> None:
    assert tally(arrival(1, "500"), arrival(1, attempt=2)).duplicates == 0


def test_a_repeat_that_the_key_told_is_no_duplicate() -> None:
    counted = tally(arrival(1), arrival(1, "known"))
    assert (counted.duplicates, counted.arrivals) == (0, 2)


def test_what_was_refused_as_failed_and_comes_again_was_sent_again() -> None:
    counted = tally(arrival(1, "500"), arrival(1, attempt=2), arrival(2, "429"), arrival(2))
    assert (counted.sent_again, counted.duplicates) == (1, 0)


@pytest.mark.parametrize(
    ("answered_s", "struck_s", "age_s"),
    [
        (10.2, [10.1], 0.0),  # in flight
        (10.2, [10.23], 0.03),  # not counted yet
        (10.2, [9.9], 0.0),  # read by the receiving end after the kill
        (10.2, [10.23, 14.0], 0.03),  # it comes again only after a second kill
        (10.2, [9.0, 16.0], float("inf")),  # no fault between the two
    ],
)
def test_a_repeat_is_as_old_as_its_answer_was_at_the_fault_that_caused_it(
    answered_s: float, struck_s: list[float], age_s: float
) -> None:
    assert Repeat(10.0, answered_s, 15.0).age_s(struck_s) == pytest.approx(age_s)


def test_a_repeat_knows_when_the_push_first_came_and_was_answered() -> None:
    times = [
        ("500", 0.5),
        ("kept", 1.0),
        ("told", 1.5),
        ("kept", 4.0),
        ("kept", 6.0),
        ("told", 6.1),
    ]
    counted = tally(*(arrival(1, answer, at_s) for answer, at_s in times))
    assert counted.repeats == [
        Repeat(first_s=0.5, answered_s=1.5, at_s=4.0),
        Repeat(first_s=0.5, answered_s=float("inf"), at_s=6.0),
    ]
    assert counted.arrivals == 4


def test_the_busiest_50_ms_are_found() -> None:
    times = [0.0, 0.5, 0.52, 0.545, 0.555, 0.7]
    counted = tally(*(arrival(seq, at_s=at_s) for seq, at_s in enumerate(times, start=1)))
    assert counted.busiest_window == 3


def test_it_goes_on_with_the_first_new_push_after_the_mark() -> None:
    counted = tally(arrival(1, at_s=1.0))
    counted.mark(5.0)
    counted.add([arrival(2, at_s=4.9), arrival(1, at_s=5.5), arrival(3, at_s=6.0), arrival(4)])
    assert counted.first_since_mark_s == 6.0


def row(**changes: Any) -> Row:
    good = Row(
        fault="kill-random",
        mode="at_least_once",
        broker="embedded",
        runs=1,
        pushes=100,
        lost=0,
        duplicates=20,
        bound=Bound(lost=0, duplicates=20),
        buried=0,
        unfinished=0,
        recovery_s=0.3,
        rate_per_s=1_000.0,
    )
    return good._replace(**changes)


def test_a_row_within_its_bound_breaks_nothing() -> None:
    assert row().breaches == []


@pytest.mark.parametrize(
    ("changes", "breach"),
    [
        ({"lost": 1, "buried": 1}, "lost 1 of 100, bound 0"),
        (
            {"lost": 2, "buried": 1, "bound": Bound(lost=5, duplicates=20)},
            "lost 2, of which 1 are on the dead-letter lane",
        ),
        ({"duplicates": 21}, "repeated 21, bound 20"),
        ({"unprompted": 2}, "repeated 2 with no fault between"),
        ({"sent_again": 3}, "sent 3 again, of those that may have arrived"),
        ({"unfinished": 2}, "2 tasks did not end"),
        ({"deaths": 1}, "1 dispatchers ended by themselves, or badly"),
        ({"broken": ("asked 90 times",)}, "asked 90 times"),
        ({"recovery_s": float("inf")}, "did not go on after a fault"),
    ],
)
def test_each_promise_that_was_broken_is_named(changes: dict[str, Any], breach: str) -> None:
    assert row(**changes).breaches == [breach]


def test_the_closest_requests_since_it_was_watched_are_found_whatever_was_answered() -> None:
    counted = tally(arrival(1, at_s=1.0), arrival(2, at_s=1.25))
    counted.watch()
    times = [(3, 2.0), (4, 3.5), (5, 4.5)]
    counted.add([arrival(seq, "503", at_s) for seq, at_s in times])
    assert counted.closest_s == 1.0
