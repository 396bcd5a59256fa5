"""Shares of slots: which lanes hold theirs for longer than others, and what that costs them.

While all deliveries take equally long, turns alone share the slots, exactly. A lane whose
deliveries take longer than the others' would hold more than its part by the same number of turns.
So its turns come less often, and its level pays for what it holds beyond what its picks paid for:
then slots held are as the weights, and inside a level as the quotas. Both are told to the
scheduler, twenty times a second at most; a pick does not get longer for it. Of very many lanes a
page is looked at each time, the longest unseen first. Slot-seconds count while they pass (Little's
law): a delivery that hangs is seen before it lands.

How many deliveries a sink bears at once is found out by its latency and its errors: additive
increase, multiplicative decrease, as in TCP (Chiu and Jain, 1989); growth of latency over its best
counts like an error, before the sink begins to refuse (TCP Vegas). All of it is told the time.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from pushlane.core.lane import Lane
from pushlane.core.slots import Batch, Slots
from pushlane.core.task import Level
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.failures import Sign, sign_of

ALIKE = 1.25
ALIKE_AGAIN = 1.15
OURS_S = 0.01
"""A difference below this is of our own loop, not of a sink."""

_FEWEST_PICKS = 3
_CERTAIN = 5.0
_KEEP = 1 - 1 / 400
_KEEP_SLOW = 1 - 1 / 50
_CHANGED = 0.1
_FADES_S = 10.0


class Read(NamedTuple):
    """Slot-seconds, picks and landings between two looks at a stopwatch."""

    spent_s: float
    picks: int
    landings: int


@dataclass(slots=True, eq=False)
class Mean:
    """Slot-seconds, picks and landings, which fade as picks and time go on.

    `cost` is how many times as long as others' its deliveries take, 1 when it counts as alike.
    """

    spent_s: float = 0.0
    picks: float = 0.0
    landings: float = 0.0
    cost: float = 1.0
    _fed_s: float = 0.0

    def feed(self, now_s: float, read: Read) -> None:
        kept = math.exp((self._fed_s - now_s) / _FADES_S)
        kept *= (_KEEP if self.cost == 1 else _KEEP_SLOW) ** read.picks
        self._fed_s = now_s
        self.spent_s = self.spent_s * kept + read.spent_s
        self.picks = self.picks * kept + read.picks
        self.landings = self.landings * kept + read.landings

    @property
    def a_pick_s(self) -> float:
        """Return the mean of a delivery; one in flight counts with what it has taken so far."""
        return self.spent_s / self.picks if self.picks else 0.0

    @property
    def a_landing_s(self) -> float:
        """At least as much as a delivery takes."""
        return self.spent_s / self.landings if self.landings else math.inf

    def is_surely_shorter(self, than_s: float) -> bool:
        longest_s = max(self.a_landing_s, 1e-9)
        return than_s - longest_s > OURS_S and math.log(than_s / longest_s) > _doubt(self.landings)

    def judge(self, base_s: float) -> bool:
        """Set `cost` against deliveries that take `base_s`; whether it has changed."""
        before = self.cost
        if self.picks >= _FEWEST_PICKS:
            self.cost = self._cost(self.a_pick_s, base_s)
        return self.cost != before

    def _cost(self, a_pick_s: float, base_s: float) -> float:
        ratio = a_pick_s / base_s
        if a_pick_s - base_s <= OURS_S:
            return 1.0
        if self.cost == 1:
            return ratio if math.log(ratio) > _doubt(self.picks) else 1.0
        if ratio < ALIKE_AGAIN:
            return 1.0
        return ratio if abs(ratio - self.cost) > _CHANGED * self.cost else self.cost


def _doubt(count: float) -> float:
    """Return by how much such a mean may be off, as a logarithm, and what counts as alike."""
    return max(math.log(ALIKE), _CERTAIN / math.sqrt(count))


@dataclass(slots=True, eq=False)
class Stopwatch:
    """Slot-seconds of pushes that take off and land."""

    in_flight: int = 0
    _started_s: float = 0.0
    _landed_s: float = 0.0
    _picks: int = 0
    _landings: int = 0

    def took_off(self, now_s: float, count: int) -> None:
        self.in_flight += count
        self._started_s += now_s * count
        self._picks += count

    def landed(self, now_s: float, since_s: float, count: int) -> None:
        self.in_flight -= count
        self._started_s -= since_s * count
        self._landed_s += (now_s - since_s) * count
        self._landings += count

    def skip(self, passed_s: float) -> None:
        """Leave so much out of the time of those in flight."""
        self._landed_s -= passed_s * self.in_flight

    def read(self, now_s: float) -> Read:
        """Return what came since the last call."""
        if not self.in_flight:
            self._started_s = 0.0  # what rounding left of it
        total_s = self._landed_s + self.in_flight * now_s - self._started_s
        new = Read(max(0.0, total_s), self._picks, self._landings)
        self._landed_s -= total_s  # so the next one begins at 0
        self._picks = self._landings = 0
        return new


_LOOK_EVERY_S = 0.05
_LOOKING_PART = 0.03  # of the time, at most
_PAGE = 512
_STOPPED_S = 5.0
_WELL_KNOWN = 20
_YOUNG = 8
_LONG_S = 1.0
_DEBT_S = 5.0
_IDLE_S = 10.0
_BUSY_PICKS_A_S = 20


class Dwell:
    """The deliveries of one lane at one level."""

    __slots__ = ("counted", "lane", "level", "mean", "since_s", "watch")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.level = lane.level
        self.watch = Stopwatch()
        self.mean = Mean()
        self.since_s = 0.0
        self.counted = (0.0, 0.0)

    @property
    def is_young(self) -> bool:
        """Tell whether it has had so few picks that its level is judged in its place."""
        return self.mean.picks < _YOUNG and self.mean.cost == 1


class OccupiedSlots(NamedTuple):
    """Slots that pushes took together."""

    since_s: float
    parts: Sequence[tuple[Dwell, int]]


class Slow(NamedTuple):
    """A lane that is counted as slow: how many times as long as others' its deliveries take."""

    lane: Lane
    times: float
    since_s: float


class _OfLevel(NamedTuple):
    """All deliveries of a level, and those of its lanes that have had few picks."""

    all: Mean
    young: Mean


class Shares:
    """Watches who holds slots. `slots` is how many there are; times are of a monotonic clock.

    `ran_s` is a clock of what this thread has run, by which looks are made seldom enough.
    """

    def __init__(
        self,
        scheduler: Scheduler[Lane],
        slots: int,
        ran_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._scheduler = scheduler
        self._slots = slots
        self._ran_s = ran_s
        self._dwells: dict[Lane, Dwell] = {}
        self._live: dict[Dwell, None] = {}
        self._held: dict[Batch, OccupiedSlots] = {}
        self._idle: OrderedDict[Dwell, float] = OrderedDict()
        self._levels = {level: _OfLevel(Mean(), Mean()) for level in Level}
        self._alike = (0.0, 0.0)  # slot-seconds and landings of the lanes that count as alike
        self._base_s = 0.0
        self._shortest: Dwell | None = None  # whose deliveries are the usual ones
        self._looked_s = self._due_s = -math.inf
        self._age_s = 0.0  # what is known fades with it: it stands still while nothing is learnt

    def launched(self, batch: Batch) -> None:
        self._held[batch] = self.took(batch.since_s, [job.lane for job in batch.jobs])

    def landed(self, batch: Batch, now_s: float) -> None:
        self.gave(now_s, self._held.pop(batch))

    def took(self, now_s: float, lanes: Sequence[Lane]) -> OccupiedSlots:
        """Count slots that pushes of these lanes take, to be given back together."""
        if len(lanes) == 1:
            parts = [(self._dwell(lanes[0]), 1)]
        else:
            counts: dict[Lane, int] = {}
            for lane in lanes:
                counts[lane] = counts.get(lane, 0) + 1
            parts = [(self._dwell(lane), count) for lane, count in counts.items()]
        for dwell, count in parts:
            dwell.watch.took_off(now_s, count)
            self._live[dwell] = None
        return OccupiedSlots(now_s, parts)

    def gave(self, now_s: float, hold: OccupiedSlots) -> None:
        """Count slots that are free again."""
        for dwell, count in hold.parts:
            dwell.watch.landed(now_s, hold.since_s, count)
            self._live[dwell] = None

    def slow(self) -> list[Slow]:
        """List the lanes that are counted as slow now, and since when."""
        dwells = (one for one in self._dwells.values() if one.mean.cost > 1)
        return [Slow(one.lane, one.mean.cost, one.since_s) for one in dwells]

    def slots(self, most: int) -> dict[str, int]:
        """Return how many slots the lanes hold that hold most, by their names."""
        held: Counter[str] = Counter()
        for dwell in self._live:
            if dwell.watch.in_flight:
                held[dwell.lane.name] += dwell.watch.in_flight  # twice, if its level was changed
        return dict(held.most_common(most))

    def look(self, now_s: float) -> None:
        """Judge who is slow, and charge for what they held since the last time; cheap if early.

        It looks at a page of those that held slots since they were looked at.
        """
        if now_s < self._due_s:
            return
        began_s = self._ran_s()
        self._look(now_s)
        took_s = self._ran_s() - began_s
        self._due_s = now_s + max(_LOOK_EVERY_S, took_s / _LOOKING_PART)

    def _look(self, now_s: float) -> None:
        if now_s > self._looked_s + _STOPPED_S:
            self._skip(now_s - self._looked_s)
        if len(self._live) <= _PAGE:
            self._shortest = None  # it is found anew among all
        read = [(dwell, dwell.watch.read(now_s)) for dwell in islice(self._live, _PAGE)]
        picks = sum(one.picks for _, one in read)
        self._age_s += min(now_s - self._looked_s, picks / _BUSY_PICKS_A_S)
        self._looked_s = now_s
        for dwell, one in read:
            self._feed(dwell, one)
        for level, of_level in self._levels.items():
            self._scheduler.set_long(level, of_level.all.a_pick_s > _LONG_S)
        self._forget(now_s)
        self._set_base([dwell for dwell, _ in read])
        if self._base_s:
            self._judge([dwell for dwell, _ in read], now_s)
            self._bill(read)

    def _skip(self, passed_s: float) -> None:
        """Leave out time in which this process was stopped: no delivery took that."""
        for dwell in self._live:
            dwell.watch.skip(passed_s)

    def _dwell(self, lane: Lane) -> Dwell:
        dwell = self._dwells.get(lane)
        if dwell is None or dwell.level is not lane.level:
            dwell = self._dwells[lane] = Dwell(lane)
        return dwell

    def _feed(self, dwell: Dwell, read: Read) -> None:
        of_level = self._levels[dwell.level]
        of_level.all.feed(self._age_s, read)
        if dwell.is_young:
            of_level.young.feed(self._age_s, read)
        dwell.mean.feed(self._age_s, read)
        del self._live[dwell]
        if dwell.watch.in_flight:
            self._live[dwell] = None
        else:
            self._idle[dwell] = self._looked_s
            self._idle.move_to_end(dwell)

    def _forget(self, now_s: float) -> None:
        """Forget lanes that were idle for long: how long theirs took says nothing any more."""
        while self._idle:
            dwell, since_s = self._idle.popitem(last=False)
            if now_s < since_s + _IDLE_S:
                self._idle[dwell] = since_s
                self._idle.move_to_end(dwell, last=False)
                return
            if dwell in self._live:
                continue
            self._count(dwell, is_alike=False)
            if self._shortest is dwell:
                self._shortest = None
            if self._dwells.get(dwell.lane) is dwell:
                self._scheduler.set_rounds(dwell.lane, 1)
                del self._dwells[dwell.lane]

    def _set_base(self, dwells: Sequence[Dwell]) -> None:
        """Set how long a usual delivery takes: the mean of the lanes that are alike.

        One that is surely shorter is the usual one, and so is the shortest when none are alike.
        """
        for dwell in dwells:
            self._count(dwell, is_alike=self._cost(dwell) == 1)
        known = [dwell for dwell in dwells if dwell.mean.landings >= _WELL_KNOWN]
        if self._shortest is not None:  # of the pages before this one
            known.append(self._shortest)
        spent_s, landings = self._alike
        self._shortest = None
        if landings >= _WELL_KNOWN:
            self._base_s = spent_s / landings
        elif known:
            self._shortest = min(known, key=lambda dwell: dwell.mean.a_landing_s)
            self._base_s = self._shortest.mean.a_landing_s
        for dwell in known:
            if dwell.mean.is_surely_shorter(self._base_s):
                self._shortest, self._base_s = dwell, dwell.mean.a_landing_s

    def _count(self, dwell: Dwell, *, is_alike: bool) -> None:
        now = (dwell.mean.spent_s, dwell.mean.landings) if is_alike else (0.0, 0.0)
        spent_s, landings = self._alike
        self._alike = spent_s + now[0] - dwell.counted[0], landings + now[1] - dwell.counted[1]
        dwell.counted = now

    def _cost(self, dwell: Dwell) -> float:
        return self._levels[dwell.level].young.cost if dwell.is_young else dwell.mean.cost

    def _judge(self, dwells: Sequence[Dwell], now_s: float) -> None:
        for of_level in self._levels.values():
            of_level.young.judge(self._base_s)
        for dwell in dwells:
            was_alike = dwell.mean.cost == 1
            if dwell.mean.judge(self._base_s):
                dwell.since_s = now_s if was_alike else dwell.since_s
                if self._dwells.get(dwell.lane) is dwell:  # else the lane has another level now
                    self._scheduler.set_rounds(dwell.lane, max(1, round(dwell.mean.cost)))

    def _bill(self, read: Sequence[tuple[Dwell, Read]]) -> None:
        """Bill levels for what slow deliveries hold beyond the usual one that a pick pays for."""
        owed = dict.fromkeys(Level, 0.0)
        for dwell, one in read:
            beyond = 1 - 1 / self._cost(dwell)
            owed[dwell.level] += one.spent_s * beyond / self._base_s
        most = _DEBT_S * self._slots / self._base_s
        for level, picks in owed.items():
            if picks:
                self._scheduler.bill(level, picks, most)
        self._scheduler.forgive()


_FEWEST = 8
_MOST_ERRORS = 0.1
_SLOWER = 2.0
_FALLS_TO = 0.5  # so low that the best latency is seen again
_BEST_FADES = 1.001
_NEW_BEST = 1.02
_STRAINED = frozenset({Sign.REFUSED, Sign.FAILED, Sign.SILENT})


class AdaptiveCap:
    """A cap between `floor` and `ceiling`, for deliveries in flight.

    It begins at the floor and doubles until there is first trouble. It is looked at once in as many
    landings as there are places, so that each step has shown what it does before the next one.
    """

    def __init__(self, floor: int, ceiling: int) -> None:
        self._floor = floor
        self._ceiling = max(floor, ceiling)
        self._cap = float(floor)
        self._had_trouble = False
        self._best_s = 0.0
        self._landed = 0
        self._errors = 0
        self._sum_s = 0.0
        self._was_full = False

    @property
    def cap(self) -> int:
        """The number of deliveries that may be in flight now."""
        return int(self._cap)

    def landed(self, latency_s: float, in_flight: int, *, is_error: bool) -> None:
        """Hear of a delivery, and how many were in flight with it.

        An error is one that says something of the sink: refused, busy, timed out.
        """
        self._landed += 1
        self._errors += is_error
        self._sum_s += latency_s
        self._was_full = self._was_full or in_flight >= self.cap
        if self._landed >= max(_FEWEST, self.cap):
            self._step()

    def _step(self) -> None:
        mean_s = self._sum_s / self._landed
        if self._errors > _MOST_ERRORS * self._landed:
            self._fall()
        elif self._best_s and mean_s > _SLOWER * self._best_s:
            self._fall()
            self._best_s *= _NEW_BEST  # it may be slower for good, whatever is in flight
        else:
            self._best_s = min(self._best_s * _BEST_FADES, mean_s) if self._best_s else mean_s
            if self._was_full:  # else it shows nothing of more
                more = 1 if self._had_trouble else self._cap
                self._cap = min(self._ceiling, self._cap + more)
        self._landed = self._errors = 0
        self._sum_s = 0.0
        self._was_full = False

    def _fall(self) -> None:
        self._cap = max(self._floor, self._cap * _FALLS_TO)
        self._had_trouble = True


class CapWatch:
    """Keeps the slots in use under the cap that it finds."""

    def __init__(self, cap: AdaptiveCap) -> None:
        self._cap = cap
        self._slots: Slots | None = None

    def limit(self, slots: Slots) -> None:
        """Let no more of these be in use, from now on."""
        self._slots = slots
        slots.usable = self._cap.cap

    def launched(self, batch: Batch) -> None:
        """Hear of pushes that go: they say nothing of the sink yet."""

    def landed(self, batch: Batch, now_s: float) -> None:
        if self._slots is None:
            return
        for outcome in batch.outcomes:
            is_error = sign_of(outcome) in _STRAINED
            self._cap.landed(batch.took_s, self._slots.in_flight, is_error=is_error)
        self._slots.usable = self._cap.cap
