"""Tasks written straight to their lanes, for benchmarks that are not about submitting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from pushlane.backends.backend import Backend, bundle_of
from pushlane.core.names import own_lane, pool_lane
from pushlane.core.ports import Source
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.wire import packed

BUNDLE = 32
_PUBLISH_AT_ONCE = 4_096
_TASKS_AT_ONCE = 24
_ADDED_AT_ONCE = 500
_BODY = "x" * 150


def push_of(task_id: str, seq: int) -> Push:
    return Push(task_id, seq, f"r{seq}", "title", _BODY)


async def write_task(
    backend: Backend,
    level: Level,
    pushes: int,
    quota: int = 1,
    app: str = "default",
    sinks: tuple[str, ...] = (),
    make: Callable[[str, int], Push] = push_of,
) -> str:
    """A sealed task on a lane of its own, a low one too: in the pool, tasks would share turns."""
    task_id = new_task_id()
    lane, bundle = own_lane(task_id), bundle_of(BUNDLE, pushes)
    task = Task(
        id=task_id,
        level=level,
        lane=lane,
        app=app,
        sinks=sinks,
        quota=quota,
        bundle=bundle,
        created_at_ms=task_changes.now_ms(),
    )
    await backend.registry.add(task)
    await backend.broker.open_lane(lane)
    await backend.registry.change(task_id, task_changes.start)
    for first in range(1, pushes + 1, _PUBLISH_AT_ONCE):
        last = min(first + _PUBLISH_AT_ONCE, pushes + 1)
        bodies = [encode(make(task_id, seq)) for seq in range(first, last)]
        bundles = list(packed(bodies, bundle))
        source = Source(f"submit-{task_id}", [bundle.last_seq for bundle in bundles])
        await backend.broker.publish(lane, [one.message for one in bundles], source=source)
    await backend.registry.change(task_id, task_changes.seal(pushes))
    return task_id


async def write_tasks(
    backend: Backend,
    count: int,
    pushes: int,
    levels: Sequence[Level] = tuple(Level),
    app: str = "default",
) -> dict[str, int]:
    """So many tasks, several at once, with levels in turn; how many pushes each has."""
    room = asyncio.Semaphore(_TASKS_AT_ONCE)

    async def write(number: int) -> str:
        async with room:
            return await write_task(backend, levels[number % len(levels)], pushes, app=app)

    return dict.fromkeys(await asyncio.gather(*map(write, range(count))), pushes)


async def add_tasks(backend: Backend, count: int, state: State, **fields: Any) -> None:
    """So many tasks of one push in the registry alone: nothing of them is on a lane."""

    def task() -> Task:
        task_id = new_task_id()
        lane, name = pool_lane(task_id, 8), f"Task {task_id}"
        given = {"created_at_ms": task_changes.now_ms(), "state": state, "total": 1, **fields}
        return Task(id=task_id, level=Level.LOW, lane=lane, name=name, **given)

    for start in range(0, count, _ADDED_AT_ONCE):
        tasks = [task() for _ in range(min(_ADDED_AT_ONCE, count - start))]
        await asyncio.gather(*map(backend.registry.add, tasks))
