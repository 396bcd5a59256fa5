"""Pauses whole tasks for which a sink asks."""

from __future__ import annotations

import asyncio
import logging

from pushlane.backends.backend import Backend
from pushlane.core.errors import InvalidChange, UnknownFormat, UnknownTask
from pushlane.core.retrying import Backoff, whenever
from pushlane.core.task import State
from pushlane.dispatcher.known_tasks import KnownTasks

log = logging.getLogger("pushlane.pauses")


class PauseRequests:
    """Pauses whole tasks when a sink asks for it, once for all pushes of a task that are in flight.

    A request that does not get through is tried again until it does or the task has ended.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._asked: dict[str, str] = {}
        self._due = asyncio.Event()

    def ask(self, task_id: str, reason: str) -> None:
        """Pause the task soon, unless it does not run."""
        task = self._tasks.find(task_id)
        if task is not None and task.state is State.RUNNING:
            self._asked.setdefault(task_id, reason)
            self._due.set()

    async def run(self) -> None:
        await whenever(self._due, self._pause_all, Backoff(log, "the registry"))

    async def _pause_all(self) -> None:
        while self._asked:
            task_id, reason = next(iter(self._asked.items()))
            await self._pause(task_id, reason)
            del self._asked[task_id]

    async def _pause(self, task_id: str, reason: str) -> None:
        try:
            self._tasks.apply(await self._backend.pause(task_id, reason))
        except (InvalidChange, UnknownTask, UnknownFormat):  # it has ended, or is a newer version's
            return
        log.warning("task %s is paused: %s", task_id, reason, extra={"action": "task_paused"})
