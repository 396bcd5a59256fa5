"""A lane as a dispatcher sees it: a reader, whether it is fed, and how much of it is in hand."""

from __future__ import annotations

from collections import deque

from lanes.ports import LaneReader, Taken
from lanes.task import Level


class OpenLane:
    """One lane that this process reads. The roster owns it; the loop only takes.

    `fed`: the reader has something to take. `held`: the task is paused, so it must wait. `in_hand`
    counts messages taken but not settled: the reader is closed only when there are none.
    """

    __slots__ = ("fed", "held", "in_hand", "level", "name", "reader", "retired", "returned")

    def __init__(self, name: str, level: Level) -> None:
        self.name = name
        self.level = level
        self.reader: LaneReader | None = None
        self.returned: deque[Taken] = deque()
        self.in_hand = 0
        self.fed = False
        self.held = False
        self.retired = False

    @property
    def pending(self) -> int:
        """What was taken and is neither settled nor given back."""
        return self.in_hand - len(self.returned)

    def take(self) -> Taken | None:
        """The next message, if one is at hand: first what was given back, then what is new."""
        if self.returned:
            return self.returned.popleft()
        assert self.reader is not None
        taken = self.reader.take()
        if taken is not None:
            self.in_hand += 1
        return taken

    def refill_wait_s(self) -> float:
        """How long it is worth waiting for what the reader knows to be on its way."""
        return self.reader.refill_wait_s() if self.reader is not None else 0.0

    def give_back(self, taken: Taken) -> None:
        """It could not go yet: it is the next to be taken."""
        self.returned.append(taken)
