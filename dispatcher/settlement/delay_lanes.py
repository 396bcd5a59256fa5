"""Opens the later lane of a task when a push first has to wait for its time.

An idle reader costs memory in every process, so a task that never retries or delays has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import UnknownTask
from pushlane.lanes.task import Task


class DelayLanes:
    """`find` gives this process's view of a task; `apply` takes a newer one."""

    def __init__(
        self,
        backend: Backend,
        find: Callable[[str], Task | None],
        apply: Callable[[Task], None],
    ) -> None:
        self._backend = backend
        self._find = find
        self._apply = apply
        self._opening: dict[str, asyncio.Lock] = {}

    async def ensure(self, task_id: str) -> None:
        """Return once the task has a later lane, or has ended.

        Raises:
            PushlaneError: broker or registry does not answer, or many change the task at once.
        """
        if self._is_settled(task_id):
            return
        async with self._opening.setdefault(task_id, asyncio.Lock()):
            if not self._is_settled(task_id):
                await self._open(task_id)
        self._opening.pop(task_id, None)

    def _is_settled(self, task_id: str) -> bool:
        task = self._find(task_id)
        return task is not None and (task.has_later or task.state.is_terminal)

    async def _open(self, task_id: str) -> None:
        try:
            self._apply(await self._backend.open_later(task_id))
        except UnknownTask:  # it went with its lanes, as a publish will tell
            return
