"""Lanes on which nothing can go, since all that may be held of them waits for something else.

What they wait for is behind them on the lane, or was put off: after a kill it comes again. So a
stuck lane may hold more, and when that is too much, some of it is put off. No clock and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from pushlane.core.lane import ROOM, Lane

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
    """Finds stuck lanes, and says how much may be parked of each: nobody else does."""

    def __init__(self) -> None:
        self._stalls: dict[Lane, _Stall] = {}

    def went(self, lane: Lane) -> None:
        """Note that something of the lane could go."""
        self._stalls.pop(lane, None)

    def stuck(self, parking: Iterable[Lane], now_s: float) -> dict[Lane, float]:
        """Return, of lanes of which something is parked, those to put some off, and how long.

        The others get more room if they are stuck, and less when they no longer need it.
        """
        lanes = list(parking)
        parked = sum(len(lane.parked) for lane in lanes)
        kept: dict[Lane, _Stall] = {}
        overfull: dict[Lane, float] = {}
        for lane in lanes:
            stall = kept[lane] = self._stalls.get(lane) or _Stall(now_s)
            if not lane.is_stuck:
                lane.set_room(max(ROOM, min(lane.room, len(lane.parked) + ROOM)))
                stall.since_s = now_s
            elif lane.pending > len(lane.parked) or lane.has_returned:  # in flight, or about to be
                stall.since_s = now_s
            elif now_s - stall.since_s > _STUCK_S:
                stall.since_s = now_s
                if lane.room < _MOST_ROOM and parked < _MOST_PARKED:
                    lane.set_room(lane.room + ROOM)
                else:
                    overfull[lane] = stall.put_off_s
                    stall.put_off_s = min(_LONGEST_S, 2 * stall.put_off_s)
        self._stalls = kept
        return overfull
