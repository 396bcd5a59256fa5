"""A note of pushes that wait holds times that every store can keep."""

from __future__ import annotations

from pushlane.core.endings import Wait, WaitReason
from pushlane.model.due import PutOffTally


def test_a_push_that_names_a_time_out_of_range_is_noted_by_one_that_stores_can_keep() -> None:
    tally = PutOffTally()
    tally.add("t", Wait(WaitReason.START, 2**63), 900_000)

    [noted] = tally.take()

    assert noted.first_ms == noted.last_ms < 2**48
