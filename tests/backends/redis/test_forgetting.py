"""What forgetting leaves in Redis and in the journal, and what becomes of late counts."""

from __future__ import annotations

import asyncio

import pytest

from pushlane.backends.ports import Fence, listed
from pushlane.backends.redis import RedisRegistry, connect_redis
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import KEPT_MS, Keys
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Moved, State, Task
from pushlane.model import task_changes
from pushlane.util.errors import Superseded, UnknownTask
from tests.backends.redis.world import WINDOW_S, World, new_task, world_on


async def ended(registry: RedisRegistry, **fields: object) -> Task:
    task = await registry.add(new_task(**fields))
    return await registry.change(task.id, task_changes.finish(State.DONE))


async def call(world: World, *command: str | int) -> object:
    client = RedisClient(world.url)
    try:
        return await client.call(*command)
    finally:
        await client.close()


async def test_no_key_of_a_forgotten_task_is_left(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        await registry.add(new_task())  # what is there with one task
        before = await world.names()
        task = await ended(registry, key="sale", name="Sale")
        await registry.record([Finished(task.id, Kind.DELIVERED, [1, 2])])
        await registry.move([Moved(task.id, [3])])

        await registry.forget(task.id)

        keys = Keys(world.prefix)
        assert await world.names() - before <= {keys.ended, keys.forgotten}
        assert world.journal.records[task.id] == b""
        for name in (keys.order, keys.ended, keys.by_name):
            members = await call(world, "ZRANGE", name, 0, -1)
            assert not [member for member in members if task.id.encode() in member]


async def test_a_rebuild_does_not_bring_it_back(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        kept, gone = await ended(registry), await ended(registry)
        await registry.forget(gone.id)

        await world.lose_data()

        assert await listed(registry) == [kept]


async def test_an_old_copy_of_redis_does_not_bring_it_back(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        kept, gone = await ended(registry), await ended(registry, key="sale", name="Sale")
        await registry.record([Finished(gone.id, Kind.DELIVERED, [1])])
        await world.journal.append(gone.id, b"")

        for key in (Keys(world.prefix).filled, Keys(world.prefix).server):
            await call(world, "SET", key, "another server")

        assert await listed(registry) == [kept]
        [progress] = await registry.progress([gone.id])
        assert progress.finished == 0
        new = await registry.add(new_task(key="sale"))
        assert new.id != gone.id


async def test_the_news_of_it_is_kept_for_a_day(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        first, second = await ended(registry), await ended(registry)
        since = (await registry.changes(0, 0)).version
        await registry.forget(first.id)
        assert list((await registry.changes(since, 0)).forgotten) == [first.id]
        keys = Keys(world.prefix)
        await call(world, "ZADD", keys.forgotten, task_changes.now_ms() - KEPT_MS - 1000, first.id)
        await registry.forget(second.id)

        await registry.tidy()

        assert list((await registry.changes(since, 0)).forgotten) == [second.id]
        assert await call(world, "ZRANGE", keys.forgotten, 0, -1) == [second.id.encode()]


async def test_who_is_superseded_while_it_journals_forgets_nothing(redis_url: str) -> None:
    async with (
        world_on(redis_url) as world,
        connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis,
    ):
        task = await ended(redis.registry)
        old = (await redis.lease.acquire("janitor", "old", 600)).number
        await redis.lease.release("janitor", "old")
        keys = Keys(world.prefix)
        new = f"{old + 1}"
        client = RedisClient(world.url)
        world.journal.on_append = lambda: client.call("SET", keys.fence("janitor"), new)

        with pytest.raises(Superseded):
            await redis.registry.forget(task.id, Fence("janitor", old))

        await client.close()
        await world.lose_data()
        assert await listed(redis.registry) == [task]


async def test_which_seqs_were_counted_is_kept_a_day_longer_than_the_lanes(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        task = await ended(registry)
        keys = Keys(world.prefix)
        await registry.record([Finished(task.id, Kind.DELIVERED, [1, 2])])
        await registry.move([Moved(task.id, [3])])
        assert await call(world, "PTTL", keys.seen(task.id)) == -1

        await registry.change(task.id, task_changes.lane_dropped)

        for key in (keys.seen(task.id), keys.moved(task.id)):
            assert 0 < await call(world, "PTTL", key) <= KEPT_MS
        assert await call(world, "PTTL", keys.counts(task.id)) == -1


async def test_counts_stay_as_they_are_when_the_seqs_are_gone(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        task = await ended(registry)
        await registry.record([Finished(task.id, Kind.DELIVERED, [1, 2])])
        await call(world, "DEL", Keys(world.prefix).seen(task.id))

        [late] = await registry.record([Finished(task.id, Kind.DROPPED, [2])])

        assert (late.delivered, late.dropped) == (2, 0)


async def test_what_is_counted_of_no_task_goes_by_itself(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        keys = Keys(world.prefix)
        task = await registry.add(new_task())

        await registry.record([Finished(one, Kind.DROPPED, [1]) for one in ("nobody", task.id)])

        for key in (keys.seen("nobody"), keys.counts("nobody")):
            assert 0 < await call(world, "PTTL", key) <= KEPT_MS
        for key in (keys.seen(task.id), keys.counts(task.id)):
            assert await call(world, "PTTL", key) == -1


async def test_what_a_version_before_0_2_0_filled_is_filled_anew_and_keeps_its_counts(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world:
        keys = Keys(world.prefix)
        async with world.registry() as registry:
            running, done = await registry.add(new_task()), await ended(registry)
            await registry.record([Finished(running.id, Kind.DELIVERED, [1])])
        await call(world, "DEL", keys.filled, keys.order, keys.open, keys.ended)

        async with world.registry() as registry:
            assert {task.id for task in await listed(registry)} == {running.id, done.id}
            assert (await registry.ended(task_changes.now_ms() + 1, 9)).tasks == [done]
            [progress] = await registry.progress([running.id])
            assert progress.delivered == 1


async def test_nothing_is_taken_by_a_registry_that_is_to_be_filled_again(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        await registry.add(new_task())
        client, keys = RedisClient(world.url), Keys(world.prefix)

        async def another_server() -> None:
            world.journal.on_append = None
            for key in (keys.filled, keys.server):
                await client.call("SET", key, "another server")

        world.journal.on_append = another_server
        task = await registry.add(new_task(key="sale"))

        assert await registry.get("sale") == task
        await client.close()


async def test_what_moves_of_no_task_goes_by_itself(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        task = await registry.add(new_task())
        await registry.move([Moved("nobody", [1]), Moved(task.id, [1])])

        keys = Keys(world.prefix)
        assert 0 < await call(world, "PTTL", keys.moved("nobody")) <= KEPT_MS
        assert await call(world, "PTTL", keys.moved(task.id)) == -1


async def test_a_slow_change_does_not_bring_a_forgotten_task_back(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as slow, world.registry() as quick:
        task = await ended(slow)
        world.journal.let_append.clear()
        world.journal.appending.clear()
        change = asyncio.create_task(slow.change(task.id, task_changes.lane_dropped))
        await world.journal.appending.wait()
        await world.lose_locks()
        world.journal.let_append.set()
        await quick.forget(task.id)
        with pytest.raises(UnknownTask):
            await change

        await world.lose_data()

        assert await listed(quick) == []
