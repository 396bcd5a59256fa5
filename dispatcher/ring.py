"""The ready lanes of one level, in the order of their turns. Pure, O(1) a turn.

A lane whose deliveries hold their slots for longer than others' has its next turn only after so
many rounds. Which level is next is decided by `scheduler`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

LaneT = TypeVar("LaneT", bound=Hashable)

MOST_ROUNDS = 256


class RingEntry(Generic[LaneT]):
    """A lane as the scheduler knows it.

    `queued` says whether it stands in a queue of its ring: a lane that rests keeps its place there
    until it is passed over, so one that is empty for an instant does not lose its turn. `since` is
    when it began to wait, counted in turns of its ring. `rounds` is how many rounds of the ring
    there are from one of its turns to the next, and `due` the round of the next one.
    """

    __slots__ = ("due", "is_new", "lane", "queued", "quota", "ready", "ring", "rounds", "since")

    def __init__(self, lane: LaneT, ring: LevelRing[LaneT], quota: int) -> None:
        self.lane = lane
        self.ring = ring
        self.quota = quota
        self.ready = False
        self.queued = False
        self.is_new = True
        self.since = 0
        self.rounds = 1
        self.due = 0


class LevelRing(Generic[LaneT]):
    """The ready lanes of one level, and what the level is owed.

    `lag` is in units of 1/(sum of active weights) picks: positive when the level is owed. `turn` is
    the lane whose turn it is; it stands in no queue. Lanes never served yet go first, but of lanes
    served before one gets a turn between any two of them, so a flood of new lanes starves nobody.

    A round is over when all that stood in `order` at its begin had their turn. Lanes that are not
    due in the next one wait in `calendar`, by the round in which they are.

    `held` counts the slots that the level has. Below `cap` it may take another; from there on that
    is looked at. `debt` is in picks: while there is some, the level stands aside. `is_long`: its
    deliveries take so long that it leaves some slots to others.
    """

    __slots__ = (
        "calendar",
        "cap",
        "count",
        "debt",
        "held",
        "is_long",
        "lag",
        "left",
        "left_at",
        "newcomer_was_last",
        "newcomers",
        "order",
        "round",
        "turn",
        "turns",
        "used",
        "weight",
    )

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.lag = 0
        self.left_at = 0
        self.debt = 0.0
        self.held = 0
        self.cap = sys.maxsize
        self.is_long = False
        self.count = 0
        self.turn: RingEntry[LaneT] | None = None
        self.used = 0
        self.order: deque[RingEntry[LaneT]] = deque()
        self.newcomers: deque[RingEntry[LaneT]] = deque()
        self.calendar: dict[int, dict[RingEntry[LaneT], None]] = {}
        self.round = 0
        self.left = 0
        self.turns = 0
        self.newcomer_was_last = False

    def enter(self, entry: RingEntry[LaneT]) -> None:
        entry.ready = True
        self.count += 1
        if entry.queued:
            return
        if entry.is_new:
            entry.queued = True
            entry.since = self.turns
            self.newcomers.append(entry)
        else:
            self._queue(entry)

    def leave(self, entry: RingEntry[LaneT]) -> None:
        entry.ready = False
        self.count -= 1
        if self.turn is entry:
            self.turn = None

    def next_turn(self) -> RingEntry[LaneT]:
        """Start the turn of the lane that is next; one is ready."""
        if self.newcomers:
            self.newcomer_was_last = self._has_newcomer() and not self._old_lane_is_due()
        else:
            self.newcomer_was_last = False
        if self.newcomer_was_last:
            entry = self.newcomers.popleft()
        else:
            while not (self.order and self.order[0].ready):
                self._pass_over()
            if self.left == 0:
                self._end_round(self.round + 1)
            self.left -= 1
            entry = self.order.popleft()
        entry.due = self.round + entry.rounds
        self.turns += 1
        entry.queued = False
        self.turn = entry
        self.used = 0
        return entry

    def charge(self) -> None:
        entry = self.turn
        assert entry is not None
        entry.is_new = False
        self.held += 1
        self.used += 1
        if self.used >= entry.quota:
            self.turn = None
            self._queue(entry)

    def set_rounds(self, entry: RingEntry[LaneT], rounds: int) -> None:
        """If it waits in the calendar, it moves to where it is due now."""
        waiting = self.calendar.get(entry.due, {})
        is_waiting = entry in waiting
        waiting.pop(entry, None)
        entry.due += rounds - entry.rounds
        entry.rounds = rounds
        if is_waiting:
            self._queue(entry)

    def _pass_over(self) -> None:
        """Let the lane at the head rest and lose its place; when none is due, the round ends."""
        if self.left == 0 or not self.order:
            self._end_round(self.round + 1 if self.order else min(self.calendar))
        else:
            self.left -= 1
            self.order.popleft().queued = False

    def _end_round(self, following: int) -> None:
        self.round = following
        if self.calendar:
            self.order.extend(self.calendar.pop(following, ()))
        self.left = len(self.order)

    def _old_lane_is_due(self) -> bool:
        """Whether, after a newcomer's turn, a lane waits for longer than the next newcomer."""
        return (
            self.newcomer_was_last
            and self._has_ready()
            and self.order[0].since < self.newcomers[0].since
        )

    def _queue(self, entry: RingEntry[LaneT]) -> None:
        """Behind the others of the next round, or until the round in which it is due."""
        entry.queued = True
        entry.since = self.turns
        if entry.due <= self.round + 1:
            self.order.append(entry)
        else:
            self.calendar.setdefault(entry.due, {})[entry] = None

    def _has_ready(self) -> bool:
        """True when a ready lane is due without a new round."""
        while self.order and not self.order[0].ready:
            self._pass_over()
        return bool(self.order)

    def _has_newcomer(self) -> bool:
        while self.newcomers and not self.newcomers[0].ready:
            self.newcomers.popleft().queued = False
        return bool(self.newcomers)
