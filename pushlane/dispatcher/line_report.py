"""What a line says of itself to others, for presence: how its sink stands, and what lanes wait for.

It only reads. Rates and times are of the last seconds or minute, between the announcer's looks.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from heapq import nlargest
from typing import NamedTuple

from pushlane.core.lane import Lane, Why
from pushlane.core.push import Kind
from pushlane.core.task import Level, now_ms
from pushlane.dispatcher.lane_times import reasons_of
from pushlane.dispatcher.line import Line
from pushlane.dispatcher.stats import Stats
from pushlane.model.presence import MOST_LANES, LaneWait, Resting, ServedSink, SlowLane

MOST_NAMED = 50
"""Lanes of a process that are named for being slow, or for what they wait for."""

_JUST_NOW_S = 10.0
_MINUTE_S = 60.0
_SOONEST_S = 1.0
_MOST_APPS = 20


class Rates(NamedTuple):
    """The rates of a line, in pushes a second.

    `delivered_per_s`, by level, and `delivery_s`, the mean time that a push holds its slot, are of
    the last 10 s. The others are of the last minute, or since the start if that is later: what
    ended in whatever way, and what was sent by level and by app, as far as apps sent most.
    """

    delivered_per_s: dict[str, float]
    delivery_s: float
    ended_per_s: float
    sent_per_s: dict[str, float]
    apps_per_s: dict[str, float]


class _Counted(NamedTuple):
    """The counts of a line at one time."""

    at_s: float
    delivered: dict[str, int]
    released: int
    held_s: float
    ended: int
    sent: dict[str, int]
    apps: dict[str, int]


class RecentRates:
    """Rates and mean times of the last seconds, from what `Stats` has counted since the start.

    The mean time is over answers that tell the sink's pace, which a refused connection does not.
    Of a sink that gave none lately it is that since the start.
    """

    def __init__(self, stats: Stats, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stats = stats
        self._clock_s = clock_s
        self._looks: deque[_Counted] = deque([self._look()])

    def read(self) -> Rates:
        """Return the rates up to now."""
        now = self._look()
        while len(self._looks) > 1 and self._looks[1].at_s <= now.at_s - _MINUTE_S:
            self._looks.popleft()
        if now.at_s >= self._looks[-1].at_s + _SOONEST_S:
            self._looks.append(now)
        recent = (one for one in reversed(self._looks) if one.at_s <= now.at_s - _JUST_NOW_S)
        just_now, minute = next(recent, self._looks[0]), self._looks[0]
        known = minute.apps.get
        sent = [(count - known(app, 0), app) for app, count in now.apps.items()]
        most = {app: now.apps[app] for _, app in nlargest(_MOST_APPS, sent)}
        return Rates(
            _per_s(just_now, now, just_now.delivered, now.delivered),
            _mean_s(just_now, now),
            (now.ended - minute.ended) / _passed_s(minute, now),
            _per_s(minute, now, minute.sent, now.sent),
            _per_s(minute, now, minute.apps, most),
        )

    def _look(self) -> _Counted:
        stats, outcomes = self._stats, self._stats.outcomes
        return _Counted(
            self._clock_s(),
            {str(level): outcomes[level, Kind.DELIVERED] for level in Level},
            stats.released,
            stats.held_s,
            sum(count for (_, kind), count in outcomes.items() if kind is not Kind.RETRY),
            {str(level): count for level, count in stats.picked.items()},
            dict(stats.picked_of_app),
        )


def _passed_s(before: _Counted, now: _Counted) -> float:
    return max(_SOONEST_S, now.at_s - before.at_s)


def _per_s(
    before: _Counted, now: _Counted, counts: Mapping[str, int], counts_now: Mapping[str, int]
) -> dict[str, float]:
    """Return by name what was counted a second; nothing of names of which nothing was."""
    passed_s = _passed_s(before, now)
    rates = {
        name: round((count - counts.get(name, 0)) / passed_s, 3)
        for name, count in counts_now.items()
    }
    return {name: rate for name, rate in rates.items() if rate}


def _mean_s(before: _Counted, now: _Counted) -> float:
    released, held_s = now.released - before.released, now.held_s - before.held_s
    if not released:
        released, held_s = now.released, now.held_s
    return round(held_s / released, 6) if released else 0.0


class LineReport:
    """Describes one line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._rates = RecentRates(line.stats)

    def served(self) -> ServedSink:
        """Return how the sink stands."""
        rates, own = self._rates.read(), self._line.own
        return ServedSink(
            name=self._line.name,
            target=self._line.target,
            slots=self._line.slots.usable,
            in_flight=self._line.slots.in_flight,
            delivered_per_s=rates.delivered_per_s,
            delivery_s=rates.delivery_s,
            ended_per_s=round(rates.ended_per_s, 3),
            sent_per_s=rates.sent_per_s,
            apps_per_s=rates.apps_per_s,
            tasks_per_s=self._line.task_rates.per_s(),
            lane_slots=self._line.shares.slots(MOST_LANES),
            lanes=dict(Counter(str(lane.level) for lane in self._line.lanes.by_name.values())),
            resting=self.resting(),
            rate_per_s=own.rate_per_s if own else None,
            most_in_flight=own.in_flight if own else None,
            cost=own.cost if own else 1.0,
            in_doubt=self._line.lookups.doubts.count(),
        )

    def resting(self) -> Resting | None:
        """Return why the sink gets fewer pushes than there are, if it does."""
        one = self._line.outage.restraint(now_ms())
        if one is None:
            return None
        what = f"{one.scope} {self._line.name} ({one.state})"
        next_ms = one.next_try_ms or 0
        return Resting(what, one.since_ms, one.reason, next_ms, is_unproven=one.is_unproven)

    def resting_text(self) -> str:
        """Return in a few words that the sink gets fewer pushes than there are; empty if not."""
        one = self.resting()
        if one is None:
            return ""
        return f"sink {self._line.name} {'rests' if one.is_shut else 'gets fewer pushes'}"

    def slow(self) -> Iterator[SlowLane]:
        """Yield the slowest lanes of those that count as slow."""
        now_s, now = time.monotonic(), now_ms()
        slowest = nlargest(MOST_NAMED, self._line.shares.slow(), key=lambda one: one.times)
        for lane, times, since_s in slowest:
            yield SlowLane(lane.name, round(times, 1), now - round((now_s - since_s) * 1000))

    def waiting(self) -> Iterator[LaneWait]:
        """Yield lanes that wait for something else than their turn."""
        for lane in self._line.lanes.by_name.values():
            if why := _why_waiting(lane):
                yield LaneWait(lane.name, self._line.name, why)


def _why_waiting(lane: Lane) -> str:
    """Return for what a lane waits; that its task is paused, or starts later, is no news."""
    return next((why for why in reasons_of(lane) if why is not Why.HELD), "")
