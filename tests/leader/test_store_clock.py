"""The clock that a leader destroys by: steps are found, and nothing is destroyed early."""

from __future__ import annotations

import pytest

from pushlane.backends.leases import SteadyClock, StoreClock

BEGIN_MS = 1_790_000_000_000
HOUR_S = 3600.0


class Times:
    """A store's clock, a machine's wall clock and its monotonic clock, each set by hand."""

    def __init__(self) -> None:
        self.store_ms = self.wall_ms = BEGIN_MS
        self.monotonic_s = 500.0
        self.clock = StoreClock(lambda: self.monotonic_s, lambda: self.wall_ms)

    def passes(self, seconds: float) -> None:
        self.store_ms += round(seconds * 1000)
        self.wall_ms += round(seconds * 1000)
        self.monotonic_s += seconds

    def hear(self) -> StoreClock:
        self.clock.heard(self.store_ms)
        return self.clock


def test_between_grants_it_goes_on_by_the_monotonic_clock() -> None:
    times = Times()
    times.hear()

    times.monotonic_s += 2.5
    times.wall_ms -= 3_600_000

    assert times.clock.now_ms() == BEGIN_MS + 2_500


def test_before_it_was_heard_it_is_this_machines() -> None:
    assert Times().clock.now_ms() == BEGIN_MS


@pytest.mark.parametrize(("apart_s", "side"), [(HOUR_S, "ahead of"), (-HOUR_S, "behind")])
def test_clocks_that_differ_are_doubted_until_they_agree(apart_s: float, side: str) -> None:
    times = Times()
    times.store_ms += round(apart_s * 1000)

    assert times.hear().doubt() == f"the store's clock is 3,600 s {side} this machine's"
    times.wall_ms = times.store_ms

    assert times.hear().doubt() == ""


@pytest.mark.parametrize(("step_s", "way"), [(HOUR_S, "forward"), (-HOUR_S, "back")])
def test_after_a_step_nothing_is_sure_for_ten_minutes(step_s: float, way: str) -> None:
    times = Times()
    times.hear()
    times.passes(3.0)
    times.store_ms += round(step_s * 1000)
    times.wall_ms = times.store_ms

    said = f"the clock stepped {way} by 3,600 s in the last 10 minutes"
    assert times.hear().doubt() == said
    times.passes(599.0)
    assert times.hear().doubt() == said
    times.passes(1.0)

    assert times.hear().doubt() == ""
    assert times.clock.now_ms() == times.store_ms


def test_less_than_a_minute_is_no_step() -> None:
    times = Times()
    times.hear()
    times.store_ms += 59_000

    assert times.hear().doubt() == ""


def test_a_process_that_was_stopped_before_it_heard_is_behind_never_ahead() -> None:
    times = Times()
    times.hear()
    said_ms = times.store_ms

    times.passes(HOUR_S)
    times.clock.heard(said_ms)

    assert times.clock.now_ms() <= times.store_ms
    assert times.clock.doubt()


def test_a_steady_clock_shows_no_step() -> None:
    times = Times()
    steady = SteadyClock(lambda: times.monotonic_s, lambda: times.wall_ms)

    times.passes(7.0)
    times.wall_ms -= 3_600_000

    assert steady() == BEGIN_MS + 7_000
