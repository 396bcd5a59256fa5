"""Tells when a task is done: its distinct finished seqs add up to the total it was sealed with.

Counts come from the registry, where all dispatchers record, so the answer is exact however many
processes share the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from pushlane.core.endings import Ending
from pushlane.core.errors import PushlaneError, UnknownFormat, UnknownTask
from pushlane.core.retrying import Backoff, whenever
from pushlane.core.task import Finished, Progress, State, Task
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.lanes.ports import Registry
from pushlane.model import task_changes

log = logging.getLogger("pushlane.completion")

_AT_ONCE = 32


class Completion:
    """Marks tasks done once all that they were sealed with is finished."""

    def __init__(
        self,
        registry: Registry,
        tasks: KnownTasks,
    ) -> None:
        self._registry = registry
        self._tasks = tasks
        self._unchecked: dict[str, None] = {}
        self._full: dict[str, None] = {}
        self._due = asyncio.Event()
        self.finished: dict[str, int] = {}

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        """Hear the new counts of tasks."""
        self.on_progress(progress)

    def on_progress(self, progress: Sequence[Progress]) -> None:
        for count in progress:
            task = self._tasks.find(count.task_id)
            if task is None or task.state.is_terminal:
                continue
            self.finished[count.task_id] = count.finished
            if task.total is not None and count.finished >= task.total:
                self._full[task.id] = None
                self._due.set()

    def on_task(self, task: Task) -> None:
        """Look at a task that is new or changed: once it is sealed, its count may be full."""
        if task.state.is_terminal:
            self.finished.pop(task.id, None)
        elif task.total is not None:
            self._unchecked[task.id] = None
            self._due.set()

    def on_unread(self, task_id: str) -> None:
        """Leave the task to the newer version that understands it, which ends it."""

    async def run(self) -> None:
        await whenever(self._due, self._check_and_finish, Backoff(log, "the registry"))

    async def conclude(self) -> None:
        """Do now what is due, at a stop. Whoever leads makes up for what does not get through."""
        with suppress(PushlaneError):
            await self._check_and_finish()

    async def _check_and_finish(self) -> None:
        await self._check()
        await self._finish()

    async def _check(self) -> None:
        if unchecked := list(self._unchecked):
            progress = await self._registry.progress(unchecked)
            for task_id in unchecked:  # not those that came in meanwhile
                self._unchecked.pop(task_id, None)
            self.on_progress(progress)

    async def _finish(self) -> None:
        while self._full:
            some = list(self._full)[:_AT_ONCE]
            await asyncio.gather(*(self._done(task_id) for task_id in some))
            for task_id in some:
                self._full.pop(task_id, None)

    async def _done(self, task_id: str) -> None:
        try:
            self._tasks.apply(await self._registry.change(task_id, task_changes.finish(State.DONE)))
        except UnknownFormat:  # a newer version ends it
            return
        except UnknownTask:
            log.warning(
                "task %s ended but is not in the registry", task_id, extra={"action": "task_lost"}
            )
            return
        log.info("task %s is done", task_id, extra={"action": "task_done"})
