"""How far the receipts job is behind, as its metrics say it."""

from __future__ import annotations

import pytest

from pushlane.pipeline.receipts.job import JobStats
from tests.backends.test_contact import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stats(clock: Clock) -> JobStats:
    return JobStats(clock)


def test_with_nothing_left_it_is_not_behind(stats: JobStats, clock: Clock) -> None:
    clock.now_s += 100
    stats.looked(0)
    clock.now_s += 100

    assert stats.lag_s() == 0


def test_it_is_behind_since_it_had_read_all(stats: JobStats, clock: Clock) -> None:
    stats.looked(0)
    clock.now_s += 40
    stats.looked(7)

    assert stats.lag_s() == 40


def test_a_flow_that_never_ends_is_kept_up_with(stats: JobStats, clock: Clock) -> None:
    for _ in range(10):
        clock.now_s += 5
        stats.stored_batch(100, 5.0, took_all=True)
        stats.looked(3)  # what came while the batch ran

    assert stats.lag_s() == 5


def test_batches_that_leave_something_do_not_catch_up(stats: JobStats, clock: Clock) -> None:
    for _ in range(10):
        clock.now_s += 5
        stats.stored_batch(100, 5.0, took_all=False)
        stats.looked(1_000)

    assert stats.lag_s() == 50
    assert stats.stored == 1_000
