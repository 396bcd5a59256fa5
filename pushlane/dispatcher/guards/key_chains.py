"""Which pushes of ordered tasks may go: each only after the one before it of the same key.

Pure: no clock and no I/O. Whoever holds it asks the registry about what is `fresh` and `away`, and
says what it heard and what this process finished itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from itertools import islice, takewhile
from typing import TypeVar

from pushlane.core.lane import Job, Lane, Place

_Key = TypeVar("_Key")


class Parked:
    """One copy of a push that waits for its predecessor.

    `is_asked`: the registry has said that the push itself is not finished. `is_next`: its
    predecessor is, or it has none: one that does not come before it in the task counts as none, so
    that pushes never wait for each other. `is_late`: it waited for it for too long. `is_over`:
    another copy was finished here, whatever the registry said before.
    """

    __slots__ = ("after", "is_asked", "is_late", "is_next", "is_over", "job", "place", "since_s")

    def __init__(self, job: Job, since_s: float) -> None:
        push = job.push
        self.job = job
        self.place = (push.task_id, push.seq)
        self.after = (push.task_id, push.after_seq)
        self.since_s = since_s
        self.is_asked = False
        self.is_late = False
        self.is_next = not 0 < push.after_seq < push.seq
        self.is_over = False


class Verdict(Enum):
    WAIT = "wait"
    GO = "go"
    OVER = "over"
    """It is finished already: to be acked, never sent again."""


class KeyChains:
    """The parked pushes of a process, and those it let go whose outcome is not durable yet.

    What has to be asked is kept as things happen, so that nothing looks through all that is parked:
    `fresh` are those to ask about themselves, `away` the pushes elsewhere that some wait for.
    """

    def __init__(self) -> None:
        self._parked: dict[Parked, None] = {}
        self._copies: dict[Place, dict[Parked, None]] = {}
        self._followers: dict[Place, dict[Parked, None]] = {}
        self._out: dict[Place, float] = {}
        self._fresh: dict[Parked, None] = {}
        self._away: dict[Place, None] = {}
        self._by_lane: dict[Lane, dict[Parked, None]] = {}
        self._by_task: dict[str, dict[Parked, None]] = {}
        self._reached: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits, and nothing is awaited."""
        return not self._parked and not self._out

    @property
    def fresh_count(self) -> int:
        """Return how many the registry is to be asked about."""
        return len(self._fresh)

    @property
    def away_count(self) -> int:
        """Return how many pushes that are elsewhere are waited for."""
        return len(self._away)

    @property
    def lanes(self) -> list[Lane]:
        """List the lanes of which something is parked."""
        return list(self._by_lane)

    @property
    def reached(self) -> Iterable[str]:
        """Return the other sinks that tasks of what is parked have gone on to."""
        return self._reached.keys()

    def of_lane(self, lane: Lane) -> list[Parked]:
        """List what is parked of a lane in the order in which it came."""
        return list(self._by_lane.get(lane, ()))

    def of_task(self, task_id: str) -> list[Parked]:
        """List what is parked of a task in the order in which it came."""
        return list(self._by_task.get(task_id, ()))

    def has_task(self, task_id: str) -> bool:
        return task_id in self._by_task

    def park(self, one: Parked) -> None:
        self._parked[one] = self._fresh[one] = None
        self._by_lane.setdefault(one.job.lane, {})[one] = None
        self._by_task.setdefault(one.job.task.id, {})[one] = None
        self._reached.update(one.job.task.reached)
        self._copies.setdefault(one.place, {})[one] = None
        self._away.pop(one.place, None)
        if not one.is_next:
            self._followers.setdefault(one.after, {})[one] = None
            self._await(one.after)

    def remove(self, one: Parked) -> None:
        """Let a push wait no longer: it goes, is over, or is put elsewhere."""
        del self._parked[one]
        self._fresh.pop(one, None)
        _drop(self._by_lane, one.job.lane, one)
        _drop(self._by_task, one.job.task.id, one)
        self._leave(one.job.task.reached)
        _drop(self._copies, one.place, one)
        self._await(one.place)
        if not one.is_next:
            self._follow_no_more(one)

    def fresh(self, most: int) -> list[Parked]:
        """List some that the registry is to be asked about, the oldest first."""
        return list(islice(self._fresh, most))

    def away(self, most: int) -> list[Place]:
        """List some pushes that are waited for and not here: others each time, all in turn."""
        places = list(islice(self._away, most))
        for place in places:
            del self._away[place]
            self._away[place] = None
        return places

    def answer(self, one: Parked, *, is_over: bool, is_next: bool, now_s: float) -> Verdict:
        """Take over what the registry said of the push itself and of its predecessor."""
        if one not in self._parked:  # it was put elsewhere while the registry was asked
            return Verdict.WAIT
        self._fresh.pop(one, None)
        one.is_asked = True
        if is_next:
            self._set_next(one)
        if is_over or one.is_over:
            self.remove(one)
            return Verdict.OVER
        return self._go(one, now_s)

    def finished(self, place: Place, now_s: float) -> list[Parked]:
        """Hear that an outcome of the push is recorded, and return those that may go now."""
        self._end(place)
        followers = list(self._followers.get(place, ()))
        for one in followers:
            self._set_next(one)
        return [one for one in followers if self._go(one, now_s) is Verdict.GO]

    def ended_elsewhere(self, place: Place) -> None:
        """Hear from the registry that the push is finished: those that wait for it are next."""
        self._end(place)
        self._ask_again(list(self._followers.get(place, ())))

    def overdue(self, place: Place, before_s: float) -> None:
        """Have those that wait for the push since before that time go without it."""
        followers = self._followers.get(place, ())
        late = list(takewhile(lambda one: one.since_s < before_s, followers))
        for one in late:
            one.is_late = True
        self._ask_again(late)

    def let_back(self, place: Place) -> None:
        """Hear of a push that went, but is on a lane again and not finished."""
        self._out.pop(place, None)
        for copy in self._copies.get(place, ()):
            self._fresh[copy] = None
        self._await(place)

    def forget(self, before_s: float) -> None:
        """Do not wait for ever for what went before that time and was never heard of again."""
        for place in list(takewhile(lambda place: self._out[place] < before_s, self._out)):
            self.let_back(place)

    def _end(self, place: Place) -> None:
        self._out.pop(place, None)
        for copy in self._copies.get(place, ()):
            copy.is_over = True
            self._fresh[copy] = None

    def _ask_again(self, followers: Iterable[Parked]) -> None:
        """Let them go once the registry was asked again: others may have sent them since."""
        for one in followers:
            self._set_next(one)
            one.is_asked = False
            self._fresh[one] = None

    def _set_next(self, one: Parked) -> None:
        """Let it wait for no other push any more."""
        if not one.is_next:
            one.is_next = True
            self._follow_no_more(one)

    def _follow_no_more(self, one: Parked) -> None:
        _drop(self._followers, one.after, one)
        self._await(one.after)

    def _go(self, one: Parked, now_s: float) -> Verdict:
        if not (one.is_asked and one.is_next) or one.place in self._out:
            return Verdict.WAIT
        self._out[one.place] = now_s
        self.remove(one)
        return Verdict.GO

    def _await(self, place: Place) -> None:
        """Have the registry asked about a push as long as some wait for it, and it is not here."""
        is_here = place in self._out or place in self._copies
        if place in self._followers and not is_here:
            self._away[place] = None
        else:
            self._away.pop(place, None)

    def _leave(self, reached: Iterable[str]) -> None:
        for name in reached:
            self._reached[name] -= 1
            if not self._reached[name]:
                del self._reached[name]


def _drop(index: dict[_Key, dict[Parked, None]], key: _Key, one: Parked) -> None:
    del index[key][one]
    if not index[key]:
        del index[key]
