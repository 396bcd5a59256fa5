"""How long a worker that has ended waits for its next start, and when it is given up."""

from __future__ import annotations

import pytest

from pushlane.cli.workers import Restarts
from tests.backends.test_contact import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def waits(clock: Clock, every_s: float, times: int) -> list[float | None]:
    restarts = Restarts(clock)
    found = []
    for _ in range(times):
        found.append(restarts.wait_s())
        clock.now_s += every_s
    return found


def test_each_end_doubles_the_wait_up_to_a_minute(clock: Clock) -> None:
    assert waits(clock, 160.0, 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_fifth_end_within_ten_minutes_is_the_last(clock: Clock) -> None:
    assert waits(clock, 150.0, 5) == [1, 2, 4, 8, None]


def test_ten_minutes_without_an_end_make_the_wait_short_again(clock: Clock) -> None:
    restarts = Restarts(clock)
    assert [restarts.wait_s(), restarts.wait_s()] == [1, 2]

    clock.now_s += 601.0

    assert restarts.wait_s() == 1
