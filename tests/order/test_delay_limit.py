"""Lanes that rest as too many of their pushes wait for their time, as a scrape counts them."""

from __future__ import annotations

from typing import Any

from pushlane.dispatcher.lanes import DelayLimit


class OpeningLane:
    """A lane that rests, and beside which another is opened while it is looked at."""

    def __init__(self, lanes: dict[str, Any]) -> None:
        self._lanes = lanes

    @property
    def later_full(self) -> bool:
        self._lanes["another"] = self
        return True


def test_lanes_may_be_opened_while_a_scrape_counts_them() -> None:
    lanes: dict[str, Any] = {}
    lanes["one"] = OpeningLane(lanes)
    broker: Any = None

    assert DelayLimit(broker, 10, lanes.values).full() == 1
