"""When detail rows become a sample."""

from __future__ import annotations

import pytest

from pushlane.pipeline.receipts.batch import LEAST, BatchTimer, choose_mode
from pushlane.settings import load


@pytest.fixture
def settings():
    return load({"pipeline_detail_rate_per_s": 1_000, "pipeline_detail_lag": 50})


def test_all_rows_are_kept_up_to_the_limits(settings):
    assert choose_mode(settings, receipts=1_000, seconds=1, lag=50).is_full


def test_above_the_rate_as_many_rows_are_kept_as_it_allows(settings):
    assert choose_mode(settings, receipts=40_000, seconds=10, lag=0).rate == 0.25


def test_a_tenth_is_kept_when_too_much_is_behind(settings):
    mode = choose_mode(settings, receipts=10, seconds=1, lag=51)
    assert (mode.rate, mode.why) == (0.1, "51 bodies behind, over 50")


def test_the_smaller_share_counts(settings):
    assert choose_mode(settings, receipts=1_000_000, seconds=1, lag=51).rate == LEAST


def test_a_limit_of_zero_is_none():
    off = load({"pipeline_detail_rate_per_s": 0, "pipeline_detail_lag": 0})
    assert choose_mode(off, receipts=10**9, seconds=1, lag=10**9).is_full


def test_the_rate_of_batches_counts_the_time_that_they_take_to_be_written(settings):
    """Read in 1 s and written in 3 s, over and over: 4,000 receipts each are 1,000/s, not 4,000."""
    read_at_s = iter([0.0, 4.0, 8.0])
    pace = BatchTimer(lambda: next(read_at_s))

    modes = [choose_mode(settings, 4_000, pace.since_last_s(), lag=0) for _ in range(2)]

    assert [mode.is_full for mode in modes] == [True, True]
