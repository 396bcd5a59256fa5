"""What a line says of itself to others, for presence: how its sink stands, and what lanes wait for.

It only reads. Rates and times are of the last seconds, between looks that the announcer makes.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import nlargest
from typing import NamedTuple

from pushlane.dispatcher.delivery_pool import DeliveryPool
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.shares import Shares
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.presence import LaneWait, Resting, ServedSink, SlowLane
from pushlane.lanes.push import Kind
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Level
from pushlane.lanes.task_transitions import now_ms

MOST_NAMED = 50
"""Lanes of a process that are named for being slow, or for what they wait for."""

_WINDOW_S = 10.0
_SOONEST_S = 1.0


class _Counted(NamedTuple):
    """The counts of a line at one time."""

    at_s: float
    delivered: dict[str, int]
    released: int
    held_s: float


class RecentRates:
    """Rates and mean times of the last seconds, from what `Stats` has counted since the start.

    The mean time of a sink that had nothing to deliver is that since the start.
    """

    def __init__(self, stats: Stats, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stats = stats
        self._clock_s = clock_s
        self._looks: deque[_Counted] = deque([self._look()])

    def read(self) -> tuple[dict[str, float], float]:
        """Return what was delivered a second, by level, and for how long a push held its slot."""
        now = self._look()
        while len(self._looks) > 1 and self._looks[1].at_s <= now.at_s - _WINDOW_S:
            self._looks.popleft()
        if now.at_s >= self._looks[-1].at_s + _SOONEST_S:
            self._looks.append(now)
        before = self._looks[0]
        passed_s = max(_SOONEST_S, now.at_s - before.at_s)
        rates = {
            level: round((count - before.delivered[level]) / passed_s, 3)
            for level, count in now.delivered.items()
        }
        released, held_s = now.released - before.released, now.held_s - before.held_s
        if not released:
            released, held_s = now.released, now.held_s
        mean_s = held_s / released if released else 0.0
        return {level: rate for level, rate in rates.items() if rate}, round(mean_s, 6)

    def _look(self) -> _Counted:
        stats = self._stats
        delivered = {str(level): stats.outcomes[level, Kind.DELIVERED] for level in Level}
        return _Counted(self._clock_s(), delivered, stats.released, stats.held_s)


class LineReport:
    """Describes one line; `settings` are those that hold for its sink."""

    def __init__(
        self,
        name: str,
        title: str,
        settings: Settings,
        stats: Stats,
        ring: LaneRing,
        pool: DeliveryPool,
        outage: Outage,
        shares: Shares[OpenLane],
    ) -> None:
        self._name = name
        self._title = title
        self._settings = settings
        self._rates = RecentRates(stats)
        self._ring = ring
        self._pool = pool
        self._outage = outage
        self._shares = shares

    def served(self) -> ServedSink:
        """Return how the sink stands."""
        rates, delivery_s = self._rates.read()
        own = self._settings.sinks.get(self._name)
        return ServedSink(
            name=self._name,
            slots=self._pool.usable,
            in_flight=self._pool.in_flight,
            delivered_per_s=rates,
            delivery_s=delivery_s,
            lanes=dict(Counter(str(lane.level) for lane in self._ring.lanes.values())),
            resting=next(self.resting(), None),
            rate_per_s=own.rate_per_s if own else None,
            most_in_flight=own.in_flight if own else None,
            cost=own.cost if own else 1.0,
        )

    def resting(self) -> Iterator[Resting]:
        """Yield what gets fewer pushes than there are, since it fails."""
        for one in self._outage.resting(now_ms()):
            what = f"{one.scope} {self._title} ({one.state})"
            yield Resting(what, one.since_ms, one.reason, one.next_try_ms or 0)

    def slow(self) -> Iterator[SlowLane]:
        """Yield the slowest lanes of those that count as slow."""
        now_s, now = time.monotonic(), now_ms()
        slowest = nlargest(MOST_NAMED, self._shares.slow(), key=lambda one: one.times)
        for lane, times, since_s in slowest:
            yield SlowLane(lane.name, round(times, 1), now - round((now_s - since_s) * 1000))

    def waiting(self) -> Iterator[LaneWait]:
        """Yield lanes that wait for something else than their turn."""
        for lane in self._ring.lanes.values():
            if why := _why_waiting(lane):
                yield LaneWait(lane.name, self._name, why)


def _why_waiting(lane: OpenLane) -> str:
    if lane.foreign:
        return "format"
    if lane.short:
        return "budget"
    if lane.crowded:
        return "crowded"
    if lane.delay_full:
        return "delay-full"
    return "keys" if lane.is_blocked else ""
