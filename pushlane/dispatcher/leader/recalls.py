"""Has what waits for its time asked anew once the times of its task were changed.

What was put off by the old times may lie on a later lane for up to a day. Whoever leads has the
broker hand it out at once: gates ask by the new times, and put off again what still has to wait. A
dispatcher that has not heard of the change would do so by the old ones. So the leader gives all a
little time to hear, and does it once more a while later. That it is to be done stands in the task:
the next leader does it too, and one that comes much later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.errors import UnknownFormat
from pushlane.core.names import is_later
from pushlane.core.retrying import Backoff
from pushlane.core.task import Task
from pushlane.model import task_changes
from pushlane.util.errors import UnknownTask
from pushlane.util.retrying import for_each

log = logging.getLogger("pushlane.recalls")

FIRST_S = 3.0
AGAIN_S = 30.0
_EVERY_S = 1.0
_AT_ONCE = 4
_SOON_MS = 60_000


class _Recall(msgspec.Struct):
    """A change of a task's times: the task, when it was heard of, and whether it was acted on."""

    task: Task
    heard_s: float
    is_begun: bool = False

    def is_due(self, now_s: float) -> bool:
        return now_s - self.heard_s >= (AGAIN_S if self.is_begun else FIRST_S)

    def is_last(self, now_s: float) -> bool:
        return now_s - self.heard_s >= AGAIN_S


@dataclass(eq=False, repr=False)
class Recalls:
    """Listens to tasks, and acts while this process `leads`.

    `apply` is told of a task that it has changed. `clock_s` is a monotonic clock, `clock_ms` that
    of the broker's due times, in Unix milliseconds.
    """

    backend: Backend
    leads: Callable[[], bool]
    apply: Callable[[Task], None]
    clock_s: Callable[[], float] = time.monotonic
    clock_ms: Callable[[], int] = task_changes.now_ms

    def __post_init__(self) -> None:
        self._open: dict[str, _Recall] = {}

    def on_task(self, task: Task) -> None:
        known = self._open.get(task.id)
        if not task.recall_ms or task.state.is_terminal:
            self._open.pop(task.id, None)
        elif known is not None and known.task.recall_ms == task.recall_ms:
            known.task = task
        else:
            self._open[task.id] = _Recall(task, self.clock_s())

    def on_unread(self, task_id: str) -> None:
        """Leave the task to the newer version that understands it."""
        self._open.pop(task_id, None)

    async def run(self) -> None:
        backoff = Backoff(log, "a service that has pushes wait")
        while True:
            await backoff.until_done(self.step)
            await asyncio.sleep(_EVERY_S)

    async def step(self) -> None:
        """Do what is due, if this process leads."""
        if self.leads():
            now_s = self.clock_s()
            due = [recall for recall in self._open.values() if recall.is_due(now_s)]
            await for_each(due, self._do, _AT_ONCE)

    async def _do(self, recall: _Recall) -> None:
        task, is_last = recall.task, recall.is_last(self.clock_s())
        count = await self._hasten(task)
        if count or not recall.is_begun:
            text = "task %s has new times: %d of its waiting pushes are checked again"
            log.info(text, task.id, count, extra={"action": "task_recalled"})
        recall.is_begun = True
        if is_last:
            await self._end(task)

    async def _hasten(self, task: Task) -> int:
        """Hasten what waits on its later lanes; what comes up within a minute is left to that."""
        await self.backend.registry.clear_put_offs(task.id)
        later_than_ms = self.clock_ms() + _SOON_MS
        lanes = [lane for lane in task.own_lanes() if is_later(lane)]
        return sum([await self.backend.broker.hasten(lane, later_than_ms) for lane in lanes])

    async def _end(self, task: Task) -> None:
        try:
            edit = task_changes.recalled(task.recall_ms)
            self.apply(await self.backend.registry.change(task.id, edit))
        except (UnknownTask, UnknownFormat):  # it was forgotten, or a newer version has it
            self._open.pop(task.id, None)
