"""Lanes on which nothing can go, since all that may be held of them waits for something else.

What they wait for is behind them on the lane, or was put off: after a kill it comes again. So a
stuck lane may hold more, and when that is too much, some of it is put off. No clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from pushlane.dispatcher.lane import ROOM, OpenLane

_STUCK_S = 0.3
_MOST_ROOM = 10_000
_MOST_PARKED = 50_000
_SHORTEST_S = 1.0
_LONGEST_S = 30.0


class _Stall:
    __slots__ = ("put_off_s", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.put_off_s = _SHORTEST_S


class StallDetector:
    """The only writer of a lane's `room`."""

    def __init__(self) -> None:
        self._jams: dict[OpenLane, _Stall] = {}

    def went(self, lane: OpenLane) -> None:
        """Something of the lane could go."""
        self._jams.pop(lane, None)

    def stuck(self, parking: Iterable[OpenLane], now_s: float) -> dict[OpenLane, float]:
        """Of the lanes of which something is parked, those to put some off, and for how long.

        The others get more room if they are stuck, and less when they no longer need it.
        """
        lanes = list(parking)
        parked = sum(lane.parked for lane in lanes)
        kept: dict[OpenLane, _Stall] = {}
        overfull: dict[OpenLane, float] = {}
        for lane in lanes:
            jam = kept[lane] = self._jams.get(lane) or _Stall(now_s)
            if not lane.is_blocked:
                lane.room = max(ROOM, min(lane.room, lane.parked + ROOM))
                jam.since_s = now_s
            elif lane.pending > lane.parked or lane.returned:  # in flight, or about to be
                jam.since_s = now_s
            elif now_s - jam.since_s > _STUCK_S:
                jam.since_s = now_s
                if lane.room < _MOST_ROOM and parked < _MOST_PARKED:
                    lane.room += ROOM
                else:
                    overfull[lane] = jam.put_off_s
                    jam.put_off_s = min(_LONGEST_S, 2 * jam.put_off_s)
        self._jams = kept
        return overfull
