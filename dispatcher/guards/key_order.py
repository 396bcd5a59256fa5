"""Pushes of one key one after another, across processes: the guard of ordered tasks.

A push is parked until the registry says that the one before it is finished, or this process has
recorded that itself. What the registry calls finished is acked and never sent again, so that a
redelivery after a kill does not come after its successors. Parked pushes are bounded a lane.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from pushlane.dispatcher.backoff import Backoff
from pushlane.dispatcher.guards.key_chains import KeyChains, Parked, Verdict
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.messages import Held, Place
from pushlane.dispatcher.settlement.settler import Settler
from pushlane.dispatcher.stall_detector import StallDetector
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.errors import Unreachable
from pushlane.lanes.ports import Registry
from pushlane.lanes.push import Push
from pushlane.lanes.task import Task

log = logging.getLogger("pushlane.key_order")

_ASK_AGAIN_S = 0.05
_MOST_A_QUESTION = 2_000
_CLEARED_FOR_S = 60.0


class KeyOrder:
    """Parks pushes and gives them back to their lanes in order.

    `timeout_s` is how long a push waits here for its predecessor before it goes regardless;
    `flight_s` how long one that went is believed to be on its way. While the sink rests nothing can
    go, so neither time runs; nor do they while another sink that pushes have gone on to rests.
    `rests` tells whether a sink of this name does, as far as this process knows.
    """

    def __init__(
        self,
        registry: Registry,
        settler: Settler,
        tasks: KnownTasks,
        ring: LaneRing,
        stats: Stats,
        timeout_s: float,
        flight_s: float,
        sink: str,
        rests: Callable[[str], bool],
    ) -> None:
        self._registry = registry
        self._settler = settler
        self._tasks = tasks
        self._ring = ring
        self._stats = stats
        self._timeout_s = timeout_s
        self._flight_s = flight_s
        self._sink = sink
        self._rests = rests
        self._rested_until_s = 0.0
        self._chains = KeyChains()
        self._due = asyncio.Event()
        self._all_at_s = 0.0
        self._stalls = StallDetector()

    @property
    def parked(self) -> int:
        return len(self._chains)

    def may_go(self, lane: OpenLane, taken: Held, push: Push, task: Task) -> bool:
        """Tell whether it is this push's turn. If not, it is parked, and comes back when it is."""
        now_s = time.monotonic()
        if taken.cleared_s:
            if now_s - taken.cleared_s <= _CLEARED_FOR_S:
                return True
            taken.cleared_s = 0.0
            self._chains.let_back((task.id, push.seq))
        lane.park()
        self._chains.park(Parked(lane, taken, push, task, now_s))
        self._due.set()
        return False

    def settled(self, finished: Iterable[Place], moved: Iterable[Place]) -> None:
        """Hear what became of pushes: an outcome is durable, or they are on a lane again."""
        if self._chains.is_idle:
            return
        now_s = time.monotonic()
        for place in finished:
            self._let_go(self._chains.finished(place, now_s), now_s)
        for place in moved:
            self._chains.let_back(place)

    async def run(self) -> None:
        backoff = Backoff(log, "the registry")
        while True:
            await self._wait()
            now_s = time.monotonic()
            questions = self._questions(now_s)
            try:
                await self._ask(questions)
            except Unreachable as error:
                await backoff.wait(error)
                continue
            backoff.reset()

    async def _wait(self) -> None:
        """Wait until something came, or it is time to ask again for what waits."""
        if not self._chains:
            await self._due.wait()
        elif not self._due.is_set():
            wait_s = self._all_at_s - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, wait_s)):
                    await self._due.wait()
            except TimeoutError:
                return
        self._due.clear()

    def _questions(self, now_s: float) -> list[Parked]:
        if now_s < self._all_at_s:
            return self._chains.fresh()
        self._all_at_s = now_s + _ASK_AGAIN_S
        reached = {name for one in self._chains.parked() for name in one.task.reached}
        if self._rests(self._sink) or any(map(self._rests, reached)):
            self._rested_until_s = now_s
        else:
            self._chains.forget(now_s - self._flight_s)
        self._give_back_changed()
        self._make_room(now_s)
        return self._chains.questions()

    async def _ask(self, questions: Sequence[Parked]) -> None:
        for start in range(0, len(questions), _MOST_A_QUESTION):
            by_task: dict[str, list[Parked]] = defaultdict(list)
            for one in questions[start : start + _MOST_A_QUESTION]:
                by_task[one.task.id].append(one)
            await asyncio.gather(*(self._ask_of(*pair) for pair in by_task.items()))

    async def _ask_of(self, task_id: str, some: list[Parked]) -> None:
        """Ask whether each push is finished itself, and whether the one before it is."""
        seqs = [seq for one in some for seq in (one.push.seq, one.push.after_seq or one.push.seq)]
        answers = await self._registry.finished(task_id, seqs)
        now_s = time.monotonic()
        going: list[Parked] = []
        for one, is_over, is_next in zip(some, answers[::2], answers[1::2], strict=True):
            waits_since_s = max(one.since_s, self._rested_until_s)
            is_late = now_s - waits_since_s > self._timeout_s
            is_next = is_next or is_late
            verdict = self._chains.answer(one, is_over=is_over, is_next=is_next, now_s=now_s)
            if verdict is Verdict.GO:
                self._stats.out_of_order += is_late
                going.append(one)
            elif verdict is Verdict.OVER:
                going += self._end(one, now_s)
        self._let_go(going, now_s)

    def _end(self, one: Parked, now_s: float) -> list[Parked]:
        """Drop a push that is finished already, and return those that waited for it."""
        one.lane.unpark()
        self._stalls.went(one.lane)
        self._settler.forget(one.lane, one.taken, one.push)
        return self._chains.finished(one.place, now_s)

    def _let_go(self, some: Iterable[Parked], now_s: float) -> None:
        for one in some:
            self._stalls.went(one.lane)
            one.taken.cleared_s = now_s
            self._give_back(one)

    def _give_back(self, one: Parked) -> None:
        one.lane.unpark()
        one.lane.give_back(one.taken)
        self._ring.resume(one.lane)

    def _give_back_changed(self) -> None:
        """Give back pushes of tasks that changed meanwhile: admission knows what to do."""
        for one in self._chains.parked():
            if self._is_changed(one.task):
                self._chains.remove(one)
                self._give_back(one)

    def _is_changed(self, task: Task) -> bool:
        """Tell whether the task has a newer value, or its lane is left to others."""
        lane = task.lane_at(self._sink)
        return self._tasks.find(task.id) is not task or self._ring.is_left(lane)

    def _make_room(self, now_s: float) -> None:
        """Put some of those that overfill a lane off to its later lane.

        The lowest seqs stay, as they are the likeliest to be next.
        """
        by_lane: dict[OpenLane, list[Parked]] = defaultdict(list)
        for one in self._chains.parked():
            by_lane[one.lane].append(one)
        overfull = self._stalls.stuck(by_lane, now_s)
        for lane in by_lane:
            self._ring.resume(lane)
        for lane, delay_s in overfull.items():
            by_lane[lane].sort(key=lambda one: one.push.seq)
            for one in by_lane[lane][len(by_lane[lane]) // 4 :]:
                self._chains.remove(one)
                lane.unpark()
                self._settler.later(lane, one.taken, one.push, one.taken.body, delay_s)
