"""Ends tasks that are past their expiry and drops the lanes of tasks that have ended.

One process at a time does this, whoever holds the lease. A lane goes only when its task is over and
nobody reads it any more; until then it is tried again.
"""

from __future__ import annotations

import asyncio
import logging

from dispatcher.backoff import Backoff
from lanes import life
from lanes.backend import Backend
from lanes.errors import UnknownTask, Unreachable
from lanes.naming import own_lane
from lanes.task import ACTIVE_STATES, State, Task

log = logging.getLogger("pushlane.janitor")

LEASE = "janitor"
_TTL_S = 10.0
_EVERY_S = 1.0


class Janitor:
    """Tidies up after tasks while it holds the lease."""

    def __init__(self, backend: Backend, holder: str) -> None:
        self._backend = backend
        self._holder = holder

    async def run(self) -> None:
        backoff = Backoff(log, "the registry")
        while True:
            try:
                if await self._backend.lease.acquire(LEASE, self._holder, _TTL_S) is not None:
                    await self.tidy()
            except Unreachable as error:
                await backoff.wait(error)
                continue
            backoff.reset()
            await asyncio.sleep(_EVERY_S)

    async def tidy(self) -> None:
        """One round over all tasks."""
        now = life.now_ms()
        for task in await self._backend.registry.list():
            if task.state in ACTIVE_STATES and 0 < task.expires_at_ms <= now:
                await self._change(task, life.finish(State.EXPIRED))
            elif task.state.is_terminal and not task.lane_dropped:
                await self._drop(task)

    async def _drop(self, task: Task) -> None:
        """A pooled task has no lane of its own; dropping a lane that is not there is harmless."""
        if task.pooled or await self._backend.broker.drop_lane(own_lane(task.id)):
            await self._change(task, life.lane_dropped)
            log.info("lane of task %s dropped", task.id, extra={"action": "lane_dropped"})

    async def _change(self, task: Task, edit: life.Edit) -> None:
        try:
            await self._backend.registry.change(task.id, edit)
        except UnknownTask:
            log.debug("task %s is gone already", task.id)

    async def close(self) -> None:
        """Let another process take over at once."""
        await self._backend.lease.release(LEASE, self._holder)
