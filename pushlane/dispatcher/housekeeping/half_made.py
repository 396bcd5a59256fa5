"""Watches over tasks whose submit, or the producer that feeds them, is gone before it was complete.

Since when is written into the task, so that the next leader knows it too. Run by whoever leads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

from pushlane.backends.backend import Backend
from pushlane.core.names import submit_lease
from pushlane.core.retrying import for_each
from pushlane.core.task import Task
from pushlane.model import task_changes

log = logging.getLogger("pushlane.half_made")

Change = Callable[[Task, task_changes.Edit], Awaitable[None]]

JUST_BEGUN_MS = 10_000
_LOOK_EVERY_S = 30.0
_AT_ONCE = 8
_ABANDONED = "half-made: its submit or its producer did not come back"


class HalfMade:
    """`ends_after_s` is how long one may stand still. `change` makes a leader's change.

    `clock_ms` is a clock in Unix milliseconds, `clock_s` a monotonic one.
    """

    def __init__(
        self,
        backend: Backend,
        change: Change,
        ends_after_s: float,
        clock_ms: Callable[[], int] = task_changes.now_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease = backend.lease
        self._change = change
        self._ends_after_ms = round(ends_after_s * 1000)
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._tasks: dict[str, Task] = {}
        self._look_at_s = 0.0

    def on_task(self, task: Task) -> None:
        """A task is new or changed."""
        if task.is_half_made:
            self._tasks[task.id] = task
        else:
            self._tasks.pop(task.id, None)

    def on_unread(self, task_id: str) -> None:
        """Only a newer version understands the task."""
        self._tasks.pop(task_id, None)

    async def step(self) -> None:
        """Do what is due of it."""
        now_s = self._clock_s()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        now = self._clock_ms()
        settled = [t for t in self._tasks.values() if now - t.created_at_ms >= JUST_BEGUN_MS]
        await for_each(settled, self._look, _AT_ONCE)

    async def _look(self, task: Task) -> None:
        now = self._clock_ms()
        if await self._lease.is_held(submit_lease(task.id)):
            if task.stalled_at_ms:
                await self._change(task, task_changes.stalled(0))
        elif not task.stalled_at_ms:
            await self._change(task, task_changes.stalled(now))
            log.warning(
                "task %s is half-made and nobody goes on with it: it ends in %.1f h unless somebody"
                " does",
                task.id,
                self._ends_after_ms / 3_600_000,
                extra={"action": "task_stalled"},
            )
        elif now - task.stalled_at_ms >= self._ends_after_ms:
            await self._change(task, task_changes.abandon(task.stalled_at_ms, _ABANDONED))
            log.warning("task %s is ended: %s", task.id, _ABANDONED, extra={"action": "abandoned"})
