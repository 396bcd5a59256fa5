"""Whose turn is it? Pure, with no clock and no I/O: O(1) a pick, however many lanes there are.

Levels share by smooth weighted round-robin (the algorithm of nginx's upstream balancer): every
pick, each level with a ready lane earns its weight, and the one that has earned most pays the
total. So 6:3:1 gives h m h h m h l h m h, never six highs in a row. Inside a level ready lanes
take turns, each of up to its quota.

It never blocks: a lane that cannot move is told to rest, and is out of the way until it is ready.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from lanes.task import Level, Weights

LaneT = TypeVar("LaneT", bound=Hashable)


class _Entry(Generic[LaneT]):
    """What the scheduler knows of one lane.

    `queued` says whether it stands in a queue of its ring: a lane that rests keeps its place there
    until it is passed over, so one that is empty for an instant does not lose its turn. `since` is
    when it began to wait, counted in turns of its ring.
    """

    __slots__ = ("is_new", "lane", "queued", "quota", "ready", "ring", "since")

    def __init__(self, lane: LaneT, ring: _Ring[LaneT], quota: int) -> None:
        self.lane = lane
        self.ring = ring
        self.quota = quota
        self.ready = False
        self.queued = False
        self.is_new = True
        self.since = 0


class _Ring(Generic[LaneT]):
    """The ready lanes of one level, and what the level is owed.

    `lag` is in units of 1/(sum of active weights) picks: positive when the level is owed. `turn` is
    the lane whose turn it is; it stands in no queue. Lanes never served yet go first, but of lanes
    served before one gets a turn between any two of them, so a flood of new lanes starves nobody.
    """

    __slots__ = (
        "count",
        "lag",
        "left_at",
        "newcomer_was_last",
        "newcomers",
        "order",
        "turn",
        "turns",
        "used",
        "weight",
    )

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.lag = 0
        self.left_at = 0
        self.count = 0
        self.turn: _Entry[LaneT] | None = None
        self.used = 0
        self.order: deque[_Entry[LaneT]] = deque()
        self.newcomers: deque[_Entry[LaneT]] = deque()
        self.turns = 0
        self.newcomer_was_last = False

    def enter(self, entry: _Entry[LaneT]) -> None:
        entry.ready = True
        self.count += 1
        if not entry.queued:
            self._queue(entry, self.newcomers if entry.is_new else self.order)

    def leave(self, entry: _Entry[LaneT]) -> None:
        entry.ready = False
        self.count -= 1
        if self.turn is entry:
            self.turn = None

    def next_turn(self) -> _Entry[LaneT]:
        """Start the turn of the lane that is next; one is ready."""
        if self._has_ready(self.newcomers) and not self._old_lane_is_due():
            entry = self.newcomers.popleft()
            self.newcomer_was_last = True
        else:
            self._has_ready(self.order)
            entry = self.order.popleft()
            self.newcomer_was_last = False
        self.turns += 1
        entry.queued = False
        self.turn = entry
        self.used = 0
        return entry

    def charge(self) -> None:
        entry = self.turn
        assert entry is not None
        entry.is_new = False
        self.used += 1
        if self.used >= entry.quota:
            self.turn = None
            self._queue(entry, self.order)

    def _old_lane_is_due(self) -> bool:
        """Whether, after a newcomer's turn, a lane waits for longer than the next newcomer."""
        return (
            self.newcomer_was_last
            and self._has_ready(self.order)
            and self.order[0].since < self.newcomers[0].since
        )

    def _queue(self, entry: _Entry[LaneT], queue: deque[_Entry[LaneT]]) -> None:
        entry.queued = True
        entry.since = self.turns
        queue.append(entry)

    @staticmethod
    def _has_ready(queue: deque[_Entry[LaneT]]) -> bool:
        """Whether a ready lane waits here; those resting at the head lose their place."""
        while queue and not queue[0].ready:
            queue.popleft().queued = False
        return bool(queue)


class Scheduler(Generic[LaneT]):
    """Chooses the next lane to serve.

    `pick` says whose turn it is and changes nothing; `charge` accounts for one push sent from it.
    A lane that turned out to have nothing is told to `rest` and costs its level nothing.
    """

    def __init__(self, weights: Weights | None = None) -> None:
        by_level = (weights or Weights()).by_level()
        self._rings: dict[Level, _Ring[LaneT]] = {level: _Ring(by_level[level]) for level in Level}
        self._active: list[_Ring[LaneT]] = []
        self._total = 0
        self._picked: _Ring[LaneT] | None = None
        self._picks = 0
        self._entries: dict[LaneT, _Entry[LaneT]] = {}

    def add(self, lane: LaneT, level: Level, quota: int = 1) -> None:
        """Know a lane. It rests until it is ready, and then is the next of its level."""
        self._entries[lane] = _Entry(lane, self._rings[level], quota)

    def remove(self, lane: LaneT) -> None:
        self.rest(lane)
        del self._entries[lane]

    def ready(self, lane: LaneT) -> None:
        """It has something to send. One served before goes to the end of its level's queue."""
        entry = self._entries[lane]
        if not entry.ready:
            entry.ring.enter(entry)
            if entry.ring.count == 1:
                self._join(entry.ring)

    def rest(self, lane: LaneT) -> None:
        """It cannot move: empty, paused or held back. Its turn, if it has one, is over."""
        entry = self._entries[lane]
        if entry.ready:
            entry.ring.leave(entry)
            if entry.ring.count == 0:
                self._leave(entry.ring)

    def set_quota(self, lane: LaneT, quota: int) -> None:
        """Takes effect at once: a turn that has used it up ends with its next push."""
        self._entries[lane].quota = quota

    def has_ready(self, level: Level) -> bool:
        return self._rings[level].count > 0

    def quota(self, lane: LaneT) -> int:
        return self._entries[lane].quota

    def set_weights(self, weights: Weights) -> None:
        """Takes effect with the next pick, from a clean slate: old debts were in old shares."""
        for level, weight in weights.by_level().items():
            self._rings[level].weight = weight
            self._rings[level].lag = 0
        self._set_active()

    def weights(self) -> dict[Level, int]:
        return {level: ring.weight for level, ring in self._rings.items()}

    def pick(self) -> LaneT | None:
        """The lane whose turn it is, or None when all rest."""
        best = None
        most = 0
        for ring in self._active:
            earned = ring.lag + ring.weight
            if best is None or earned > most:
                best, most = ring, earned
        self._picked = best
        if best is None:
            return None
        return (best.turn or best.next_turn()).lane

    def charge(self) -> None:
        """One push went out from the lane of the last `pick`."""
        picked = self._picked
        assert picked is not None
        for ring in self._active:
            ring.lag += ring.weight
        picked.lag -= self._total
        self._picks += 1
        picked.charge()

    def _join(self, ring: _Ring[LaneT]) -> None:
        """A level is back. What it owed or was owed has faded at the rate of its weight.

        So a level that is empty for an instant loses nothing, and one that was idle for long brings
        no hoard. The others make room in proportion: lags of active levels always add up to 0.
        """
        faded = max(0, abs(ring.lag) - ring.weight * (self._picks - ring.left_at))
        lag = faded if ring.lag > 0 else -faded
        ring.lag = lag if self._active else 0
        self._spread(-ring.lag)
        self._set_active()

    def _leave(self, ring: _Ring[LaneT]) -> None:
        ring.left_at = self._picks
        self._set_active()
        self._spread(ring.lag)

    def _set_active(self) -> None:
        self._active = [ring for ring in self._rings.values() if ring.count]
        self._total = sum(ring.weight for ring in self._active)

    def _spread(self, amount: int) -> None:
        """Give `amount` of lag to the active levels in proportion to their weights."""
        if not self._active or not amount:
            return
        left = amount
        total = self._total
        for ring in self._active[1:]:
            part = abs(amount) * ring.weight // total if total else 0
            part = part if amount > 0 else -part
            ring.lag += part
            left -= part
        self._active[0].lag += left
