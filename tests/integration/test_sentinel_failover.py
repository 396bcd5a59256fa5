"""A master behind Sentinel is lost under load: writes wait, go on at the new one, and none is lost.

What only Redis held and had not reached its replica may be lost (docs/faults.md): counts, claims.
"""

from __future__ import annotations

import asyncio

from pushlane.backends.redis import RedisRegistry, connect_redis
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Task
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.world import WINDOW_S, new_task
from tests.redis_groups import RedisGroup

AFTER_FAILOVER = 20


async def test_tasks_that_were_added_are_there_after_a_failover(
    own_sentinel: tuple[RedisGroup, str],
) -> None:
    group, url = own_sentinel
    journal = MemoryJournal()
    added: list[str] = []
    async with connect_redis(url, "failover", journal, WINDOW_S) as redis:
        for _ in range(20):
            added.append((await redis.registry.add(new_task())).id)

        group.kill("master")
        while len(added) < 20 + AFTER_FAILOVER:
            task = new_task()
            try:
                added.append(await kept(redis.registry, task))
            except PushlaneError:  # there is no master for the moment
                await asyncio.sleep(0)
        found = await redis.registry.some(added)

    assert {task.id for task in found.tasks} == set(added)
    assert group.client("replica").info("replication")["role"] == "master"


async def kept(registry: RedisRegistry, task: Task) -> str:
    return (await registry.add(task)).id
