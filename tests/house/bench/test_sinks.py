"""How the benchmark of several sinks reads logs."""

from __future__ import annotations

import pytest

from bench.isolation import Window, rounds_per_s
from bench.sinks import most_within
from dev.receiver import ArrivalLine


def at(times_s: list[float]) -> list[ArrivalLine]:
    return [ArrivalLine("t", seq, "low", at_s) for seq, at_s in enumerate(times_s, 1)]


def test_a_rate_is_that_of_whole_rounds() -> None:
    rounds = at([start_s + late_s for start_s in range(10) for late_s in (0.0, 0.001, 0.3)])

    assert rounds_per_s(rounds, 3, Window(0.0, 8.2)) == pytest.approx(3.0)


@pytest.mark.parametrize("times_s", [[], [1.0], [1.0, 1.1]])
def test_less_than_a_round_is_no_rate(times_s: list[float]) -> None:
    assert rounds_per_s(at(times_s), 3, Window(0.0, 9.0)) == 0.0


def test_the_worst_seconds_are_found_wherever_they_begin() -> None:
    assert most_within([0.0, 5.0, 5.9, 5.1, 5.5, 9.0], 1.0) == 4
    assert most_within([], 1.0) == 0
