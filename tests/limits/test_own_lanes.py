"""Limited tasks that move from a shared lane to one of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, Task
from pushlane.dispatcher.gates.budget_gate import OwnLaneRequests
from pushlane.dispatcher.tasks import KnownTasks
from tests.core.support import Wrapped, add_task, backend_in, until_task


class Stuck(Wrapped):
    """A backend that moves all tasks but these."""

    def __init__(self, real: object, stuck: list[Task]) -> None:
        super().__init__(real)
        self._stuck = {task.id for task in stuck}

    async def isolate(self, task_id: str) -> Task:
        if task_id in self._stuck:
            raise Unreachable("its lane cannot be made")
        return await self._real.isolate(task_id)


async def test_tasks_that_cannot_move_hold_up_no_other(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        tasks = [await add_task(backend, Level.LOW, pushes=1) for _ in range(20)]
        known = KnownTasks(backend)
        requests = OwnLaneRequests(Stuck(backend, tasks[:-1]), known)
        for task in tasks:
            known.apply(task)
            requests.ask(task.id)

        running = asyncio.create_task(requests.run())
        await until_task(backend, tasks[-1], lambda task: not task.pooled)
        running.cancel()
