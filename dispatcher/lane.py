"""A lane as a dispatcher sees it: its readers, whether they are fed, and how much is in hand.

A lane may have a later lane, where its pushes wait for their time. Both count as one lane here: one
place in the ring, one quota, so pushes that come due never give a task a second turn.
"""

from __future__ import annotations

from collections import deque

from lanes.naming import later_lane
from lanes.ports import LaneReader, Taken
from lanes.task import Level

ROOM = 1_000


class Inlet:
    """A reader, once it is open. `fed`: it has something to take."""

    __slots__ = ("fed", "name", "reader", "wanted")

    def __init__(self, name: str, *, wanted: bool) -> None:
        self.name = name
        self.wanted = wanted
        self.reader: LaneReader | None = None
        self.fed = False

    def take(self) -> Taken | None:
        """The next message; after a None the reader says when there is something again."""
        if not self.fed or self.reader is None:
            return None
        taken = self.reader.take()
        self.fed = taken is not None
        return taken

    def refill_wait_s(self) -> float:
        return self.reader.refill_wait_s() if self.reader is not None else 0.0


class OpenLane:
    """One lane that this process reads. The roster owns it; the loop only takes.

    `held`: the task is paused or starts later. `brimful`: so many of its pushes wait for their
    time that only those that come due may go; `deferred` counts those sent to wait since the last
    look. `in_hand` counts messages taken but not settled: the readers are closed only when there
    are none. `parked` counts those of them that wait for another push to be finished, or for their
    task to be looked up: no more are taken while `room` are. `unsettled` counts those whose outcome
    is not durable yet; of a `crowded` lane there are so many that it waits for them.
    """

    __slots__ = (
        "brimful",
        "crowded",
        "deferred",
        "held",
        "in_hand",
        "later",
        "level",
        "main",
        "name",
        "parked",
        "retired",
        "returned",
        "room",
        "unsettled",
    )

    def __init__(self, name: str, level: Level) -> None:
        self.name = name
        self.level = level
        self.main = Inlet(name, wanted=True)
        self.later = Inlet(later_lane(name), wanted=False)
        self.returned: deque[Taken] | None = None  # made when it is needed: most lanes never do
        self.in_hand = 0
        self.parked = 0
        self.room = ROOM
        self.held = False
        self.brimful = False
        self.deferred = 0
        self.unsettled = 0
        self.crowded = False
        self.retired = False

    @property
    def inlets(self) -> tuple[Inlet, Inlet]:
        return self.main, self.later

    @property
    def fed(self) -> bool:
        """Whether there is something new that may be taken."""
        return (self.later.fed and self._takes_due) or (self.main.fed and self._takes_new)

    @property
    def is_blocked(self) -> bool:
        """Whether there is something new, but too much is parked to take it."""
        has_new = self.later.fed or (self.main.fed and not self.brimful)
        return has_new and not self.fed

    @property
    def _takes_new(self) -> bool:
        return not self.brimful and self.parked < self.room

    @property
    def _takes_due(self) -> bool:
        """What comes due, over and over, must leave the main lane some room."""
        return self.parked < self.room // 2

    @property
    def pending(self) -> int:
        """What was taken and is neither settled nor given back."""
        return self.in_hand - len(self.returned or ())

    def take(self) -> Taken | None:
        """The next message at hand: first what was given back, then what came due, then the rest.

        After a None the lane is not fed.
        """
        if self.returned:
            return self.returned.popleft()
        taken = None
        if self.later.fed and self._takes_due:
            taken = self.later.take()
        if taken is None and self.main.fed and self._takes_new:
            taken = self.main.take()
        if taken is not None:
            self.in_hand += 1
        return taken

    def refill_wait_s(self) -> float:
        """How long it is worth waiting for what a reader knows to be on its way."""
        if not self._takes_due:
            return 0.0
        inlets = (self.later,) if self.brimful else self.inlets
        return max(inlet.refill_wait_s() for inlet in inlets)

    def give_back(self, taken: Taken) -> None:
        """It could not go yet: it is the next to be taken."""
        if self.returned is None:
            self.returned = deque()
        self.returned.append(taken)
