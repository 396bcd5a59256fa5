"""What a lane did when: the milliseconds in each state are its age, in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushlane.dispatcher.lane_times import LaneTimes, LineTimes
from pushlane.model.waits import Cause

BEGAN_MS = 8_640_000_000.0
LEAST_MS = 10.0
"""Turns that are closer than this need not be told apart."""

STATES = [
    None,
    Cause.FORMAT,
    Cause.REGISTRY,
    Cause.PAUSED,
    Cause.LIMIT,
    Cause.KEYS,
    Cause.BREAKER,
    Cause.DURABLE,
    Cause.DELAY,
    Cause.FEED,
]
"""All that a lane's state can be."""

OF_LINE = [None, Cause.BREAKER, Cause.DURABLE]
WAIT_MS = st.one_of(st.floats(LEAST_MS, 100), st.floats(LEAST_MS, 1e6))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), WAIT_MS, st.sampled_from(STATES)),
        st.tuples(st.just("line"), WAIT_MS, st.sampled_from(OF_LINE)),
        st.tuples(st.just("chose"), WAIT_MS, st.floats(0, 1)),
        st.tuples(st.just("look"), WAIT_MS, st.none()),
    ),
    max_size=40,
)
Step = tuple[str, float, Any]


class Played:
    """A lane through which some steps went, with the times between them."""

    def __init__(self, steps: list[Step]) -> None:
        self.line = LineTimes(BEGAN_MS)
        self.lane = LaneTimes(BEGAN_MS, self.line)
        self.ends_ms = [BEGAN_MS]
        self.did: list[Cause | None] = []
        for what, waited_ms, value in steps:
            self.did.append(self.cause)
            now_ms = self.ends_ms[-1] + waited_ms
            self.ends_ms.append(now_ms)
            if what == "turn":
                self.lane.turn(value, now_ms)
            elif what == "line":
                self.line.turn(value, now_ms)
            elif what == "chose":
                self.lane.chose(waited_ms * value, now_ms)
            else:
                self.lane.look(now_ms, now_ms - BEGAN_MS)

    @property
    def cause(self) -> Cause | None:
        """What it waits for now: its line comes first, but for what is its own."""
        state, of_line = self.lane.state, self.line.cause
        own = {Cause.FORMAT, Cause.REGISTRY, Cause.PAUSED}
        if of_line is Cause.BREAKER and state not in own:
            return of_line
        return of_line if of_line is Cause.DURABLE and state in (None, Cause.FEED) else state

    def pieces(self) -> Iterator[tuple[float, float, Cause | None]]:
        for (from_ms, to_ms), cause in zip(pairwise(self.ends_ms), self.did, strict=True):
            yield from_ms, to_ms, cause


@given(STEPS, st.floats(0, 1), st.floats(0, 1))
def test_the_numbers_between_two_times_add_up_to_that_time(
    steps: list[Step], one: float, other: float
) -> None:
    played = Played(steps)
    age_ms = played.ends_ms[-1] - BEGAN_MS
    from_ms, to_ms = (BEGAN_MS + age_ms * part for part in sorted((one, other)))

    parts = played.lane.between(from_ms, to_ms)

    assert sum(parts.values()) == pytest.approx(to_ms - from_ms, abs=1e-4)
    assert min(parts.values(), default=0.0) >= -1e-4


@given(STEPS)
def test_each_state_has_the_time_that_it_lasted(steps: list[Step]) -> None:
    played = Played(steps)

    for from_ms, to_ms, cause in played.pieces():
        found = {one: part for one, part in played.lane.between(from_ms, to_ms).items() if part}
        told = sum(found.pop(one, 0.0) for one in _names(cause))
        assert told == pytest.approx(to_ms - from_ms, abs=1e-4)
        assert sum(found.values()) == pytest.approx(0.0, abs=1e-4)


def _names(cause: Cause | None) -> tuple[Cause, ...]:
    return (Cause.SLOT, Cause.SHARE) if cause is None else (cause,)


@given(st.lists(st.tuples(WAIT_MS, st.floats(0, 1)), min_size=1, max_size=30))
def test_of_the_time_of_a_round_it_has_its_part_of_those_chosen(
    rounds: list[tuple[float, float]],
) -> None:
    played = Played([("turn", 50.0, None)])
    now_ms = played.ends_ms[-1]
    for round_ms, part in rounds:
        now_ms += round_ms
        played.lane.chose(round_ms * part, now_ms)
    played.lane.look(now_ms, 0.0)

    parts = played.lane.between(played.ends_ms[-1], now_ms)

    slot_ms = sum(round_ms * part for round_ms, part in rounds)
    assert parts.get(Cause.SLOT, 0.0) == pytest.approx(slot_ms, abs=1e-4)


def test_what_was_chosen_after_an_idle_hour_is_not_all_its_own() -> None:
    played = Played([("turn", 3_600_000.0, None)])
    now_ms = played.ends_ms[-1]
    played.lane.chose(1_800_000.0, now_ms)
    played.lane.look(now_ms + 100.0, 0.0)

    assert played.lane.between(now_ms, now_ms + 100.0)[Cause.SHARE] == 100.0


def test_a_lane_that_was_in_every_state_takes_4_kib() -> None:
    played = Played([])
    now_ms = BEGAN_MS
    for number in range(3_000):
        now_ms += 40.0
        played.lane.chose(5.0, now_ms)
        played.lane.turn(STATES[number % len(STATES)], now_ms)

        assert len(played.lane.samples_ms()) <= 64
        assert played.lane.size() <= 4_096


@given(
    st.floats(0, 3_600_000),
    st.floats(1_000, 3_600_000),
    st.floats(0, 3_600_000),
    st.floats(0, 1),
    st.sampled_from([20.0, 110.0, 1_000.0]),
)
@example(60_000.0, 60_000.0, 3_600_000.0, 0.5, 1_000.0)
def test_a_pause_is_told_within_two_percent_of_a_wait_long_after_it(
    before_ms: float, paused_ms: float, after_ms: float, at: float, every_ms: float
) -> None:
    every_ms = max(every_ms, (before_ms + after_ms) / 2_000)
    played = Played([("turn", 50.0, None)])
    lane, now_ms = played.lane, played.ends_ms[-1]

    def go(until_ms: float) -> None:
        nonlocal now_ms
        while now_ms < until_ms:
            now_ms = min(now_ms + every_ms, until_ms)
            lane.chose(every_ms / 2, now_ms)
            lane.look(now_ms, now_ms - BEGAN_MS)

    go(now_ms + before_ms)
    from_ms = now_ms
    lane.turn(Cause.PAUSED, now_ms)
    now_ms += paused_ms
    lane.turn(None, now_ms)
    to_ms = now_ms
    go(now_ms + after_ms)

    since_ms = BEGAN_MS + at * (to_ms - BEGAN_MS)  # when a push was submitted
    found_ms = lane.between(since_ms, now_ms).get(Cause.PAUSED, 0.0)

    lasted_ms = to_ms - max(from_ms, since_ms)
    assert found_ms == pytest.approx(lasted_ms, abs=0.02 * (now_ms - since_ms) + every_ms)


@given(st.integers(0, 3_000), st.floats(0, 1))
@example(257, 0.0)
def test_what_a_line_did_is_known_however_often_it_turned(turns: int, at: float) -> None:
    line = LineTimes(BEGAN_MS)
    lane = LaneTimes(BEGAN_MS, line)
    lane.turn(None, BEGAN_MS)
    for number in range(1, turns):
        line.turn(Cause.DURABLE if number % 2 else None, BEGAN_MS + 1_000 * number)
    now_ms = BEGAN_MS + 1_000 * turns

    lane.look(now_ms, 0.0)

    since_ms = BEGAN_MS + at * 1_000 * turns
    durable_ms = lane.between(since_ms, now_ms).get(Cause.DURABLE, 0.0)
    assert durable_ms == pytest.approx((now_ms - since_ms) / 2, rel=0.02, abs=2_000)
