"""Brings registry and broker together again after one of them has lost something.

Run by whoever leads: lanes that no task knows are dropped after a grace, a running task whose lane
is missing gets it anew, one that nobody was left to call done is done, and a task whose counts were
lost ends once nothing of it is left. It never drops what a task that is under way may still need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from lanes import life
from lanes.backend import Backend
from lanes.errors import UnknownFormat, UnknownTask
from lanes.naming import is_dead, later_lane, task_of
from lanes.task import State, Task

log = logging.getLogger("pushlane.recovery")

Change = Callable[[Task, life.Edit], Awaitable[None]]

GRACE_MS = 600_000
_RECONCILE_EVERY_MS = 60_000
_LOOK_EVERY_MS = 2_000
_LOOKS = 3
_CLOCKS_APART_MS = 60_000
_LOST = "counts were lost with Redis; nothing of it was left to send"


class Recovery:
    """`change` makes a leader's change. `clock_ms` is a clock in Unix milliseconds."""

    def __init__(
        self, backend: Backend, change: Change, clock_ms: Callable[[], int] = life.now_ms
    ) -> None:
        self._backend = backend
        self._change = change
        self._clock_ms = clock_ms
        self._active: dict[str, Task] = {}
        self._orphans: dict[str, int] = {}
        self._idle: dict[str, tuple[int, int]] = {}
        self._reconcile_at_ms = 0
        self._look_at_ms = 0

    def on_task(self, task: Task) -> None:
        """A task is new or changed."""
        if task.state.is_terminal:
            self._active.pop(task.id, None)
        else:
            self._active[task.id] = task

    def on_unread(self, task_id: str) -> None:
        """Only a newer version understands the task."""
        self._active.pop(task_id, None)

    async def step(self) -> None:
        """What is due of it."""
        now = self._clock_ms()
        if now >= self._reconcile_at_ms:
            await self._reconcile(now)
            self._reconcile_at_ms = now + _RECONCILE_EVERY_MS
        if now >= self._look_at_ms:
            await self._end_uncounted()
            self._look_at_ms = now + _LOOK_EVERY_MS

    async def _reconcile(self, now: int) -> None:
        active = list(self._active.values())  # before the lanes: theirs were made earlier
        await self._end_counted(active)
        lanes = set(await self._backend.broker.lanes())
        for task in active:
            missing = [lane for lane in _lanes_of(task) if lane not in lanes]
            if missing and task.state is not State.SUBMITTED:
                await self._reopen(task, missing)
        found = {lane for lane in lanes if await self._is_orphan(lane)}
        self._orphans = {lane: self._orphans.get(lane, now) for lane in found}
        for lane, since_ms in list(self._orphans.items()):
            if now - since_ms >= GRACE_MS and await self._backend.broker.drop_lane(lane):
                del self._orphans[lane]
                log.warning("lane %s had no task: dropped", lane, extra={"action": "orphan_lane"})

    async def _end_counted(self, active: Sequence[Task]) -> None:
        """Who counts a task's last push calls it done, and may be killed or stopped in between."""
        sealed = [(task, task.total) for task in active if task.total is not None]
        counts = await self._backend.registry.progress([task.id for task, _ in sealed])
        for (task, total), progress in zip(sealed, counts, strict=True):
            if progress.finished >= total:
                await self._change(task, life.finish(State.DONE))

    async def _reopen(self, task: Task, missing: list[str]) -> None:
        try:
            known = await self._registered(task.id)
        except UnknownFormat:
            return
        if known is None or known.state.is_terminal:
            return
        for lane in missing:
            await self._backend.broker.open_lane(lane)
        await self._change(task, life.lane_reopened)
        log.error(
            "task %s had no lane: opened anew, what was on it is lost",
            task.id,
            extra={"action": "lane_reopened"},
        )

    async def _is_orphan(self, lane: str) -> bool:
        """Whether the lane belongs to no task, or to one whose lanes are said to be dropped.

        Dead pushes stay for as long as their task is known; all, while only a newer version
        understands it.
        """
        task_id = task_of(lane)
        if task_id is None or task_id in self._active:
            return False
        try:
            task = await self._registered(task_id)
        except UnknownFormat:
            return False
        return task is None or (task.lane_dropped and not is_dead(lane))

    async def _registered(self, task_id: str) -> Task | None:
        """The registry also finds tasks by key and name: those are not meant."""
        try:
            task = await self._backend.registry.get(task_id)
        except UnknownTask:
            return None
        return task if task.id == task_id else None

    async def _end_uncounted(self) -> None:
        """Tasks that cannot add up to their total any more, since counts were lost.

        One ends when its lanes have been empty, and its counts still, for several looks: what is
        on its way to somewhere is on a lane, unacked, until it is counted.
        """
        since_ms = await self._backend.registry.counted_since_ms()
        suspects = [task for task in self._active.values() if _may_lack_counts(task, since_ms)]
        self._idle = {task.id: self._idle.get(task.id, (0, 0)) for task in suspects}
        for task in suspects:
            finished, looks = await self._look(task)
            self._idle[task.id] = (finished, looks)
            if looks >= _LOOKS:
                await self._change(task, life.finish(State.DONE, _LOST))
                log.warning("task %s: %s", task.id, _LOST, extra={"action": "counts_lost"})

    async def _look(self, task: Task) -> tuple[int, int]:
        """How much of it is counted, and in how many looks running nothing was left or moved."""
        [progress] = await self._backend.registry.progress([task.id])
        backlogs = await asyncio.gather(*map(self._backend.broker.backlog, _all_lanes_of(task)))
        finished_before, looks = self._idle[task.id]
        if any(backlogs):
            return progress.finished, 0
        return progress.finished, looks + 1 if progress.finished == finished_before else 1


def _lanes_of(task: Task) -> list[str]:
    """Those that are its alone."""
    if task.pooled:
        return []
    return [task.lane, later_lane(task.lane)] if task.has_later else [task.lane]


def _all_lanes_of(task: Task) -> list[str]:
    """Wherever a push of it may be."""
    homes = dict.fromkeys([task.first_lane or task.lane, task.lane])
    return [lane for home in homes for lane in (home, later_lane(home))]


def _may_lack_counts(task: Task, since_ms: int) -> bool:
    if task.state is not State.RUNNING or task.total is None:
        return False
    return task.created_at_ms < since_ms + _CLOCKS_APART_MS and since_ms > 0
