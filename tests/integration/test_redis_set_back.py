"""A Redis that comes back with an older copy of its data: the journal says what tasks there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from pushlane.backends.ports import listed
from pushlane.backends.redis import RedisPorts, connect_redis
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, Weights
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from tests.backends.redis.memory_journal import MemoryJournal
from tests.own_redis import OwnRedis

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


@asynccontextmanager
async def connected(own_redis: OwnRedis, journal: MemoryJournal) -> AsyncIterator[RedisPorts]:
    async with connect_redis(own_redis.url, "set-back", journal, WINDOW_S) as redis:
        yield redis


async def test_what_changed_after_the_copy_is_there_again(own_redis: OwnRedis) -> None:
    journal = MemoryJournal()
    async with connected(own_redis, journal) as redis:
        old = await redis.registry.add(new_task(key="daily"))
        own_redis.save()
        new = await redis.registry.add(new_task(key="weekly", total=7))
        changed = await redis.registry.change(old.id, task_changes.set_quota(5))
        await redis.registry.set_weights(Weights(1, 2, 3))

        own_redis.restore()

        assert await redis.registry.get(old.id) == changed
        assert await redis.registry.get("weekly") == new
        assert await redis.registry.weights() == Weights(1, 2, 3)


async def test_a_task_that_was_cancelled_after_the_copy_stays_so(own_redis: OwnRedis) -> None:
    journal = MemoryJournal()
    async with connected(own_redis, journal) as redis:
        task = await redis.registry.add(new_task())
        own_redis.save()
        await redis.registry.change(task.id, task_changes.cancel)
        before = await redis.registry.changes(0, 0)

        own_redis.restore()
        after = await redis.registry.changes(before.version, 10.0)

        assert after.version > before.version
        assert [task.state for task in after.tasks] == [State.CANCELLED]


async def test_a_change_right_after_is_made_to_the_newest_value(own_redis: OwnRedis) -> None:
    journal = MemoryJournal()
    async with connected(own_redis, journal) as redis:
        task = await redis.registry.add(new_task())
        own_redis.save()
        await redis.registry.change(task.id, task_changes.set_quota(5))

        own_redis.restore()
        changed = await redis.registry.change(task.id, task_changes.start)

        assert (changed.quota, changed.state, changed.version) == (5, State.RUNNING, 2)


async def test_it_says_since_when_finishes_are_counted(own_redis: OwnRedis) -> None:
    journal = MemoryJournal()
    async with connected(own_redis, journal) as redis:
        await redis.registry.record([Finished("t", Kind.DELIVERED, [1])])
        first = await redis.registry.counted_since_ms()
        own_redis.save()
        await redis.registry.record([Finished("t", Kind.DELIVERED, [2])])
        lost_at_ms = task_changes.now_ms()

        own_redis.restore()
        await listed(redis.registry)

        [progress] = await redis.registry.progress(["t"])
        assert progress.delivered == 1
        assert first < lost_at_ms <= await redis.registry.counted_since_ms()


async def test_an_emptied_one_says_so_too(own_redis: OwnRedis) -> None:
    journal = MemoryJournal()
    async with connected(own_redis, journal) as redis:
        task = await redis.registry.add(new_task())
        lost_at_ms = task_changes.now_ms()

        own_redis.empty()

        assert await redis.registry.get(task.id) == task
        assert await redis.registry.counted_since_ms() >= lost_at_ms
