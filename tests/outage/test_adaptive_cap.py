"""A cap that finds out what a sink bears."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from pushlane.dispatcher.slow import AdaptiveCap


def land(cap: AdaptiveCap, count: int, latency_s: float = 0.1, *, is_error: bool = False) -> None:
    for _ in range(count):
        cap.landed(latency_s, cap.cap, is_error=is_error)


@given(
    floor=st.integers(1, 50),
    more=st.integers(0, 100),
    landings=st.lists(
        st.tuples(st.floats(0, 100), st.integers(0, 200), st.booleans()), max_size=400
    ),
)
def test_it_stays_within_its_bounds(
    floor: int, more: int, landings: list[tuple[float, int, bool]]
) -> None:
    cap = AdaptiveCap(floor, floor + more)
    for latency_s, in_flight, is_error in landings:
        cap.landed(latency_s, in_flight, is_error=is_error)
        assert floor <= cap.cap <= floor + more


@given(latency_s=st.floats(0.001, 30), ceiling=st.integers(2, 100))
def test_errors_bring_it_down_and_success_up_again(latency_s: float, ceiling: int) -> None:
    cap = AdaptiveCap(1, ceiling)
    land(cap, 3_000, latency_s, is_error=True)
    assert cap.cap == 1

    land(cap, 100 * ceiling + 1_000, latency_s)
    assert cap.cap == ceiling


@given(latency_s=st.floats(0.001, 30))
def test_growing_latency_brings_it_down_before_there_are_errors(latency_s: float) -> None:
    cap = AdaptiveCap(2, 64)
    land(cap, 500, latency_s)
    assert cap.cap == 64

    land(cap, 300, latency_s * 4)
    assert cap.cap < 32


def test_a_sink_that_is_slower_for_good_gets_its_places_back() -> None:
    cap = AdaptiveCap(2, 20)
    land(cap, 500, 0.1)
    land(cap, 100, 0.5)
    assert cap.cap == 2

    land(cap, 10_000, 0.5)
    assert cap.cap == 20


def test_what_was_never_full_shows_nothing_of_more() -> None:
    cap = AdaptiveCap(1, 100)
    land(cap, 3_000, is_error=True)

    for _ in range(1_000):
        cap.landed(0.1, 0, is_error=False)

    assert cap.cap == 1


def test_it_settles_about_where_a_sink_begins_to_queue() -> None:
    """A sink that serves 20 at once: with more in flight each takes longer in proportion."""
    cap = AdaptiveCap(1, 200)
    seen = []
    for _ in range(60_000):
        in_flight = cap.cap
        cap.landed(0.1 * max(1.0, in_flight / 20), in_flight, is_error=False)
        seen.append(in_flight)

    assert 18 <= min(seen[-20_000:]) <= max(seen[-20_000:]) <= 45
