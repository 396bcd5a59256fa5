"""Opens the lanes of a task that not every task needs."""

from __future__ import annotations

import asyncio

from pushlane.backends.backend import Backend
from pushlane.core.errors import UnknownTask
from pushlane.core.task import Task
from pushlane.dispatcher.known_tasks import KnownTasks


class FurtherLanes:
    """Opens the later lane of a task when a push first has to wait for its time, and its lane at a
    later sink of its chain when a push first goes on there.

    An idle reader costs memory in every process, so a task that needs neither has none.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
    ) -> None:
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
        try:
            self._tasks.apply(
                await (backend.reach(task_id, sink) if sink else backend.open_later(task_id))
            )
        except UnknownTask:  # it went with its lanes, as a publish will tell
            return
