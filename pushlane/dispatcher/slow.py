"""Shares of slots: which lanes hold theirs for longer than others, and what that costs them.

While all deliveries take equally long, turns alone share the slots, exactly. A lane whose
deliveries take longer than the others' would hold more than its part by the same number of turns.
So its turns come less often, and its level pays for what it holds beyond what its picks paid for:
then slots held are as the weights, and inside a level as the quotas. Both are told to the
scheduler, twenty times a second at most; a pick does not get longer for it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from pushlane.core.lane import Lane
from pushlane.core.slots import Batch
from pushlane.core.task import Level
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.dwell import Mean, Read, Stopwatch

_LOOK_EVERY_S = 0.05
_STOPPED_S = 5.0
_WELL_KNOWN = 20
_YOUNG = 8
_LONG_S = 1.0
_DEBT_S = 5.0
_IDLE_S = 10.0
_BUSY_PICKS_A_S = 20


class Leveled(Hashable, Protocol):
    level: Level


LaneT = TypeVar("LaneT", bound=Leveled)


class Dwell(Generic[LaneT]):
    """The deliveries of one lane at one level."""

    __slots__ = ("counted", "lane", "level", "mean", "since_s", "watch")

    def __init__(self, lane: LaneT) -> None:
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


class HeldSlots(NamedTuple, Generic[LaneT]):
    """Slots that pushes took together."""

    since_s: float
    parts: Sequence[tuple[Dwell[LaneT], int]]


class Slow(NamedTuple, Generic[LaneT]):
    """A lane that is counted as slow: how many times as long as others' its deliveries take."""

    lane: LaneT
    times: float
    since_s: float


class _OfLevel:
    """All deliveries of a level, and those of its lanes that have had few picks."""

    def __init__(self) -> None:
        self.all = Mean()
        self.young = Mean()


class Shares(Generic[LaneT]):
    """Watches who holds slots. `slots` is how many there are; times are of a monotonic clock."""

    def __init__(self, scheduler: Scheduler[LaneT], slots: int) -> None:
        self._scheduler = scheduler
        self._slots = slots
        self._dwells: dict[LaneT, Dwell[LaneT]] = {}
        self._live: dict[Dwell[LaneT], None] = {}
        self._idle: OrderedDict[Dwell[LaneT], float] = OrderedDict()
        self._levels = {level: _OfLevel() for level in Level}
        self._alike = (0.0, 0.0)  # slot-seconds and landings of the lanes that count as alike
        self._base_s = 0.0
        self._looked_s = -math.inf
        self._age_s = 0.0  # what is known fades with it: it stands still while nothing is learnt

    def took(self, now_s: float, lanes: Sequence[LaneT]) -> HeldSlots[LaneT]:
        """Count slots that pushes of these lanes take, to be given back together."""
        if len(lanes) == 1:
            parts = [(self._dwell(lanes[0]), 1)]
        else:
            counts: dict[LaneT, int] = {}
            for lane in lanes:
                counts[lane] = counts.get(lane, 0) + 1
            parts = [(self._dwell(lane), count) for lane, count in counts.items()]
        for dwell, count in parts:
            dwell.watch.took_off(now_s, count)
            self._live[dwell] = None
        return HeldSlots(now_s, parts)

    def gave(self, now_s: float, hold: HeldSlots[LaneT]) -> None:
        """Count slots that are free again."""
        for dwell, count in hold.parts:
            dwell.watch.landed(now_s, hold.since_s, count)
            self._live[dwell] = None

    def slow(self) -> list[Slow[LaneT]]:
        """List the lanes that are counted as slow now, and since when."""
        dwells = (one for one in self._dwells.values() if one.mean.cost > 1)
        return [Slow(one.lane, one.mean.cost, one.since_s) for one in dwells]

    def look(self, now_s: float) -> None:
        """Judge who is slow, and charge for what they held since the last time; cheap if early."""
        if now_s < self._looked_s + _LOOK_EVERY_S:
            return
        if now_s > self._looked_s + _STOPPED_S:
            self._skip(now_s - self._looked_s)
        read = [(dwell, dwell.watch.read(now_s)) for dwell in self._live]
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

    def _dwell(self, lane: LaneT) -> Dwell[LaneT]:
        dwell = self._dwells.get(lane)
        if dwell is None or dwell.level is not lane.level:
            dwell = self._dwells[lane] = Dwell(lane)
        return dwell

    def _feed(self, dwell: Dwell[LaneT], read: Read) -> None:
        of_level = self._levels[dwell.level]
        of_level.all.feed(self._age_s, read)
        if dwell.is_young:
            of_level.young.feed(self._age_s, read)
        dwell.mean.feed(self._age_s, read)
        if not dwell.watch.in_flight:
            del self._live[dwell]
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
            if self._dwells.get(dwell.lane) is dwell:
                self._scheduler.set_rounds(dwell.lane, 1)
                del self._dwells[dwell.lane]

    def _set_base(self, dwells: Sequence[Dwell[LaneT]]) -> None:
        """Set how long a usual delivery takes: the mean of the lanes that are alike.

        One that is surely shorter is the usual one, and so is the shortest when none are alike.
        """
        for dwell in dwells:
            self._count(dwell, is_alike=self._cost(dwell) == 1)
        known = [dwell.mean for dwell in dwells if dwell.mean.landings >= _WELL_KNOWN]
        spent_s, landings = self._alike
        if landings >= _WELL_KNOWN:
            self._base_s = spent_s / landings
        elif known:
            self._base_s = min(mean.a_landing_s for mean in known)
        for mean in known:
            if mean.is_surely_shorter(self._base_s):
                self._base_s = mean.a_landing_s

    def _count(self, dwell: Dwell[LaneT], *, is_alike: bool) -> None:
        now = (dwell.mean.spent_s, dwell.mean.landings) if is_alike else (0.0, 0.0)
        spent_s, landings = self._alike
        self._alike = spent_s + now[0] - dwell.counted[0], landings + now[1] - dwell.counted[1]
        dwell.counted = now

    def _cost(self, dwell: Dwell[LaneT]) -> float:
        return self._levels[dwell.level].young.cost if dwell.is_young else dwell.mean.cost

    def _judge(self, dwells: Sequence[Dwell[LaneT]], now_s: float) -> None:
        for of_level in self._levels.values():
            of_level.young.judge(self._base_s)
        for dwell in dwells:
            was_alike = dwell.mean.cost == 1
            if dwell.mean.judge(self._base_s):
                dwell.since_s = now_s if was_alike else dwell.since_s
                if self._dwells.get(dwell.lane) is dwell:  # else the lane has another level now
                    self._scheduler.set_rounds(dwell.lane, max(1, round(dwell.mean.cost)))

    def _bill(self, read: Sequence[tuple[Dwell[LaneT], Read]]) -> None:
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


class SlotWatch:
    """Tells `Shares` who holds slots."""

    def __init__(self, shares: Shares[Lane]) -> None:
        self._shares = shares
        self._held: dict[Batch, HeldSlots[Lane]] = {}

    def launched(self, batch: Batch) -> None:
        self._held[batch] = self._shares.took(batch.since_s, [job.lane for job in batch.jobs])

    def landed(self, batch: Batch, now_s: float) -> None:
        self._shares.gave(now_s, self._held.pop(batch))
