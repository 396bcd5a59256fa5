"""Lanes on which nothing can go, since all that may be held of them waits for something else.

What they wait for may be behind them on the lane: room is made by putting some of them off, each
time for longer. Pure: no clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.lane import OpenLane

_STUCK_S = 1.0
_SHORTEST_S = 1.0
_LONGEST_S = 30.0


class _Jam:
    __slots__ = ("put_off_s", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.put_off_s = _SHORTEST_S


class Jams:
    def __init__(self) -> None:
        self._jams: dict[OpenLane, _Jam] = {}

    def went(self, lane: OpenLane) -> None:
        """Something of the lane could go."""
        self._jams.pop(lane, None)

    def stuck(self, parking: Iterable[OpenLane], now_s: float) -> dict[OpenLane, float]:
        """Of the lanes of which something is parked, the stuck ones, and how long to put off."""
        kept: dict[OpenLane, _Jam] = {}
        stuck: dict[OpenLane, float] = {}
        for lane in parking:
            jam = kept[lane] = self._jams.get(lane) or _Jam(now_s)
            if lane.pending > lane.parked or not lane.is_blocked:  # in flight, or there is room
                jam.since_s = now_s
            elif now_s - jam.since_s > _STUCK_S:
                stuck[lane] = jam.put_off_s
                jam.since_s = now_s
                jam.put_off_s = min(_LONGEST_S, 2 * jam.put_off_s)
        self._jams = kept
        return stuck
