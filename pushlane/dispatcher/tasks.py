"""The tasks as this process knows them, at most a second behind the registry.

Everybody who hears of a newer value of a task hands it in here, and everybody who has to act on it
listens here. Beside them: the look-up of tasks that pushes name before the registry has told of
them, the lanes that not every task needs, and when a task is done.

A task that the registry does not have at a look is not taken for over. Redis may have lost it, and
get it back from its journal: what names it is put aside for some seconds, so that it holds up no
other task and costs no memory, while the registry finds out. On a lane that tasks share a push goes
to the later lane; a task's own lane is left alone as a whole.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pushlane.backends.backend import Backend
from pushlane.backends.ports import FoundTasks, Registry
from pushlane.core.endings import Ending
from pushlane.core.errors import PushlaneError, TaskInDoubt, UnknownFormat
from pushlane.core.lane import Job, Why
from pushlane.core.lanes import Lanes
from pushlane.core.names import is_pool
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.task import Finished, Level, Progress, State, Task
from pushlane.dispatcher.stats import Stats
from pushlane.model import task_changes
from pushlane.util.errors import UnknownTask
from pushlane.util.retrying import for_each, whenever
from pushlane.util.texts import paged

_ENDED_KEPT = 10_000
_SPARE = 1_024


class DueTimes:
    """Names, each with the Unix ms at which it is due."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []  # with what was put elsewhere, or away, since

    def __len__(self) -> int:
        return len(self._times)

    def put(self, name: str, at_ms: int) -> None:
        """It is due then, whenever it was due before."""
        if self._times.get(name) != at_ms:
            self._times[name] = at_ms
            heapq.heappush(self._heap, (at_ms, name))

    def discard(self, name: str) -> None:
        self._times.pop(name, None)
        if len(self._heap) > 2 * len(self._times) + _SPARE:
            self._heap = [(at_ms, name) for name, at_ms in self._times.items()]
            heapq.heapify(self._heap)

    def take(self, now_ms: int, most: int) -> list[str]:
        """At most so many of those that are due, the longest due first; they are put away."""
        taken: list[str] = []
        while len(taken) < most and (soonest_ms := self.soonest_ms()) is not None:
            if soonest_ms > now_ms:
                break
            _, name = heapq.heappop(self._heap)
            del self._times[name]
            taken.append(name)
        return taken

    def soonest_ms(self) -> int | None:
        while self._heap:
            at_ms, name = self._heap[0]
            if self._times.get(name) == at_ms:
                return at_ms
            heapq.heappop(self._heap)
        return None


class TaskListener(Protocol):
    """A part of the dispatcher that acts on changes of tasks."""

    def on_task(self, task: Task) -> None:
        """Hear that a task is new or changed."""

    def on_unread(self, task_id: str) -> None:
        """Hear that only a newer version understands the task."""


class KnownTasks:
    """Remembers tasks that go on, and the last that ended; older values change nothing.

    Listeners hear of a change in the order in which they were added. `synced` is set once the
    registry has told of all tasks. `read_limits` makes known here the limits that are set.
    """

    def __init__(
        self, backend: Backend, read_limits: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._backend = backend
        self._read_limits = read_limits
        self._listeners: list[TaskListener] = []
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self.active: dict[str, Task] = {}
        self.synced = asyncio.Event()

    def add_listener(self, listener: TaskListener) -> None:
        self._listeners.append(listener)

    def find(self, task_id: str) -> Task | None:
        """Return the task, if this process has heard of it."""
        return self.active.get(task_id) or self._ended.get(task_id)

    def apply(self, task: Task) -> None:
        """Take a newer value of a task into account; an older one changes nothing."""
        known = self.find(task.id)
        if known is None or known.version <= task.version:
            self._set(task)

    def forget(self, task_id: str) -> None:
        """Take into account that the task is gone for good."""
        self._set(_forgotten(task_id))

    def leave(self, task_id: str) -> None:
        """Leave a task to the newer version that understands it."""
        self.active.pop(task_id, None)
        self._ended.pop(task_id, None)
        for listener in self._listeners:
            listener.on_unread(task_id)

    async def limit_first(self, tasks: Iterable[Task]) -> None:
        """Read the limits if one of these tasks, not yet applied, may begin to send.

        So not a push of it goes over a limit that was set before it could. Raises Unreachable.
        """
        if self._read_limits is not None and any(map(self._begins, tasks)):
            await self._read_limits()

    def _begins(self, task: Task) -> bool:
        known = self.find(task.id)
        return task.state is State.RUNNING and (known is None or known.state is not State.RUNNING)

    async def take(self, found: FoundTasks) -> None:
        """Take an answer of the registry into account. Raises Unreachable."""
        await self.limit_first(found.tasks)
        for task in found.tasks:
            self.apply(task)
        for task_id in found.forgotten:
            self.forget(task_id)

    async def has_ended(self, task_id: str) -> bool:
        """Ask the registry whether the task has ended, and take the answer into account.

        Raises:
            TaskInDoubt: nobody can tell now.
            UnknownFormat: only a newer version understands the task.
        """
        task = await self._backend.find(task_id)
        if task is None:
            self.forget(task_id)
            return True
        self.apply(task)
        return task.state.is_terminal

    def _set(self, task: Task) -> None:
        if task.state.is_terminal:
            self.active.pop(task.id, None)
            self._ended[task.id] = task
            if len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)
        else:
            self.active[task.id] = task
        for listener in self._listeners:
            listener.on_task(task)


def _forgotten(task_id: str) -> Task:
    """Make a task for one that was forgotten: its pushes are dropped."""
    return Task(
        id=task_id,
        level=Level.LOW,
        lane="pool-0",
        state=State.CANCELLED,
        reason="unknown task",
        lane_dropped=True,
    )


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
        """Return how many tasks pushes have named in the last two minutes of which nobody knows."""
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


@dataclass(eq=False, repr=False)
class TaskLookups:
    """Parks pushes of tasks not heard of until the registry has said what it knows of them.

    `clock_s` is a monotonic clock.
    """

    registry: Registry
    tasks: KnownTasks
    lanes: Lanes
    settler: Settler
    stats: Stats
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._waiting: dict[str, list[Job]] = {}
        self._asked = asyncio.Event()
        self._doubted: set[str] = set()
        self._in_doubt = asyncio.Event()
        self.doubts = Doubts(self.clock_s)

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
                whenever(self._in_doubt, self._find_out, Backoff(log, "the task topic"))
            )

    async def _look_all_up(self) -> None:
        await for_each(paged(list(self._waiting), _AT_ONCE), self._look_up)

    async def _look_up(self, task_ids: Sequence[str]) -> None:
        found = await self.registry.some(task_ids)
        await self.tasks.take(found)
        for task_id in found.unread:
            await self._leave(task_id)
        for task_id in task_ids:
            if self.tasks.find(task_id) is not None:
                self._offer_again(task_id)
            elif task_id not in found.unread:
                self._put_aside(task_id)

    async def _leave(self, task_id: str) -> None:
        """Leave the lanes of a task that only a newer version can read."""
        try:
            await self.tasks.has_ended(task_id)
        except UnknownFormat as error:
            for job in self._waiting.pop(task_id, ()):
                job.lane.unpark(job)
                self.lanes.leave(job, error)

    def _offer_again(self, task_id: str) -> None:
        self.doubts.clear(task_id)
        for job in self._waiting.pop(task_id, ()):
            job.lane.release(job)

    def _put_aside(self, task_id: str) -> None:
        for job in self._waiting.pop(task_id, ()):
            job.lane.unpark(job)
            self.stats.in_doubt += 1
            wait_s = self.doubts.wait_s(task_id)
            if is_pool(job.lane.name):
                self.settler.put_off(job, wait_s)
            else:
                self.lanes.leave(job, TaskInDoubt(task_id), wait_s)
            if len(self._doubted) < _MOST_DOUBTED:
                self._doubted.add(task_id)
                self._in_doubt.set()

    async def _find_out(self) -> None:
        """Ask the registry to find out, which may take long. What is said is heard of as ever."""
        task_ids = list(self._doubted)
        found = await self.registry.find_out(task_ids)
        await self.tasks.take(found)
        self._doubted.difference_update(task_ids)
        for task_id in (*(task.id for task in found.tasks), *found.unread, *found.forgotten):
            self.doubts.clear(task_id)
        self.doubts.tell()


class FurtherLanes:
    """Opens the later lane of a task when a push first has to wait for its time, and its lane at a
    later sink of its chain when a push first goes on there.

    An idle reader costs memory in every process, so a task that needs neither has none.
    """

    def __init__(self, backend: Backend, tasks: KnownTasks) -> None:
        self._backend = backend
        self._tasks = tasks
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}

    async def find(self, task_id: str) -> Task | None:
        """Return the task of this id, None when it was forgotten. Raises as `Backend.find` does."""
        return await self._backend.find(task_id)

    async def ensure(self, task_id: str, sink: str = "") -> None:
        """Return once the task has a later lane, or its lane at this sink, or has ended.

        Raises:
            PushlaneError: broker or registry does not answer, or many change the task at once.
        """
        if self._is_settled(task_id, sink):
            return
        async with self._opening.setdefault((task_id, sink), asyncio.Lock()):
            if not self._is_settled(task_id, sink):
                await self._open(task_id, sink)
        self._opening.pop((task_id, sink), None)

    def _is_settled(self, task_id: str, sink: str) -> bool:
        task = self._tasks.find(task_id)
        if task is None or task.state.is_terminal:
            return task is not None
        return sink in task.reached if sink else task.has_later

    async def _open(self, task_id: str, sink: str) -> None:
        backend = self._backend
        with suppress(UnknownTask):  # it went with its lanes, as a publish will tell
            opened = backend.reach(task_id, sink) if sink else backend.open_later(task_id)
            self._tasks.apply(await opened)


_completion_log = logging.getLogger("pushlane.completion")

_COMPLETION_AT_ONCE = 32


class Completion:
    """Marks tasks done once all that they were sealed with is finished."""

    def __init__(self, registry: Registry, tasks: KnownTasks) -> None:
        self._registry = registry
        self._tasks = tasks
        self._unchecked: dict[str, None] = {}
        self._full: dict[str, None] = {}
        self._due = asyncio.Event()

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        active = self._tasks.active
        for count in progress:
            task = active.get(count.task_id)
            if task is not None and task.total is not None and count.finished >= task.total:
                self._full[task.id] = None
                self._due.set()

    def on_task(self, task: Task) -> None:
        """Look at a task that is new or changed: once it is sealed, its count may be full."""
        if task.total is not None and not task.state.is_terminal:
            self._unchecked[task.id] = None
            self._due.set()

    def on_unread(self, task_id: str) -> None:
        """Leave the task to the newer version that understands it, which ends it."""

    async def run(self) -> None:
        await whenever(self._due, self._check_and_finish, Backoff(_completion_log, "the registry"))

    async def conclude(self) -> None:
        """Do now what is due, at a stop. Whoever leads makes up for what does not get through."""
        with suppress(PushlaneError):
            await self._check_and_finish()

    async def _check_and_finish(self) -> None:
        if unchecked := list(self._unchecked):
            progress = await self._registry.progress(unchecked)
            for task_id in unchecked:  # not those that came in meanwhile
                self._unchecked.pop(task_id, None)
            await self.settled((), (), progress)
        while self._full:
            some = list(self._full)[:_COMPLETION_AT_ONCE]
            await asyncio.gather(*(self._done(task_id) for task_id in some))
            for task_id in some:
                self._full.pop(task_id, None)

    async def _done(self, task_id: str) -> None:
        try:
            self._tasks.apply(await self._registry.change(task_id, task_changes.finish(State.DONE)))
        except UnknownFormat:  # a newer version ends it
            return
        except UnknownTask:
            _completion_log.warning(
                "task %s ended but is not in the registry", task_id, extra={"action": "task_lost"}
            )
            return
        _completion_log.info("task %s is done", task_id, extra={"action": "task_done"})
