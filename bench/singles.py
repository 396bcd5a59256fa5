"""Tasks of one push each, low ones that share the pool's lanes; none of them is submitted alone."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from bench.backlog import push_of
from pushlane.backends.backend import Backend, connect
from pushlane.core.names import pool_lane
from pushlane.core.push import encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.settings import Settings

_AT_ONCE = 1_000


async def write_singles(settings: Settings, count: int) -> dict[str, int]:
    """How many pushes each task has: one."""
    totals: dict[str, int] = {}
    async with connect(settings) as backend:
        while len(totals) < count:
            made = (_task(settings) for _ in range(min(_AT_ONCE, count - len(totals))))
            tasks = {task.id: task for task in made}  # so many in a moment may draw one id twice
            await _write(backend, list(tasks.values()))
            totals.update(dict.fromkeys(tasks, 1))
    return totals


def _task(settings: Settings) -> Task:
    task_id = new_task_id()
    return Task(
        id=task_id,
        level=Level.LOW,
        lane=pool_lane(task_id, settings.pool_lanes),
        state=State.RUNNING,
        total=1,
        created_at_ms=task_changes.now_ms(),
    )


async def _write(backend: Backend, tasks: list[Task]) -> None:
    await asyncio.gather(*map(backend.registry.add, tasks))
    bodies: dict[str, list[bytes]] = defaultdict(list)
    for task in tasks:
        bodies[task.lane].append(encode(push_of(task.id, 1)))
    for lane, of_lane in bodies.items():
        await backend.broker.open_lane(lane)
        await backend.broker.publish(lane, of_lane)
