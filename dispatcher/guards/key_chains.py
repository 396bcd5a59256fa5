"""Which pushes of ordered tasks may go: each only after the one before it of the same key.

Pure: no clock and no I/O. Whoever holds it asks the registry its `questions`, and says what it
heard and what this process finished itself.
"""

from __future__ import annotations

from enum import Enum

from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.messages import Held, Place
from pushlane.lanes.push import Push
from pushlane.lanes.task import Task


class Parked:
    """One copy of a push that waits for its predecessor.

    `is_asked`: the registry has said that the push itself is not finished. `is_next`: its
    predecessor is, or it has none: one that does not come before it in the task counts as none, so
    that pushes never wait for each other. `is_over`: another copy was finished here, whatever the
    registry said before.
    """

    __slots__ = (
        "after",
        "is_asked",
        "is_next",
        "is_over",
        "lane",
        "place",
        "push",
        "since_s",
        "taken",
        "task",
    )

    def __init__(self, lane: OpenLane, taken: Held, push: Push, task: Task, since_s: float) -> None:
        self.lane = lane
        self.taken = taken
        self.push = push
        self.task = task
        self.place = (push.task_id, push.seq)
        self.after = (push.task_id, push.after_seq)
        self.since_s = since_s
        self.is_asked = False
        self.is_next = not 0 < push.after_seq < push.seq
        self.is_over = False


class Verdict(Enum):
    WAIT = "wait"
    GO = "go"
    OVER = "over"
    """It is finished already: to be acked, never sent again."""


class KeyChains:
    """The parked pushes of a process, and those it let go whose outcome is not durable yet."""

    def __init__(self) -> None:
        self._parked: dict[Parked, None] = {}
        self._copies: dict[Place, list[Parked]] = {}
        self._followers: dict[Place, list[Parked]] = {}
        self._out: dict[Place, float] = {}

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits, and nothing is awaited."""
        return not self._parked and not self._out

    def parked(self) -> list[Parked]:
        """List the parked pushes in the order in which they came."""
        return list(self._parked)

    def park(self, one: Parked) -> None:
        self._parked[one] = None
        self._copies.setdefault(one.place, []).append(one)
        self._followers.setdefault(one.after, []).append(one)

    def remove(self, one: Parked) -> None:
        """Let a push wait no longer: it goes, is over, or is put elsewhere."""
        del self._parked[one]
        _drop(self._copies, one.place, one)
        _drop(self._followers, one.after, one)

    def questions(self) -> list[Parked]:
        """List those whose predecessor may be finished without this process having done it.

        Not asked again are those that wait for a push which is here itself.
        """
        return [one for one in self._parked if not (one.is_asked and self._waits_here(one))]

    def fresh(self) -> list[Parked]:
        """List those that the registry was never asked about."""
        return [one for one in self._parked if not one.is_asked]

    def answer(self, one: Parked, *, is_over: bool, is_next: bool, now_s: float) -> Verdict:
        """Take over what the registry said of the push itself and of its predecessor."""
        if one not in self._parked:  # it was put elsewhere while the registry was asked
            return Verdict.WAIT
        one.is_asked = True
        one.is_next = one.is_next or is_next
        if is_over or one.is_over:
            self.remove(one)
            return Verdict.OVER
        return self._go(one, now_s)

    def finished(self, place: Place, now_s: float) -> list[Parked]:
        """Hear that an outcome of the push is recorded, and return those that may go now."""
        self._out.pop(place, None)
        for copy in self._copies.get(place, ()):
            copy.is_over = True
        followers = list(self._followers.get(place, ()))
        for one in followers:
            one.is_next = True
        return [one for one in followers if self._go(one, now_s) is Verdict.GO]

    def let_back(self, place: Place) -> None:
        """Hear of a push that went, but is on a lane again and not finished."""
        self._out.pop(place, None)

    def forget(self, before_s: float) -> None:
        """Do not wait for ever for what went before that time and was never heard of again."""
        for place, since_s in list(self._out.items()):
            if since_s >= before_s:
                break
            del self._out[place]

    def _go(self, one: Parked, now_s: float) -> Verdict:
        if not (one.is_asked and one.is_next) or one.place in self._out:
            return Verdict.WAIT
        self.remove(one)
        self._out[one.place] = now_s
        return Verdict.GO

    def _waits_here(self, one: Parked) -> bool:
        return one.place in self._out or one.after in self._out or one.after in self._copies


def _drop(index: dict[Place, list[Parked]], place: Place, one: Parked) -> None:
    left = index[place]
    left.remove(one)
    if not left:
        del index[place]
