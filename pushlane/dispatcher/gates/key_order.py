"""Pushes of one key one after another, across processes: the gate of ordered tasks.

A push is parked until the registry says that the one before it of its key is finished, or this
process has recorded that itself. What the registry calls finished is acked and never sent again, so
that a redelivery after a kill does not come after its successors. The work of a step does not grow
with how many are parked: asked about is what is new, and what they wait for, so much at a time.

Parked pushes are bounded a lane. What all of them wait for may be behind them on the lane, or was
put off: after a kill it comes again. So a stuck lane may hold more, and when that is too much, some
of it is put off.

`KeyChains` and `StallDetector` are pure: they are told the time, and what was heard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice, takewhile
from typing import TypeVar

from pushlane.backends.ports import ProgressStore
from pushlane.core.endings import Ending
from pushlane.core.errors import Unreachable
from pushlane.core.lane import ROOM, Job, Lane, Place, Why
from pushlane.core.push import Outcome
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.task import Finished, Progress, Task
from pushlane.dispatcher.gates import BaseOption
from pushlane.dispatcher.stats import Stats

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
        self.is_asked = self.is_late = self.is_over = False
        self.is_next = not 0 < push.after_seq < push.seq


class Verdict(Enum):
    WAIT = "wait"
    GO = "go"
    OVER = "over"
    """It is finished already: to be acked, never sent again."""


class KeyChains:
    """The parked pushes of a process, and those it let go whose outcome is not durable yet.

    `reached` has the other sinks that tasks of what is parked have gone on to.

    What has to be asked is kept as things happen, so that nothing looks through all that is parked:
    `unasked` are those to ask about themselves, `elsewhere` the pushes that some wait for and that
    are not here.
    """

    def __init__(self) -> None:
        self._parked: dict[Parked, None] = {}
        self._copies: dict[Place, dict[Parked, None]] = {}
        self._followers: dict[Place, dict[Parked, None]] = {}
        self._out: dict[Place, float] = {}
        self.unasked: dict[Parked, None] = {}
        self.elsewhere: dict[Place, None] = {}
        self._by_lane: dict[Lane, dict[Parked, None]] = {}
        self._by_task: dict[str, dict[Parked, None]] = {}
        self.reached: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits, and nothing is awaited."""
        return not self._parked and not self._out

    @property
    def lanes(self) -> list[Lane]:
        """List the lanes of which something is parked."""
        return list(self._by_lane)

    def of_lane(self, lane: Lane) -> list[Parked]:
        """List what is parked of a lane in the order in which it came."""
        return list(self._by_lane.get(lane, ()))

    def of_task(self, task_id: str) -> list[Parked]:
        """List what is parked of a task in the order in which it came."""
        return list(self._by_task.get(task_id, ()))

    def park(self, one: Parked) -> None:
        self._parked[one] = self.unasked[one] = None
        self._by_lane.setdefault(one.job.lane, {})[one] = None
        self._by_task.setdefault(one.job.task.id, {})[one] = None
        self.reached.update(one.job.task.reached)
        self._copies.setdefault(one.place, {})[one] = None
        self.elsewhere.pop(one.place, None)
        if not one.is_next:
            self._followers.setdefault(one.after, {})[one] = None
            self._await(one.after)

    def remove(self, one: Parked) -> None:
        """Let a push wait no longer: it goes, is over, or is put elsewhere."""
        del self._parked[one]
        self.unasked.pop(one, None)
        _drop(self._by_lane, one.job.lane, one)
        _drop(self._by_task, one.job.task.id, one)
        if one.job.task.reached:
            self.reached -= Counter(one.job.task.reached)
        _drop(self._copies, one.place, one)
        self._await(one.place)
        if not one.is_next:
            self._follow_no_more(one)

    def fresh(self, most: int) -> list[Parked]:
        """List some that the registry is to be asked about, the oldest first."""
        return list(islice(self.unasked, most))

    def away(self, most: int) -> list[Place]:
        """List some pushes that are waited for and not here: others each time, all in turn."""
        places = list(islice(self.elsewhere, most))
        for place in places:
            del self.elsewhere[place]
            self.elsewhere[place] = None
        return places

    def answer(self, one: Parked, *, is_over: bool, is_next: bool, now_s: float) -> Verdict:
        """Take over what the registry said of the push itself and of its predecessor."""
        if one not in self._parked:  # it was put elsewhere while the registry was asked
            return Verdict.WAIT
        self.unasked.pop(one, None)
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
            self.unasked[copy] = None
        self._await(place)

    def forget(self, before_s: float) -> None:
        """Do not wait for ever for what went before that time and was never heard of again."""
        for place in list(takewhile(lambda place: self._out[place] < before_s, self._out)):
            self.let_back(place)

    def _end(self, place: Place) -> None:
        self._out.pop(place, None)
        for copy in self._copies.get(place, ()):
            copy.is_over = True
            self.unasked[copy] = None

    def _ask_again(self, followers: Iterable[Parked]) -> None:
        """Let them go once the registry was asked again: others may have sent them since."""
        for one in followers:
            self._set_next(one)
            one.is_asked = False
            self.unasked[one] = None

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
            self.elsewhere[place] = None
        else:
            self.elsewhere.pop(place, None)


def _drop(index: dict[_Key, dict[Parked, None]], key: _Key, one: Parked) -> None:
    del index[key][one]
    if not index[key]:
        del index[key]


_STUCK_S = 0.3
_MOST_ROOM = 10_000
_MOST_PARKED = 50_000
_SHORTEST_S = 1.0
_LONGEST_S = 30.0


@dataclass(slots=True)
class _Stall:
    since_s: float
    put_off_s: float = _SHORTEST_S


class StallDetector:
    """Finds stuck lanes, and says how much may be parked of each: nobody else does."""

    def __init__(self) -> None:
        self._stalls: dict[Lane, _Stall] = {}

    def went(self, lane: Lane) -> None:
        """Note that something of the lane could go."""
        self._stalls.pop(lane, None)

    def stuck(self, parking: Iterable[Lane], now_s: float) -> dict[Lane, float]:
        """Return, of lanes of which something is parked, those to put some off, and how long.

        The others get more room if they are stuck, and less when they no longer need it.
        """
        lanes = list(parking)
        parked = sum(len(lane.parked) for lane in lanes)
        kept: dict[Lane, _Stall] = {}
        overfull: dict[Lane, float] = {}
        for lane in lanes:
            stall = kept[lane] = self._stalls.get(lane) or _Stall(now_s)
            if not lane.is_stuck:
                lane.set_room(max(ROOM, min(lane.room, len(lane.parked) + ROOM)))
                stall.since_s = now_s
            elif lane.in_hand > len(lane.parked):  # in flight, or about to be
                stall.since_s = now_s
            elif now_s - stall.since_s > _STUCK_S:
                stall.since_s = now_s
                if lane.room < _MOST_ROOM and parked < _MOST_PARKED:
                    lane.set_room(lane.room + ROOM)
                else:
                    overfull[lane] = stall.put_off_s
                    stall.put_off_s = min(_LONGEST_S, 2 * stall.put_off_s)
        self._stalls = kept
        return overfull


log = logging.getLogger("pushlane.key_order")

_LOOK_EVERY_S = 0.05
_PAUSE_S = 0.01
_MOST_A_STEP = 500
_CLEARED_FOR_S = 60.0


@dataclass(eq=False, repr=False)
class KeyOrder(BaseOption):
    """Parks pushes and gives them back to their lanes in order.

    `timeout_s` is how long a push waits here for its predecessor before it goes regardless;
    `flight_s` how long one that went is believed to be on its way. While the sink rests nothing can
    go, so neither time runs; nor do they while another sink that pushes have gone on to rests.
    `rests` tells whether a sink of this name does, as far as this process knows. `find` gives this
    process's view of a task.
    """

    registry: ProgressStore
    settler: Settler
    find: Callable[[str], Task | None]
    stats: Stats
    timeout_s: float
    flight_s: float
    rests: Callable[[str], bool]

    def __post_init__(self) -> None:
        self._rested_until_s = 0.0
        self._chains = KeyChains()
        self._due = asyncio.Event()
        self._changed: set[str] = set()
        self._look_at_s = 0.0
        self._more_at_s = 0.0
        self._to_ask = 0
        self._stalls = StallDetector()

    @property
    def parked(self) -> int:
        return len(self._chains)

    def concerns(self, task: Task) -> bool:
        return task.ordered

    def lets(self, job: Job, end: Outcome | None) -> bool:
        """Tell whether it is this push's turn. If not, it is parked, and comes back when it is.

        One that ends unsent waits as well: what comes after it waits for that, too.
        """
        now_s = time.monotonic()
        task, push = job.task, job.push
        if job.cleared_s:
            if now_s - job.cleared_s <= _CLEARED_FOR_S:
                return True
            job.cleared_s = 0.0
            self._chains.let_back((task.id, push.seq))
        job.lane.park(job, Why.KEYS)
        self._chains.park(Parked(job, now_s))
        if self.find(task.id) is not task:
            self._changed.add(task.id)
        self._due.set()
        return False

    def on_task(self, task: Task) -> None:
        """Hear that a task is new or changed: what is parked of it goes back to its lane soon."""
        self.on_unread(task.id)

    def on_unread(self, task_id: str) -> None:
        if self._chains.of_task(task_id):
            self._changed.add(task_id)

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        """Hear what became of pushes: an outcome is durable, or they are on a lane again."""
        if self._chains.is_idle:
            return
        now_s = time.monotonic()
        for ending in endings:
            place = (ending.job.push.task_id, ending.job.push.seq)
            if ending.kind is None:
                self._chains.let_back(place)
            else:
                self._let_go(self._chains.finished(place, now_s), now_s)

    async def run(self) -> None:
        backoff = Backoff(log, "the registry")
        while True:
            await self._wait()
            try:
                await self._step(time.monotonic())
            except Unreachable as error:
                await backoff.wait(error)
                continue
            backoff.reset()

    async def _wait(self) -> None:
        """Wait until something came, or it is time to look or to ask again for what waits."""
        if not self._chains:
            await self._due.wait()
        elif not self._due.is_set():
            try:
                async with asyncio.timeout(self._pause_s(time.monotonic())):
                    await self._due.wait()
            except TimeoutError:
                return
        self._due.clear()

    def _pause_s(self, now_s: float) -> float:
        if self._chains.unasked:
            return 0.0
        next_s = min(self._look_at_s, self._more_at_s) if self._to_ask else self._look_at_s
        return max(0.0, next_s - now_s)

    async def _step(self, now_s: float) -> None:
        """Ask about what came, and in turn about what is waited for: so many at a time."""
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            self._look(now_s)
            self._to_ask = self._to_ask or len(self._chains.elsewhere)
        fresh = self._chains.fresh(_MOST_A_STEP)
        away: list[Place] = []
        if now_s >= self._more_at_s:
            self._more_at_s = now_s + _PAUSE_S
            away = self._chains.away(min(self._to_ask, _MOST_A_STEP - len(fresh)))
            self._to_ask = min(self._to_ask - len(away), len(self._chains.elsewhere))
        await self._ask(fresh, away)

    def _look(self, now_s: float) -> None:
        if self.rests(self.settler.sink) or any(map(self.rests, self._chains.reached)):
            self._rested_until_s = now_s
        else:
            self._chains.forget(now_s - self.flight_s)
        self._give_back_changed()
        self._make_room(now_s)

    async def _ask(self, fresh: Sequence[Parked], away: Sequence[Place]) -> None:
        by_task: dict[str, tuple[list[Parked], list[Place]]] = defaultdict(lambda: ([], []))
        for one in fresh:
            by_task[one.job.task.id][0].append(one)
        for place in away:
            by_task[place[0]][1].append(place)
        await asyncio.gather(*(self._ask_of(task_id, *both) for task_id, both in by_task.items()))

    async def _ask_of(self, task_id: str, fresh: list[Parked], away: list[Place]) -> None:
        """Ask whether new pushes, or those before them, are finished, and those elsewhere."""
        pushes = [one.job.push for one in fresh]
        seqs = [seq for push in pushes for seq in (push.seq, push.after_seq or push.seq)]
        answers = await self.registry.finished(task_id, [*seqs, *(seq for _, seq in away)])
        now_s = time.monotonic()
        going: list[Parked] = []
        told = answers[: len(seqs)]
        for one, is_over, is_next in zip(fresh, told[::2], told[1::2], strict=True):
            verdict = self._chains.answer(one, is_over=is_over, is_next=is_next, now_s=now_s)
            if verdict is Verdict.OVER:
                self._end(one)
            elif verdict is Verdict.GO:
                self.stats.out_of_order += one.is_late and not is_next
                going.append(one)
        for place, is_over in zip(away, answers[len(seqs) :], strict=True):
            if is_over:
                self._chains.ended_elsewhere(place)
            elif self._rested_until_s < now_s - self.timeout_s:
                self._chains.overdue(place, now_s - self.timeout_s)
        self._let_go(going, now_s)

    def _end(self, one: Parked) -> None:
        """Drop a push that is finished already."""
        lane = one.job.lane
        lane.unpark(one.job)
        self._stalls.went(lane)
        self.settler.drop_copy(one.job)
        self._chains.ended_elsewhere(one.place)

    def _let_go(self, some: Iterable[Parked], now_s: float) -> None:
        for one in some:
            self._stalls.went(one.job.lane)
            one.job.cleared_s = now_s
            one.job.lane.release(one.job)

    def _give_back_changed(self) -> None:
        """Give back pushes of tasks that changed meanwhile: admission knows what to do."""
        changed, self._changed = self._changed, set()
        for task_id in changed:
            known = self.find(task_id)
            self._return(
                [one for one in self._chains.of_task(task_id) if one.job.task is not known]
            )

    def _return(self, some: Iterable[Parked]) -> None:
        for one in some:
            self._chains.remove(one)
            one.job.lane.release(one.job)

    def _make_room(self, now_s: float) -> None:
        """Give back what is parked of lanes that are left to others; put off what overfills one.

        The lowest seqs stay, as they are the likeliest to be next.
        """
        for lane in self._chains.lanes:
            if lane.is_left:
                self._return(self._chains.of_lane(lane))
        overfull = self._stalls.stuck(self._chains.lanes, now_s)
        for lane, delay_s in overfull.items():
            some = sorted(self._chains.of_lane(lane), key=lambda one: one.job.push.seq)
            for one in some[len(some) // 4 :]:
                self._chains.remove(one)
                lane.unpark(one.job)
                self.settler.put_off(one.job, delay_s)
