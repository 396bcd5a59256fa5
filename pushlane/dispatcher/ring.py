"""Turns of what is ready, in their order. Pure, O(1) a turn.

What holds its slots for longer than others has its next turn only after so many rounds. A level is
a ring of apps, and an app in it a ring of lanes: that is in `level_ring`.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

MOST_ROUNDS = 256


class RingEntry:
    """What takes turns in a ring.

    `queued` says whether it stands in a queue of its ring: what rests keeps its place there until
    it is passed over, so a lane that is empty for an instant does not lose its turn. `since` is
    when it began to wait, counted in turns of its ring. `rounds` is how many rounds of the ring
    there are from one of its turns to the next, and `due` the round of the next one.
    """

    __slots__ = ("due", "is_new", "queued", "quota", "ready", "rounds", "since")

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.ready = False
        self.queued = False
        self.is_new = True
        self.since = 0
        self.rounds = 1
        self.due = 0


EntryT = TypeVar("EntryT", bound=RingEntry)


class Ring(Generic[EntryT]):
    """Entries that take turns.

    `turn` is the one whose turn it is; it stands in no queue, and has `used` so much of its quota.
    `count` is how many are ready. Those never served yet go first, but of those served before one
    gets a turn between any two of them, so a flood of new ones starves nobody.

    A round is over when all that stood in `order` at its begin had their turn. Entries that are not
    due in the next one wait in `calendar`, by the round in which they are.
    """

    __slots__ = (
        "calendar",
        "count",
        "left",
        "newcomer_was_last",
        "newcomers",
        "order",
        "round",
        "turn",
        "turns",
        "used",
    )

    def __init__(self) -> None:
        self.count = 0
        self.turn: EntryT | None = None
        self.used = 0
        self.order: deque[EntryT] = deque()
        self.newcomers: deque[EntryT] = deque()
        self.calendar: dict[int, dict[EntryT, None]] = {}
        self.round = 0
        self.left = 0
        self.turns = 0
        self.newcomer_was_last = False

    def enter(self, entry: EntryT) -> None:
        entry.ready = True
        self.count += 1
        if entry.queued:
            return
        if entry.is_new:
            entry.queued = True
            entry.since = self.turns
            self.newcomers.append(entry)
        else:
            self.queue(entry)

    def leave(self, entry: EntryT) -> None:
        entry.ready = False
        self.count -= 1
        if self.turn is entry:
            self.turn = None

    def next_turn(self, entry: EntryT | None = None) -> EntryT:
        """Start the turn of the one that is next, or of an entry that stands in no queue.

        One is ready.
        """
        if entry is not None:
            self.newcomer_was_last = False
        elif self.newcomers and self._is_newcomers_turn():
            self.newcomer_was_last = True
            entry = self.newcomers.popleft()
        else:
            self.newcomer_was_last = False
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

    def queue(self, entry: EntryT) -> None:
        """Put it behind the others of the next round, or until the round in which it is due."""
        entry.queued = True
        entry.since = self.turns
        if entry.due <= self.round + 1:
            self.order.append(entry)
        else:
            self.calendar.setdefault(entry.due, {})[entry] = None

    def set_rounds(self, entry: EntryT, rounds: int) -> None:
        """If it waits in the calendar, it moves to where it is due now."""
        waiting = self.calendar.get(entry.due, {})
        is_waiting = entry in waiting
        waiting.pop(entry, None)
        entry.due += rounds - entry.rounds
        entry.rounds = rounds
        if is_waiting:
            self.queue(entry)

    def _pass_over(self) -> None:
        """Let the one at the head rest and lose its place; when none is due, the round ends."""
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

    def _is_newcomers_turn(self) -> bool:
        return self._has_newcomer() and not self._old_one_is_due()

    def _old_one_is_due(self) -> bool:
        """Whether, after a newcomer's turn, another waits for longer than the next newcomer."""
        return (
            self.newcomer_was_last
            and self._has_ready()
            and self.order[0].since < self.newcomers[0].since
        )

    def _has_ready(self) -> bool:
        """True when a ready one is due without a new round."""
        while self.order and not self.order[0].ready:
            self._pass_over()
        return bool(self.order)

    def _has_newcomer(self) -> bool:
        while self.newcomers and not self.newcomers[0].ready:
            self.newcomers.popleft().queued = False
        return bool(self.newcomers)
