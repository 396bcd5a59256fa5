"""What the benchmarks of sinks and of several processes make of a log."""

from __future__ import annotations

import pytest

from bench.cpu import middle
from bench.scale import Phase, rate_per_s
from dev.receiver import ArrivalLine


def test_slots_that_end_together_make_the_rate_of_whole_rounds() -> None:
    log = [ArrivalLine("t", n, "high", n // 50 / 10) for n in range(5_000)]

    assert middle(log, 50).rate == pytest.approx(500)


def test_a_slow_start_and_end_are_left_out() -> None:
    log = [ArrivalLine("t", n, "high", n / 1_000) for n in range(2_000)]
    log = [log[0]._replace(at_s=-60.0), *log[1:-1], log[-1]._replace(at_s=60.0)]

    assert middle(log, 50).rate == pytest.approx(1_000)


def test_the_rate_of_a_phase_counts_only_its_own_arrivals() -> None:
    log = [ArrivalLine("t", n, "high", n / 100) for n in range(1_000)]

    assert rate_per_s(log, Phase(2, 3.0, 7.0)) == pytest.approx(100)
