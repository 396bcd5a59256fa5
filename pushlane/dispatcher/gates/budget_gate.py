"""Lets the pushes of one line go as far as their budgets have room, and keeps those that wait.

A lane whose task, app or sink has no budget leaves the ring until there is some. A pool lane is
shared, so there a push of a limited task or app steps aside, and its task is asked to move to a
lane of its own: then its pushes are forwarded as they surface, and others go on.

The limits that are set are all read again and again, as they are few and small: so a change holds
here within a second. They are read before a task is known to run, too, so that one that is limited
before its start never goes without.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from pushlane.backends.backend import Backend
from pushlane.core.errors import InvalidChange, PushlaneError, UnknownFormat
from pushlane.core.lane import Job, Lane, Why
from pushlane.core.names import is_pool
from pushlane.core.push import Outcome, Push
from pushlane.core.retrying import Backoff
from pushlane.core.slots import Batch
from pushlane.core.task import Level, Task
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.gates import BaseOption
from pushlane.dispatcher.gates.budgets import UNCHARGED, Budgets, Charge, Room
from pushlane.dispatcher.gates.room_queue import RoomQueue
from pushlane.dispatcher.stats import Stats
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.model.documents import DocumentStore
from pushlane.model.limits import Limit, Limits, Subject, readable_limits
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from pushlane.util.retrying import for_each, whenever
from pushlane.util.texts import Once

log = logging.getLogger("pushlane.budgets")

T = TypeVar("T")

_FEWEST = 64
"""So many that step aside are let go at once, or twice as many as there is room for: some may have
nothing to send any more.
"""


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


class BudgetGate(BaseOption):
    """The budgets of a process as one line asks for them. `cost` is that of a push at this sink."""

    def __init__(
        self,
        sink: str,
        cost: float,
        budgets: Budgets,
        moves: OwnLaneRequests,
        stats: Stats,
        weights: Callable[[], Mapping[Level, int]],
    ) -> None:
        self._sink = sink
        self._cost = cost
        self.budgets = budgets
        self._moves = moves
        self._stats = stats
        self._weights = weights
        self._limits: Limits = {}
        self._queues: dict[Subject, RoomQueue] = {}
        self._aside: dict[str, list[Job]] = {}
        self._aside_for: dict[Subject, dict[str, float]] = {}
        self._charges: dict[Job, Charge] = {}  # of those that were let go and have not landed

    def concerns(self, task: Task) -> bool:
        return self.budgets.is_limited

    def lets(self, job: Job, end: Outcome | None) -> bool:
        """Charge a push, or keep it until there may be room; one that ends unsent costs nothing."""
        if end is not None:
            return True
        task = job.task
        queues = self._queues_of(job) if self._queues else {}
        for subject, queue in queues.items():
            if queue.keeps(job.lane):
                self._wait_for_others(job, subject, queue)
                return False
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
        if charge is not UNCHARGED:
            self._charges[job] = charge
            for queue in queues.values():
                queue.use(job.lane, time.monotonic())
        return True

    def _queues_of(self, job: Job) -> dict[Subject, RoomQueue]:
        """Return the queues in which a lane may have to stand with others."""
        subjects = [Subject("app", job.task.app), Subject("sink", self._sink)]
        if is_pool(job.lane.name):  # whose pushes step aside for their app one by one
            del subjects[0]
        return {one: self._queues[one] for one in subjects if one in self._queues}

    def _wait_for_others(self, job: Job, subject: Subject, queue: RoomQueue) -> None:
        """Have a push wait whatever room there is; if nobody has leave to use it, give some."""
        self._stats.limited[subject.kind] += 1
        self._wait(job, subject)
        self.budgets.wait(subject, self._cost, is_first=self._counts(job, subject))
        if queue.is_used_up:
            self.budgets.tell(subject)

    def took_back(self, jobs: Iterable[Job]) -> None:
        """Charge nothing for pushes that did not go after all."""
        for job in jobs if self._charges else ():
            if charge := self._charges.pop(job, None):
                self.budgets.undo(charge)

    def launched(self, batch: Batch) -> None:
        """Hear of pushes that have taken their slots: they were charged before."""

    def landed(self, batch: Batch, now_s: float) -> None:
        """Give back the places of pushes that went, and all of what did not go.

        Those that cost no attempt go again as if for the first time.
        """
        if not self._charges:
            return
        for job in batch.spared:
            if charge := self._charges.get(job):
                charge.uncount()
        for job in batch.sent:
            if charge := self._charges.pop(job, None):
                self.budgets.land(charge)
        self.took_back(batch.jobs)

    def on_limits(self, limits: Limits) -> None:
        """Hear that limits have changed: other tasks may be limited now."""
        self._limits = limits
        for subject in [subject for subject, queue in self._queues.items() if queue.is_empty]:
            del self._queues[subject]
        self.changed()

    def on_room(self, subject: Subject, most: Room) -> bool:
        """Let so many pushes go on that wait for this subject, whose turn it is."""
        now_s, waits = time.monotonic(), self._stats.limit_waits[subject.kind]
        lanes = self._let_on(subject, most, now_s)
        aside = self._aside_for.pop(subject, {})
        tasks, left_aside = _first(aside, max(_FEWEST, 2 * most.pushes))
        if left_aside:
            self._aside_for[subject] = left_aside
        for since_s in (*lanes.values(), *tasks.values()):
            waits.add(now_s - since_s)
        for lane in lanes:
            lane.unblock(Why.BUDGET)
        for task_id in tasks:
            self._come_back(task_id)
        queue = self._queues.get(subject)
        return bool(left_aside) or (queue is not None and not queue.is_empty)

    def _let_on(self, subject: Subject, most: Room, now_s: float) -> dict[Lane, float]:
        """Return the lanes that go on, and since when each has waited (monotonic s)."""
        queue = self._queues.get(subject)
        if queue is None:
            return {}
        if min(most) < math.inf and subject.kind != "task":  # a task has one lane here
            return queue.let_on(most.pushes, self._weights(), now_s, most.first)
        if subject.kind == "task":
            del self._queues[subject]
        return queue.let_all()

    def leave(self, subject: Subject) -> int:
        """Return for how many pushes lanes have leave that they can use."""
        queue = self._queues.get(subject)
        return queue.given if queue is not None else 0

    def on_task(self, task: Task) -> None:
        """Let pushes go on whose task has moved or ended: they are taken care of in their turn."""
        if not task.pooled or task.state.is_terminal:
            self._come_back(task.id)
        for queue in self._queues.values():
            queue.update(task)

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
            lane.park(job, Why.BUDGET)
            self._aside.setdefault(job.task.id, []).append(job)
            self._aside_for.setdefault(subject, {}).setdefault(job.task.id, time.monotonic())
            self._moves.ask(job.task.id)
        else:
            lane.give_back(job)
            lane.block(Why.BUDGET)
            is_first = self._counts(job, subject)
            self._queue_of(subject).wait(lane, job.task, time.monotonic(), is_first=is_first)
            for other, queue in self._queues_of(job).items():
                if other != subject and (other.kind, subject.kind) != ("app", "sink"):
                    queue.drop(lane)  # else two queues could each wait for the other

    def _counts(self, job: Job, subject: Subject) -> bool:
        """Tell whether a push counts in the totals of a subject."""
        return job.push.attempt == 1 and (
            subject.kind == "sink" or not self._went_before(job.task, job.push)
        )

    def _queue_of(self, subject: Subject) -> RoomQueue:
        queue = self._queues.get(subject)
        if queue is None:
            turns: Scheduler[Lane] = Scheduler()
            AppQuotas(turns).on_limits(self._limits)
            queue = self._queues[subject] = RoomQueue(turns)
        return queue

    def _come_back(self, task_id: str) -> None:
        for job in self._aside.pop(task_id, ()):
            job.lane.release(job)


def _first(waiting: dict[T, float], most: float) -> tuple[dict[T, float], dict[T, float]]:
    """Return the first of those that wait, and the others."""
    if len(waiting) <= most:
        return waiting, {}
    order = list(waiting.items())
    return dict(order[: int(most)]), dict(order[int(most) :])


limits_log = logging.getLogger("pushlane.limits")

_EVERY_S = 0.5


def limits_in(settings: Settings, sinks: Iterable[str]) -> Limits:
    """Return the limits of sinks by the settings, which hold until others are set."""
    named = {name: settings.sinks.get(name) for name in sinks}
    return {
        Subject("sink", name): Limit(rate_per_s=own.rate_per_s, in_flight=own.in_flight)
        if own
        else Limit()
        for name, own in named.items()
    }


class LimitsListener(Protocol):
    """A part of the dispatcher that applies limits."""

    def on_limits(self, limits: Limits) -> None:
        """Apply these: they are all that are set now."""


class LimitsFollower:
    """Tells its listeners all limits, at first and whenever one has changed.

    While the store is away, those it knows of hold on. A limit that only a newer version
    understands stays as it was known last.
    """

    def __init__(self, documents: DocumentStore, every_s: float = _EVERY_S) -> None:
        self._documents = documents
        self._every_s = every_s
        self._listeners: list[LimitsListener] = []
        self._known: Limits | None = None
        self._once = Once(limits_log)
        self._looking = asyncio.Lock()  # an older answer must not come behind a newer one

    def add_listener(self, listener: LimitsListener) -> None:
        """Tell this one, too; what is known already it hears now."""
        self._listeners.append(listener)
        if self._known is not None:
            listener.on_limits(self._known)

    @property
    def limits(self) -> Limits:
        """All that are set, as far as it has heard."""
        return self._known or {}

    async def run(self) -> None:
        backoff = Backoff(limits_log, "the limits")
        while True:
            await backoff.until_done(self.look)
            await asyncio.sleep(self._every_s)

    async def look(self) -> None:
        """Read them once, and tell them if one has changed."""
        async with self._looking:
            limits = await self._read()
            if limits != self._known:
                self._known = limits
                for listener in self._listeners:
                    listener.on_limits(limits)

    async def _read(self) -> Limits:
        found = await readable_limits(self._documents)
        for name, error in found.unread.items():
            self._once.tell(name, error)
        before = self._known or {}
        kept = {one: limit for one, limit in before.items() if str(one) in found.unread}
        return found.limits | kept


class AppQuotas:
    """Gives a scheduler the quotas of apps and their parts of the high level."""

    def __init__(self, scheduler: Scheduler[Lane]) -> None:
        self._scheduler = scheduler
        self._known: Limits = {}

    def on_limits(self, limits: Limits) -> None:
        none = Limit()
        apps = {subject: limit for subject, limit in limits.items() if subject.kind == "app"}
        for subject in apps.keys() | self._known.keys():
            limit, known = apps.get(subject, none), self._known.get(subject, none)
            if limit.quota != known.quota:
                self._scheduler.set_app_quota(subject.name, limit.quota)
            if limit.high_part != known.high_part:
                self._scheduler.set_high_part(subject.name, limit.high_part)
        self._known = apps
