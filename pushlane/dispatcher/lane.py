"""A lane as a dispatcher sees it: its readers, whether they are fed, and how much is in hand.

A lane may have a later lane, where its pushes wait for their time. Both count as one lane here: one
place in the ring, one quota, so pushes that come due never give a task a second turn.
"""

from __future__ import annotations

from collections import deque

from pushlane.dispatcher.lane_input import LaneInput
from pushlane.dispatcher.messages import Held
from pushlane.lanes.naming import later_lane
from pushlane.lanes.ports import LaneReader
from pushlane.lanes.task import Level

ROOM = 1_000
_MORE_WAIT_S = 0.4  # a broker's pauses on a busy machine have been seen to outlast 0.25


class OpenLane:
    """One lane that this process reads. Only its own methods change its fields.

    `held`: the task is paused or starts later. `left_for` says why it is left alone until
    `again_at_s`, "" when it is not: `format` when it has something that only a newer version can
    read, `doubt` when the registry does not know a task of its. `delay_full`: so many of
    its pushes wait for their time that only those that come due may go; `deferred` counts those
    sent to wait since the last look. `in_hand` counts pushes taken but not settled: the readers
    are closed only when there are none. `parked` counts those of them that wait for another push
    to be finished, or for their task to be looked up: no more are taken while `room` are.
    `unsettled` counts those whose outcome is not durable yet; of a `crowded` lane there are so
    many that it waits for them. A `short` one waits for a budget. `total` is how many pushes its
    task has, 0 while that is not known, or where several share the lane.
    """

    __slots__ = (
        "again_at_s",
        "crowded",
        "deferred",
        "delay_full",
        "held",
        "in_hand",
        "later",
        "left_for",
        "level",
        "main",
        "name",
        "parked",
        "retired",
        "returned",
        "room",
        "short",
        "total",
        "unsettled",
    )

    def __init__(self, name: str, level: Level, depth: int = 128, later_depth: int = 0) -> None:
        self.name = name
        self.level = level
        self.main = LaneInput(name, depth, wanted=True)
        self.later = LaneInput(later_lane(name), later_depth or depth, wanted=False)
        self.returned: deque[Held] | None = None  # made when it is needed: most lanes never do
        self.in_hand = 0
        self.parked = 0
        self.room = ROOM
        self.held = False
        self.left_for = ""
        self.again_at_s = 0.0
        self.delay_full = False
        self.deferred = 0
        self.unsettled = 0
        self.total = 0
        self.crowded = False
        self.short = False
        self.retired = False

    @property
    def inputs(self) -> tuple[LaneInput, LaneInput]:
        return self.main, self.later

    @property
    def fed(self) -> bool:
        """Tell whether there is something new that may be taken."""
        return bool(
            (self.later.messages and self._takes_due) or (self.main.messages and self._takes_new)
        )

    @property
    def is_low(self) -> bool:
        """Tell whether it is time to pull more off one of its readers."""
        return self.main.is_low or self.later.is_low

    @property
    def may_move(self) -> bool:
        """Tell whether it belongs in the ring: something may be taken and nothing holds it."""
        waits = self.held or self.left_for or self.crowded or self.short
        return not waits and bool(self.returned or self.fed)

    @property
    def is_blocked(self) -> bool:
        """Tell whether there is something new, but too much is parked to take it."""
        has_new = self.later.messages or (self.main.messages and not self.delay_full)
        return bool(has_new) and not self.fed

    @property
    def _takes_new(self) -> bool:
        return not self.delay_full and self.parked < self.room

    @property
    def _takes_due(self) -> bool:
        """Tell whether pushes that come due may be taken: they leave the main lane some room."""
        return self.parked < self.room // 2

    @property
    def pending(self) -> int:
        """Return how many pushes were taken and are neither settled nor given back."""
        return self.in_hand - len(self.returned or ())

    def take(self, oldest_s: float = 0.0) -> Held | None:
        """Take the next push: first what was given back, then what came due, then the rest.

        Only one that was asked about since `oldest_s`, on a monotonic clock.
        """
        if self.returned:
            return self.returned.popleft()
        taken = None
        if self.later.messages and self._takes_due:
            taken = self.later.take(oldest_s)
        if taken is None and self.main.messages and self._takes_new:
            taken = self.main.take(oldest_s)
        if taken is not None:
            self.in_hand += 1
        return taken

    def refill_wait_s(self) -> float:
        """Return for how long to wait for more, which a reader knows of, or of which the last push
        of the task has not come yet. Another process may have that.
        """
        if not self._takes_due:
            return 0.0
        if self.delay_full:
            return self.later.refill_wait_s()
        more_s = _MORE_WAIT_S if self.main.last_seq < self.total else 0.0
        return max(more_s, self.main.refill_wait_s(), self.later.refill_wait_s())

    def let_go(self) -> list[LaneReader]:
        """Return its readers, to be closed: what was given back goes to others with them."""
        self.in_hand -= len(self.returned or ())
        self.returned = None
        readers = [lane_input.close() for lane_input in self.inputs]
        return [reader for reader in readers if reader is not None]

    def give_back(self, taken: Held) -> None:
        """Make a push that could not go yet the next to be taken."""
        if self.returned is None:
            self.returned = deque()
        self.returned.append(taken)

    def park(self) -> None:
        """Count a push that was taken and has to wait here."""
        self.parked += 1

    def unpark(self) -> None:
        """Count one less that waits here: it goes, or is put elsewhere."""
        self.parked -= 1

    def set_room(self, room: int) -> None:
        """Let so many pushes be parked."""
        self.room = room

    def add_unsettled(self) -> int:
        """Count a push whose outcome is to become durable; return how many there are."""
        self.unsettled += 1
        return self.unsettled

    def settled(self, count: int) -> None:
        """Count off pushes whose outcome is durable."""
        self.in_hand -= count
        self.unsettled -= count

    def set_crowded(self, crowded: bool) -> None:
        """Let the lane wait for what is unsettled of it, or no longer."""
        self.crowded = crowded

    def set_short(self, short: bool) -> None:
        """Let the lane wait for a budget, or no longer."""
        self.short = short

    def add_deferred(self, count: int) -> None:
        """Count pushes that were sent to wait for their time."""
        self.deferred += count

    def take_deferred(self) -> int:
        """Return how many pushes were sent to wait since the last call."""
        deferred, self.deferred = self.deferred, 0
        return deferred

    def set_delay_full(self, full: bool) -> None:
        """Let only those pushes go that come due, or all again."""
        self.delay_full = full

    def set_task(self, level: Level, total: int, *, held: bool) -> None:
        """Take over what its task says now; `total` is 0 where it is not known."""
        self.level = level
        self.total = total
        self.held = held

    def hold(self) -> None:
        """Let nothing of it go, as its task is paused."""
        self.held = True

    def leave(self, why: str, again_at_s: float) -> None:
        """Leave it to other processes until then, with the push that was taken last."""
        self.in_hand -= 1
        self.left_for = why
        self.again_at_s = again_at_s

    def come_back(self) -> None:
        """Let this process read it again."""
        self.left_for = ""

    def retire(self) -> None:
        """Read no more of it for good."""
        self.retired = True
