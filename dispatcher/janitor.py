"""Ends tasks that are past their expiry and drops the lanes of tasks that have ended.

One process at a time does this, whoever leads; its changes carry the number of its lease, so one
that led before changes nothing. Dropping a lane needs no such number: the lane's task is over for
good and its name is never used again, so a late or a second drop does no harm. A lane goes when
its task was cancelled, or else when its retention is over and nothing on it is left to send; and
only when nobody reads it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from dispatcher.backoff import Backoff
from dispatcher.recovery import Recovery
from lanes import life
from lanes.backend import Backend
from lanes.errors import Superseded, TaskConflict, UnknownFormat, UnknownTask, Unreachable
from lanes.leader import Leader
from lanes.naming import later_lane, own_lane
from lanes.task import TERMINAL_STATES, State, Task

log = logging.getLogger("pushlane.janitor")

LEASE = "janitor"
_EVERY_S = 1.0
_SOON_S = 0.1
_JUST_ENDED_MS = 5_000


class Janitor:
    """Tidies up after tasks while it holds the lease.

    It keeps the tasks that still need it in mind, so a round costs the same after a million tasks.
    """

    def __init__(self, backend: Backend, holder: str) -> None:
        self._backend = backend
        self._leader = Leader(backend.lease, LEASE, holder)
        self._recovery = Recovery(backend, self._change)
        self._due = asyncio.Event()
        self._knows_all = False
        self._expiring: dict[str, Task] = {}
        self._ended: dict[str, Task] = {}

    def on_task(self, task: Task) -> None:
        """A task is new or changed."""
        self._recovery.on_task(task)
        self._expiring.pop(task.id, None)
        self._ended.pop(task.id, None)
        if task.state.is_terminal and not task.lane_dropped:
            self._ended[task.id] = task
            self._due.set()
        elif not task.state.is_terminal and task.expires_at_ms:
            self._expiring[task.id] = task

    def on_unread(self, task_id: str) -> None:
        """Only a newer version understands the task: its lanes are left alone."""
        self._recovery.on_unread(task_id)
        self._expiring.pop(task_id, None)
        self._ended.pop(task_id, None)

    async def run(self) -> None:
        backoff = Backoff(log, "a service that the janitor needs")
        while True:
            try:
                await self._round()
            except Superseded as error:
                log.warning("%s", error, extra={"action": "superseded"})
                self._leader.step_down()
            except (Unreachable, TaskConflict) as error:
                await backoff.wait(error)
                continue
            backoff.reset()
            await self._wait()

    async def _wait(self) -> None:
        """Until the next round; what has just ended does not wait for it."""
        now = life.now_ms()
        recent_ms = now - _JUST_ENDED_MS
        hurry = any(recent_ms < _drop_at_ms(task) <= now for task in self._ended.values())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._due.wait(), _SOON_S if hurry else _EVERY_S)

    async def _round(self) -> None:
        self._due.clear()
        if await self._leader.fence() is None:
            return
        if not self._knows_all:
            await self._take_over()
        await self._tidy()
        await self._recovery.step()

    async def _take_over(self) -> None:
        """What earlier leaders left: tasks that ended before this process began to listen."""
        for task in await self._backend.registry.list(TERMINAL_STATES):
            if not task.lane_dropped:
                self._ended.setdefault(task.id, task)
        self._knows_all = True

    async def _tidy(self) -> None:
        now = life.now_ms()
        for task in [task for task in self._expiring.values() if task.expires_at_ms <= now]:
            await self._change(task, life.finish(State.EXPIRED))
        for task in [task for task in self._ended.values() if _drop_at_ms(task) <= now]:
            if self._ended.pop(task.id, None) is not None:  # else another has dropped it meanwhile
                self._ended[task.id] = task  # last: if this fails, others are next
                await self._drop(task)

    async def _drop(self, task: Task) -> None:
        """A lane that is not there counts as dropped; a task may never have had one of its own."""
        lane = own_lane(task.id)
        if not await self._is_spent(task):
            return
        if task.has_later and not await self._backend.broker.drop_lane(later_lane(lane)):
            return
        if await self._backend.broker.drop_lane(lane):
            await self._change(task, life.lane_dropped)
            log.info("lane %s is dropped", lane, extra={"action": "lane_dropped"})

    async def _is_spent(self, task: Task) -> bool:
        """Whether nothing that lies on its lanes is to be sent any more.

        When every push of a task that is done is counted, what may be left are repeats.
        """
        if task.state is not State.DONE:
            return True
        [progress] = await self._backend.registry.progress([task.id])
        if progress.finished >= (task.total or 0):
            return True
        lane = own_lane(task.id)
        left = [await self._backend.broker.backlog(name) for name in (lane, later_lane(lane))]
        return not any(left)

    async def _change(self, task: Task, edit: life.Edit) -> None:
        try:
            fence = await self._leader.fence()
            if fence is not None:
                self.on_task(await self._backend.registry.change(task.id, edit, fence))
        except UnknownTask:
            self._expiring.pop(task.id, None)
            self._ended.pop(task.id, None)
        except UnknownFormat:
            self.on_unread(task.id)

    async def close(self) -> None:
        """Let another process take over at once."""
        await self._leader.resign()


def _drop_at_ms(task: Task) -> int:
    """What was cancelled must go at once: nobody is to send it again by mistake."""
    kept_s = 0.0 if task.state is State.CANCELLED else task.retention_s
    return task.finished_at_ms + round(kept_s * 1000)
