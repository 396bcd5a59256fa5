"""A registry in Redis under a prefix of its own, with a journal in memory."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from pushlane.backends.redis import RedisRegistry, connect_redis
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from tests.backends.redis.memory_journal import MemoryJournal

WINDOW_S = 600.0


def new_task(**fields: object) -> Task:
    task_id = new_task_id()
    task = Task(
        id=task_id,
        level=Level.HIGH,
        lane=f"task-{task_id}",
        created_at_ms=task_changes.now_ms(),
    )
    return replace(task, **fields)


class World:
    """One prefix in Redis with its journal, seen by any number of registries."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.journal = MemoryJournal()

    @asynccontextmanager
    async def registry(self) -> AsyncIterator[RedisRegistry]:
        async with connect_redis(self.url, self.prefix, self.journal, WINDOW_S) as redis:
            yield redis.registry

    async def lose_data(self) -> None:
        await self.delete("*")

    async def lose_locks(self) -> None:
        """What time does to the locks of a process that died."""
        await self.delete("lock:*")

    async def names(self) -> set[str]:
        client = RedisClient(self.url)
        found = await client.call("KEYS", Keys(self.prefix).lock("").removesuffix("lock:") + "*")
        await client.close()
        return {name.decode() for name in found}

    async def delete(self, pattern: str) -> None:
        client = RedisClient(self.url)
        base = Keys(self.prefix).lock("").removesuffix("lock:")
        if names := await client.call("KEYS", base + pattern):
            await client.call("DEL", *names)
        await client.close()


@asynccontextmanager
async def world_on(url: str) -> AsyncIterator[World]:
    world = World(url)
    try:
        yield world
    finally:
        await world.lose_data()
