"""Pushes of one key one after another, across processes: the gate of ordered tasks.

A push is parked until the registry says that the one before it is finished, or this process has
recorded that itself. What the registry calls finished is acked and never sent again, so that a
redelivery after a kill does not come after its successors. Parked pushes are bounded a lane. The
work of a step does not grow with how many are parked: asked about is what is new, and what they
wait for, so much at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from pushlane.core.endings import Ending
from pushlane.core.errors import Unreachable
from pushlane.core.lane import Job, Place, Why
from pushlane.core.push import Outcome, Push
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.task import Finished, Progress, Task
from pushlane.dispatcher.guards.key_chains import KeyChains, Parked, Verdict
from pushlane.dispatcher.stall_detector import StallDetector
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.ports import ProgressStore

log = logging.getLogger("pushlane.key_order")

_LOOK_EVERY_S = 0.05
_PAUSE_S = 0.01
_MOST_A_STEP = 500
_CLEARED_FOR_S = 60.0


class KeyOrder:
    """Parks pushes and gives them back to their lanes in order.

    `timeout_s` is how long a push waits here for its predecessor before it goes regardless;
    `flight_s` how long one that went is believed to be on its way. While the sink rests nothing can
    go, so neither time runs; nor do they while another sink that pushes have gone on to rests.
    `rests` tells whether a sink of this name does, as far as this process knows. `find` gives this
    process's view of a task.
    """

    def __init__(
        self,
        registry: ProgressStore,
        settler: Settler,
        find: Callable[[str], Task | None],
        stats: Stats,
        timeout_s: float,
        flight_s: float,
        rests: Callable[[str], bool],
    ) -> None:
        self.changed: Callable[[], None] = _unheard
        self._registry = registry
        self._settler = settler
        self._find = find
        self._stats = stats
        self._timeout_s = timeout_s
        self._flight_s = flight_s
        self._rests = rests
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

    def concerns_push(self, push: Push) -> bool:
        return False

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
        if self._find(task.id) is not task:
            self._changed.add(task.id)
        self._due.set()
        return False

    def took_back(self, jobs: Sequence[Job]) -> None:
        """Hear of pushes that did not go: it is their turn still."""

    def on_task(self, task: Task) -> None:
        """Hear that a task is new or changed: what is parked of it goes back to its lane soon."""
        self.on_unread(task.id)

    def on_unread(self, task_id: str) -> None:
        """Hear that only a newer version understands the task."""
        if self._chains.has_task(task_id):
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
        if self._chains.fresh_count:
            return 0.0
        next_s = min(self._look_at_s, self._more_at_s) if self._to_ask else self._look_at_s
        return max(0.0, next_s - now_s)

    async def _step(self, now_s: float) -> None:
        """Ask about what came, and in turn about what is waited for: so many at a time."""
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            self._look(now_s)
            self._to_ask = self._to_ask or self._chains.away_count
        fresh = self._chains.fresh(_MOST_A_STEP)
        away: list[Place] = []
        if now_s >= self._more_at_s:
            self._more_at_s = now_s + _PAUSE_S
            away = self._chains.away(min(self._to_ask, _MOST_A_STEP - len(fresh)))
            self._to_ask = min(self._to_ask - len(away), self._chains.away_count)
        await self._ask(fresh, away)

    def _look(self, now_s: float) -> None:
        if self._rests(self._settler.sink) or any(map(self._rests, self._chains.reached)):
            self._rested_until_s = now_s
        else:
            self._chains.forget(now_s - self._flight_s)
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
        answers = await self._registry.finished(task_id, [*seqs, *(seq for _, seq in away)])
        now_s = time.monotonic()
        going: list[Parked] = []
        told = answers[: len(seqs)]
        for one, is_over, is_next in zip(fresh, told[::2], told[1::2], strict=True):
            verdict = self._chains.answer(one, is_over=is_over, is_next=is_next, now_s=now_s)
            if verdict is Verdict.OVER:
                self._end(one)
            elif verdict is Verdict.GO:
                self._stats.out_of_order += one.is_late and not is_next
                going.append(one)
        for place, is_over in zip(away, answers[len(seqs) :], strict=True):
            if is_over:
                self._chains.ended_elsewhere(place)
            elif self._rested_until_s < now_s - self._timeout_s:
                self._chains.overdue(place, now_s - self._timeout_s)
        self._let_go(going, now_s)

    def _end(self, one: Parked) -> None:
        """Drop a push that is finished already."""
        lane = one.job.lane
        lane.unpark(one.job)
        self._stalls.went(lane)
        self._settler.drop_copy(one.job)
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
            known = self._find(task_id)
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
                self._settler.put_off(one.job, delay_s)


def _unheard() -> None:
    """Tell nobody: a gate that stands in no list."""
