"""Looks up the tasks that pushes name before the registry has told of them.

A task that the registry does not have at a look is not taken for over. Redis may have lost it, and
get it back from its journal: what names it is put aside for some seconds, so that it holds up no
other task and costs no memory, while the registry finds out. On a lane that tasks share a push goes
to the later lane; a task's own lane is left alone as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from pushlane.core.errors import TaskInDoubt, UnknownFormat
from pushlane.core.lane import Job, Why
from pushlane.core.lanes import Lanes
from pushlane.core.names import is_pool
from pushlane.core.retrying import Backoff, for_each, whenever
from pushlane.core.settle import Settler
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import Registry

log = logging.getLogger("pushlane.task_lookups")

_AT_ONCE = 200
_LEAST_WAIT_S = 10.0
_MOST_WAIT_S = 60.0
_JUST_NOW_S = 2 * _MOST_WAIT_S
_SAID_EVERY_S = 60.0
_MOST_DOUBTED = 10_000


class Doubts:
    """The tasks that pushes named lately and the registry did not have: since when, and how lately.

    Of very many the latest are kept.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._seen: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._said_s = float("-inf")

    def count(self) -> int:
        """Return how many there were in the last two minutes."""
        oldest_s = self._clock_s() - _JUST_NOW_S
        while self._seen:
            first = next(iter(self._seen))
            if self._seen[first][1] > oldest_s and len(self._seen) <= _MOST_DOUBTED:
                break
            del self._seen[first]
        return len(self._seen)

    def wait_s(self, task_id: str) -> float:
        """Note a push of the task; return how long it is to wait: the longer, the older the doubt.

        By chance up to a fifth less, so that not all pushes come back at once.
        """
        now_s = self._clock_s()
        since_s, _ = self._seen.pop(task_id, (now_s, now_s))
        self._seen[task_id] = (since_s, now_s)
        wait_s = min(_MOST_WAIT_S, max(1.25 * _LEAST_WAIT_S, now_s - since_s))
        return wait_s * random.uniform(0.8, 1.0)

    def clear(self, task_id: str) -> None:
        """Forget a task of which the registry has said what became of it."""
        self._seen.pop(task_id, None)

    def tell(self) -> None:
        """Say once a minute how many there are."""
        if (now_s := self._clock_s()) < self._said_s + _SAID_EVERY_S or not (count := self.count()):
            return
        self._said_s = now_s
        log.warning(
            "the registry does not have %d %s that pushes on lanes name, and nothing says that "
            "they were forgotten: these pushes wait, and their tasks are asked about again",
            count,
            "task" if count == 1 else "tasks",
            extra={"action": "task_in_doubt"},
        )


class TaskLookups:
    """Parks pushes of tasks not heard of until the registry has said what it knows of them.

    `clock_s` is a monotonic clock.
    """

    def __init__(
        self,
        registry: Registry,
        tasks: KnownTasks,
        lanes: Lanes,
        settler: Settler,
        stats: Stats,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._tasks = tasks
        self._lanes = lanes
        self._settler = settler
        self._stats = stats
        self._waiting: dict[str, list[Job]] = {}
        self._asked = asyncio.Event()
        self._doubted: set[str] = set()
        self._in_doubt = asyncio.Event()
        self._doubts = Doubts(clock_s)

    @property
    def in_doubt(self) -> int:
        """Return how many tasks pushes have named in the last two minutes of which nobody knows."""
        return self._doubts.count()

    def ask(self, job: Job) -> None:
        """Look up the task of a push that surfaced, then offer the push again.

        It is parked meanwhile, so that a lane holds no more of these than it has room for.
        """
        job.lane.park(job, Why.LOOK_UP)
        self._waiting.setdefault(job.push.task_id, []).append(job)
        self._asked.set()

    async def run(self) -> None:
        """Look up the tasks that were asked for, and find out about those in doubt, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(
                whenever(self._asked, self._look_all_up, Backoff(log, "the registry"))
            )
            group.create_task(
                whenever(self._in_doubt, self._find_out, Backoff(log, "the registry's journal"))
            )

    async def _look_all_up(self) -> None:
        await for_each(paged(list(self._waiting), _AT_ONCE), self._look_up)

    async def _look_up(self, task_ids: Sequence[str]) -> None:
        found = await self._registry.some(task_ids)
        self._tasks.take(found)
        for task_id in found.unread:
            await self._leave(task_id)
        for task_id in task_ids:
            if self._tasks.find(task_id) is not None:
                self._offer_again(task_id)
            elif task_id not in found.unread:
                self._put_aside(task_id)

    async def _leave(self, task_id: str) -> None:
        """Leave the lanes of a task that only a newer version can read."""
        try:
            await self._tasks.has_ended(task_id)
        except UnknownFormat as error:
            for job in self._waiting.pop(task_id, ()):
                job.lane.unpark(job)
                self._lanes.leave(job, error)

    def _offer_again(self, task_id: str) -> None:
        self._doubts.clear(task_id)
        for job in self._waiting.pop(task_id, ()):
            job.lane.release(job)

    def _put_aside(self, task_id: str) -> None:
        for job in self._waiting.pop(task_id, ()):
            job.lane.unpark(job)
            self._stats.in_doubt += 1
            wait_s = self._doubts.wait_s(task_id)
            if is_pool(job.lane.name):
                self._settler.put_off(job, wait_s)
            else:
                self._lanes.leave(job, TaskInDoubt(task_id), wait_s)
            if len(self._doubted) < _MOST_DOUBTED:
                self._doubted.add(task_id)
                self._in_doubt.set()

    async def _find_out(self) -> None:
        """Ask the registry to find out, which may take long. What is said is heard of as ever."""
        task_ids = list(self._doubted)
        found = await self._registry.find_out(task_ids)
        self._doubted.difference_update(task_ids)
        self._tasks.take(found)
        for task_id in (*(task.id for task in found.tasks), *found.unread, *found.forgotten):
            self._doubts.clear(task_id)
        self._doubts.tell()
