"""What the benchmarks of late tasks and of changed quotas make of a log."""

from __future__ import annotations

import pytest

from bench.late import Late
from bench.late_task import bound_s, due_share, p99
from bench.quota_change import Change, due, effective_s
from dev.receiver import ArrivalLine
from pushlane.core.task import Weights

TASKS = ("first", "second", "medium", "low")


def log(*parts: tuple[str, int]) -> list[ArrivalLine]:
    """Arrivals a hundredth of a second apart, each part's pattern repeated so often."""
    letters = {"f": "first", "s": "second", "m": "medium", "l": "low"}
    order = "".join(pattern * times for pattern, times in parts)
    return [ArrivalLine(letters[one], n, "", n / 100) for n, one in enumerate(order, start=1)]


def change(quota: int = 1) -> Change:
    return Change("quota", 0.0, 100.0, due(TASKS, quota, Weights()))


def test_a_late_task_waits_from_when_it_was_handed_in() -> None:
    late = Late(handed_in_s=10.0, submitted_s=10.3, first_s=10.4, last_s=12.0)

    assert late.first_push_s == pytest.approx(0.4)
    assert late.completion_s == pytest.approx(2.0)


def test_a_late_task_is_due_half_of_what_high_gets_without_medium() -> None:
    assert due_share() == pytest.approx(6 / 7 / 2)


def test_the_bound_is_notice_a_free_slot_and_two_turns_and_the_other_lane() -> None:
    assert bound_s(2_000) == pytest.approx(0.25 + 0.05 + (2 + 1 / 0.6) / 2_000)


def test_p99_of_twenty_is_the_longest() -> None:
    assert p99([1.0] * 19 + [7.0]) == 7.0


def test_shares_due_follow_quota_and_weights() -> None:
    shares = due(TASKS, 3, Weights(1, 3, 6))

    assert shares == pytest.approx({"first": 0.075, "second": 0.025, "medium": 0.3, "low": 0.6})


def test_a_change_cannot_show_before_a_whole_window_has_come() -> None:
    assert effective_s(log(("fffsssmmml", 50)), change()) == pytest.approx(0.99)


def test_the_old_share_is_counted_until_it_has_left_the_window() -> None:
    after = log(("fffsssmmml", 20), ("fffffssmmml", 100))

    shown_s = effective_s(after, Change("quota", 0.0, 100.0, due(TASKS, 3, Weights())))

    assert 2.0 < shown_s < 3.1


def test_a_window_that_slips_back_counts_too() -> None:
    after = log(("fffsssmmml", 20), ("s", 20), ("fffsssmmml", 20))

    assert effective_s(after, change()) > 2.0
