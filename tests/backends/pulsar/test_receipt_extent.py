"""Positions in a topic whose broker begins and removes ledgers as it likes."""

from __future__ import annotations

import msgspec
import pytest

from pushlane.backends.ports import split_evenly
from pushlane.backends.pulsar.receipt_log import Extent
from pushlane.backends.pulsar.replay import LedgerSegment, Position, TopicStats

EXTENT = Extent([LedgerSegment(3, 2), LedgerSegment(5, 0), LedgerSegment(8, 4)], Position(3, 0))


def test_entries_are_counted_over_ledgers():
    assert EXTENT.count_from(Position(3, 0)) == 6
    assert EXTENT.count_from(Position(3, 2)) == 4
    assert EXTENT.count_from(Position(8, 4)) == 0
    assert EXTENT.count_from(Position(1, 7)) == 6


def test_a_position_further_on_may_be_in_another_ledger():
    assert EXTENT.after(Position(3, 0), 2) == Position(3, 2)
    assert EXTENT.after(Position(3, 0), 3) == Position(8, 1)
    assert EXTENT.after(Position(3, 2), 4) == Position(8, 4)
    assert EXTENT.after(Position(8, 4), 0) == Position(8, 4)


def test_it_is_read_from_the_broker_as_far_as_entries_are_confirmed():
    stats = {
        "lastConfirmedEntry": "8:1",
        "ledgers": [{"ledgerId": 3, "entries": 2}, {"ledgerId": 8, "entries": 0}],
        "cursors": {"pipeline": {"markDeletePosition": "3:0"}},
    }

    extent = Extent.of(msgspec.convert(stats, TopicStats), "pipeline")

    assert extent == Extent([LedgerSegment(3, 2), LedgerSegment(8, 2)], Position(3, 1))
    assert Position.parse(str(extent.first)) == extent.first == Position(3, 0)


@pytest.mark.parametrize(
    ("start", "cursor", "committed", "holds"),
    [
        (Position(8, 9), Position(3, 0), None, True),  # its ledger is there
        (Position(2, 5), Position(2, 5), None, True),  # the cursor stands there: read to its end
        (Position(2, 0), Position(3, 0), None, True),  # it was empty
        (Position(2, 5), Position(3, 0), Position(2, 5), True),  # the cursor was set to the next
        (Position(2, 5), Position(3, 0), None, False),
        (Position(2, 5), Position(2, 9), Position(2, 5), False),  # moved on by the broker
        (Position(2, 0), Position(3, 1), None, False),
    ],
)
def test_what_is_gone_is_told_from_what_was_empty(start, cursor, committed, holds):
    extent = Extent(EXTENT.ledgers, cursor)

    assert extent.holds(start, committed) is holds


@pytest.mark.parametrize(
    ("available", "most", "shares"),
    [
        ([5, 5, 5], 6, [2, 2, 2]),
        ([0, 1, 9], 6, [0, 1, 5]),
        ([9, 0, 1], 3, [2, 0, 1]),
        ([1, 1], 6, [1, 1]),
        ([4, 4], 1, [1, 0]),
        ([], 3, []),
    ],
)
def test_a_limit_is_shared_as_evenly_as_can_be(available, most, shares):
    assert split_evenly(available, most) == shares
