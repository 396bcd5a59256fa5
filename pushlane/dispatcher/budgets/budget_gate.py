"""Lets the pushes of one line go as far as their budgets have room, and keeps those that wait.

A lane whose task, app or sink has no budget leaves the ring until there is some. A pool lane is
shared, so there a push of a limited task or app steps aside, and its task is asked to move to a
lane of its own: then its pushes are forwarded as they surface, and others go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from pushlane.dispatcher.budgets.budgets import Budgets
from pushlane.dispatcher.job import Job
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import InvalidChange, PushlaneError, UnknownFormat, UnknownTask
from pushlane.lanes.limits import Subject
from pushlane.lanes.naming import is_pool
from pushlane.lanes.push import Push
from pushlane.lanes.retrying import Backoff, for_each, whenever
from pushlane.lanes.task import Task

log = logging.getLogger("pushlane.budgets")

T = TypeVar("T")


class OwnLaneRequests:
    """Moves limited tasks from a shared lane to one of their own, each once."""

    def __init__(self, backend: Backend, tasks: KnownTasks) -> None:
        self._backend = backend
        self._tasks = tasks
        self._asked: dict[str, None] = {}
        self._due = asyncio.Event()

    def ask(self, task_id: str) -> None:
        """Move the task soon, unless it has a lane of its own."""
        task = self._tasks.find(task_id)
        if task is not None and task.pooled and not task.state.is_terminal:
            self._asked.setdefault(task_id)
            self._due.set()

    async def run(self) -> None:
        await whenever(self._due, self._move_all, Backoff(log, "the registry"))

    async def _move_all(self) -> None:
        await for_each(list(self._asked), self._move)

    async def _move(self, task_id: str) -> None:
        """Move one; when that fails it is the last to be tried again."""
        del self._asked[task_id]
        try:
            self._tasks.apply(await self._backend.isolate(task_id))
        except (InvalidChange, UnknownTask, UnknownFormat):  # it has ended, or is a newer version's
            return
        except PushlaneError:
            self._asked[task_id] = None
            raise
        log.info("task %s gets a lane of its own", task_id, extra={"action": "task_isolated"})


class Aside(NamedTuple):
    """A push that stepped aside on a shared lane."""

    lane: OpenLane
    taken: Held


class BudgetGate:
    """The budgets of a process as one line asks for them. `cost` is that of a push at this sink."""

    def __init__(
        self,
        sink: str,
        cost: float,
        budgets: Budgets,
        moves: OwnLaneRequests,
        ring: LaneRing,
        stats: Stats,
        wake: Callable[[], None],
    ) -> None:
        self._sink = sink
        self._cost = cost
        self.budgets = budgets
        self._moves = moves
        self._ring = ring
        self._stats = stats
        self._wake = wake
        self._short: dict[Subject, dict[OpenLane, float]] = {}  # with since when it waits
        self._aside: dict[str, list[Aside]] = {}
        self._aside_for: dict[Subject, dict[str, float]] = {}

    def may_go(self, job: Job) -> bool:
        """Charge a push, or keep it until there may be room."""
        task = job.task
        charge = self.budgets.take(
            task.id,
            task.app,
            self._sink,
            self._cost,
            is_first=job.push.attempt == 1,
            went_before=self._went_before(task, job.push),
        )
        if isinstance(charge, Subject):
            self._stats.limited[charge.kind] += 1
            self._wait(job, charge)
            return False
        job.charge = charge
        return True

    def over(self, jobs: Iterable[Job]) -> None:
        """Hear that these are no longer in flight: those that never went are charged nothing."""
        for job in jobs:
            if (charge := job.charge) is not None:
                job.charge = None
                (self.budgets.land if job.dispatched_at_ms else self.budgets.undo)(charge)

    def on_room(self, subject: Subject, most: float) -> bool:
        """Let so many go on that wait for this subject, who waits longest first."""
        now_s, waits = time.monotonic(), self._stats.limit_waits[subject.kind]
        lanes, left = _first(self._short.pop(subject, {}), most)
        tasks, left_aside = _first(self._aside_for.pop(subject, {}), most)
        if left:
            self._short[subject] = left
        if left_aside:
            self._aside_for[subject] = left_aside
        for since_s in (*lanes.values(), *tasks.values()):
            waits.add(now_s - since_s)
        for lane in lanes:
            lane.set_short(False)
            self._ring.released(lane)
        for task_id in tasks:
            self._come_back(task_id)
        self._wake()
        return bool(left or left_aside)

    def on_task(self, task: Task) -> None:
        """Let pushes go on whose task has moved or ended: they are taken care of in their turn."""
        if not task.pooled or task.state.is_terminal:
            self._come_back(task.id)

    def on_unread(self, task_id: str) -> None:
        self._come_back(task_id)

    def _went_before(self, task: Task, push: Push) -> bool:
        """Tell whether a push was sent to an earlier sink of its chain: to each that it has an
        address for.
        """
        chain = task.chain
        if chain[0] == self._sink or self._sink not in chain:
            return False
        return any(push.address(name) for name in chain[: chain.index(self._sink)])

    def _wait(self, job: Job, subject: Subject) -> None:
        lane = job.lane
        if is_pool(lane.name) and subject.kind in ("task", "app"):
            lane.park()
            self._aside.setdefault(job.task.id, []).append(Aside(lane, job.taken))
            self._aside_for.setdefault(subject, {}).setdefault(job.task.id, time.monotonic())
            self._moves.ask(job.task.id)
        else:
            lane.give_back(job.taken)
            lane.set_short(True)
            self._short.setdefault(subject, {}).setdefault(lane, time.monotonic())
        self._ring.released(lane)

    def _come_back(self, task_id: str) -> None:
        for lane, taken in self._aside.pop(task_id, ()):
            lane.unpark()
            lane.give_back(taken)
            self._ring.resume(lane)


def _first(waiting: dict[T, float], most: float) -> tuple[dict[T, float], dict[T, float]]:
    """Return the first of those that wait, and the others."""
    if len(waiting) <= most:
        return waiting, {}
    order = list(waiting.items())
    return dict(order[: int(most)]), dict(order[int(most) :])
