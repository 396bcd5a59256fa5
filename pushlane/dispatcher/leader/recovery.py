"""Brings registry and broker together again after one of them has lost something.

Run by whoever leads: lanes of tasks that are over are dropped after a grace, a running task whose
lane is missing gets it anew, one that nobody was left to call done is done, and a task whose counts
were lost ends once nothing of it is left. It never drops what a task that is under way may still
need: one that the registry does not have just now may be.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import TaskInDoubt, UnknownFormat
from pushlane.core.names import is_dead, later_lane, task_of
from pushlane.core.task import State, Task
from pushlane.model import task_changes
from pushlane.util.retrying import for_each
from pushlane.util.texts import paged

log = logging.getLogger("pushlane.recovery")

Change = Callable[[Task, task_changes.Edit], Awaitable[None]]

GRACE_S = 600.0
_RECONCILE_EVERY_S = 60.0
_AGAIN_S = 2.0
_LOOK_EVERY_S = 2.0
_LOOKS = 3
_LEFT_AGAIN_S = 30.0
_PAGE = 200
_AT_ONCE = 8
_CLOCKS_APART_MS = 60_000
_LOST = (
    "nothing of it is left to send, and {:,} of its pushes are not accounted for: counts were lost "
    "with Redis, or a lane was removed with what was on it"
)


class _Idle(msgspec.Struct):
    """A task whose counts stand still: at how many, in how many looks nothing was left of it, and
    when to look again, on the monotonic clock.
    """

    finished: int
    looks: int = 0
    again_s: float = 0.0


@dataclass(eq=False, repr=False)
class Recovery:
    """`change` makes a leader's change; `leads` asks the store whether this process leads.

    Dead pushes of a task that has ended stay for `dead_retention_s`. `clock_ms` is a clock in Unix
    milliseconds, `clock_s` a monotonic one.
    """

    backend: Backend
    change: Change
    leads: Callable[[], Awaitable[bool]]
    dead_retention_s: float
    clock_ms: Callable[[], int] = task_changes.now_ms
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._active: dict[str, Task] = {}
        self._orphans: dict[str, float] = {}
        self._idle: dict[str, _Idle] = {}
        self._reconcile_at_s = 0.0
        self._look_at_s = 0.0

    def on_task(self, task: Task) -> None:
        if task.state.is_terminal:
            self._active.pop(task.id, None)
        else:
            self._active[task.id] = task

    def on_unread(self, task_id: str) -> None:
        self._active.pop(task_id, None)

    async def step(self, *, may_destroy: bool = True) -> None:
        """Do what is due of it; unless it `may_destroy`, what is too much stays."""
        now_s = self.clock_s()
        if now_s >= self._reconcile_at_s:
            self._reconcile_at_s = now_s + _AGAIN_S
            lanes = await self._reconcile()
            if may_destroy:
                await self._look_for_orphans(lanes, now_s)
            self._reconcile_at_s = now_s + _RECONCILE_EVERY_S
        if may_destroy and now_s >= self._look_at_s:
            self._look_at_s = now_s + _LOOK_EVERY_S
            await self._end_uncounted(now_s)

    async def _reconcile(self) -> set[str]:
        """Call done what is counted, and open lanes that are missing; return all lanes."""
        active = list(self._active.values())  # before the lanes: theirs were made earlier
        await for_each(paged(active, _PAGE), self._end_counted)
        lanes = set(await self.backend.broker.lanes())
        for some in paged(active, _PAGE):
            lost = [task for task in some if _missing(task, lanes)]
            await for_each(lost, lambda task: self._reopen(task, _missing(task, lanes)), _AT_ONCE)
            await asyncio.sleep(0)
        return lanes

    async def _look_for_orphans(self, lanes: Iterable[str], now_s: float) -> None:
        strange = {lane: task_id for lane in lanes if (task_id := self._stranger(lane))}
        found = await self._orphans_among(strange)
        self._orphans = {lane: self._orphans.get(lane, now_s) for lane in found}
        late = [lane for lane, since_s in self._orphans.items() if now_s - since_s >= GRACE_S]
        if late and await self.leads():  # asked last: another may lead, and know more tasks
            await for_each(late, self._drop_orphan, _AT_ONCE)

    async def _orphans_among(self, lanes: Mapping[str, str]) -> list[str]:
        """Return those of these lanes, each with the task of its name, that no task needs."""
        now = self.clock_ms()
        known = await self.backend.registry.find_out(list({*lanes.values()}))
        tasks = {task.id: task for task in known.tasks}
        return [
            lane
            for lane, task_id in lanes.items()
            if task_id in known.forgotten
            or ((task := tasks.get(task_id)) and self._is_orphan(lane, task, now))
        ]

    def _stranger(self, lane: str) -> str | None:
        """The task that has this lane to itself, unless it is known to be under way."""
        task_id = task_of(lane)
        return None if task_id in self._active else task_id

    def _is_orphan(self, lane: str, task: Task, now: int) -> bool:
        """True when the task's lanes are said to be dropped; dead pushes stay for a time more."""
        kept_ms = round(self.dead_retention_s * 1000) if is_dead(lane) else 0
        return task.lane_dropped and now - task.finished_at_ms >= kept_ms

    async def _drop_orphan(self, lane: str) -> None:
        left = await self.backend.broker.backlog(lane)
        if left:
            log.warning(
                "lane %s is removed with %s messages on it, as its task is over",
                lane,
                f"{left:,}",
                extra={"action": "orphan_backlog"},
            )
        if await self.backend.broker.drop_lane(lane):
            del self._orphans[lane]
            log.warning(
                "lane %s was no longer needed: it is removed", lane, extra={"action": "orphan_lane"}
            )

    async def _end_counted(self, active: Sequence[Task]) -> None:
        """End tasks of which every push is counted.

        The process that counts the last one does so, unless it is killed in between.
        """
        sealed = [(task, task.total) for task in active if task.total is not None]
        counts = await self.backend.registry.progress([task.id for task, _ in sealed])
        rows = zip(sealed, counts, strict=True)
        full = [task for (task, total), progress in rows if progress.finished >= total]
        await for_each(
            full, lambda task: self.change(task, task_changes.finish(State.DONE)), _AT_ONCE
        )

    async def _reopen(self, task: Task, missing: list[str]) -> None:
        try:
            known = await self.backend.find(task.id)
        except (UnknownFormat, TaskInDoubt):
            return
        if known is None or known.state.is_terminal:
            return
        for lane in missing:
            await self.backend.broker.open_lane(lane)
        await self.change(task, task_changes.lane_reopened)
        log.error(
            "task %s had no lane: a new one was opened, and what was on the old one is lost",
            task.id,
            extra={"action": "lane_reopened"},
        )

    async def _end_uncounted(self, now_s: float) -> None:
        """End tasks that cannot add up to their total any more, since counts were lost.

        One ends when its lanes have been empty, and its counts still, for several looks: what is
        on its way to somewhere is on a lane, unacked, until it is counted. Its lanes are asked
        about only while its counts stand still, and seldom while something is left on them.
        """
        since_ms = await self.backend.registry.counted_since_ms()
        suspects = [task for task in self._active.values() if _may_lack_counts(task, since_ms)]
        before, self._idle = self._idle, {}
        due: list[Task] = []
        for some in paged(suspects, _PAGE):
            counts = await self.backend.registry.progress([task.id for task in some])
            for task, progress in zip(some, counts, strict=True):
                idle = before.get(task.id)
                if idle is None or idle.finished != progress.finished:
                    idle = _Idle(progress.finished)
                elif now_s >= idle.again_s:
                    due.append(task)
                self._idle[task.id] = idle
        await for_each(due, lambda task: self._end_if_idle(task, now_s), _AT_ONCE)

    async def _end_if_idle(self, task: Task, now_s: float) -> None:
        idle = self._idle[task.id]
        for lane in _all_lanes_of(task):
            if await self.backend.broker.backlog(lane):
                idle.looks, idle.again_s = 0, now_s + _LEFT_AGAIN_S
                return
        idle.looks += 1
        if idle.looks >= _LOOKS:
            reason = _LOST.format((task.total or 0) - idle.finished)
            await self.change(task, task_changes.finish(State.DONE, reason))
            log.warning("task %s: %s", task.id, reason, extra={"action": "counts_lost"})


def _missing(task: Task, lanes: set[str]) -> list[str]:
    """The lanes that it should have, and has not."""
    if task.state is State.SUBMITTED:
        return []
    return [lane for lane in _lanes_of(task) if lane not in lanes]


def _lanes_of(task: Task) -> list[str]:
    """Those that it reads, but for the lanes of the pool."""
    further = task.own_lanes()[2:]
    if task.pooled:
        return further
    return [task.lane, *([later_lane(task.lane)] if task.has_later else []), *further]


def _all_lanes_of(task: Task) -> list[str]:
    """Wherever a push of it may be."""
    homes = dict.fromkeys([task.first_lane or task.lane, task.lane])
    at_home = [lane for home in homes for lane in (home, later_lane(home))]
    return list(dict.fromkeys([*at_home, *task.own_lanes()]))


def _may_lack_counts(task: Task, since_ms: int) -> bool:
    counts = task.state is State.RUNNING and task.total is not None
    return counts and since_ms > 0 and task.created_at_ms < since_ms + _CLOCKS_APART_MS
