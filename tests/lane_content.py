"""What tests of producers share: reading back what a task's lane got."""

from __future__ import annotations

import asyncio

from pushlane.backends.backend import Backend, connect
from pushlane.core.push import Push, decode, encode
from pushlane.core.task import Task
from pushlane.settings import Settings
from pushlane.wire import bodies_of

_END = "end"


def pushes_of(settings: Settings, task_id: str) -> list[Push]:
    """All that is on the lane of the task, in order."""

    async def take() -> list[Push]:
        async with connect(settings) as backend:
            return await lane_of(backend, task_id)

    return asyncio.run(take())


def task_of(settings: Settings, task_id: str) -> Task:
    async def get() -> Task:
        async with connect(settings) as backend:
            return await backend.registry.get(task_id)

    return asyncio.run(get())


async def lane_of(backend: Backend, task_id: str) -> list[Push]:
    """Takes and acks all there is; a last push of ours marks the end."""
    lane = (await backend.registry.get(task_id)).first_lane
    await backend.broker.publish(lane, [encode(Push(_END, 1, _END))])
    ready = asyncio.Event()
    reader = await backend.broker.read(lane, lambda _: ready.set())
    found: list[Push] = []
    while not found or found[-1].task_id != _END:
        taken = reader.take()
        if taken is None:
            await ready.wait()
            ready.clear()
            continue
        found += map(decode, bodies_of(taken.body))
        await backend.broker.ack([taken])
    await reader.close()
    return found[:-1]
