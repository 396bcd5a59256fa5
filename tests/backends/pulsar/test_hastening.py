"""Which places of a topic are acked, by the broker's own words."""

from __future__ import annotations

import pytest

from pushlane.backends.pulsar.replay import Acked, CursorStats, Position

RANGES = "[(7:3..7:5],(7:7..7:8],(9:-1..9:0]]"


@pytest.mark.parametrize(
    ("place", "is_acked"),
    [
        ((6, 99), True),
        ((7, 2), True),
        ((7, 3), False),
        ((7, 4), True),
        ((7, 5), True),
        ((7, 6), False),
        ((7, 7), False),
        ((7, 8), True),
        ((8, 0), False),
        ((9, 0), True),
        ((9, 1), False),
    ],
)
def test_all_up_to_the_mark_is_acked_and_the_ranges_behind_it(
    place: tuple[int, int], is_acked: bool
) -> None:
    assert (Position(*place) in Acked(CursorStats("7:2", RANGES))) is is_acked


def test_without_ranges_nothing_behind_the_mark_is_acked() -> None:
    acked = Acked(CursorStats("7:-1"))

    assert Position(6, 1) in acked
    assert Position(7, 0) not in acked
