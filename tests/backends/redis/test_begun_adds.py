"""An add under a key that began and did not end leaves nothing in the way, nor for ever."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushlane.backends.ports import listed
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.registry import BEGUN_KEPT_MS
from pushlane.core.errors import Unreachable
from pushlane.core.task import State, Task
from pushlane.model import task_changes
from tests.backends.redis.world import World, new_task, world_on


def task_of(rows: str, **fields: object) -> Task:
    return new_task(key="daily", fingerprint=rows, **fields)


async def begun(world: World) -> int:
    client = RedisClient(world.url)
    try:
        return int(await client.call("HLEN", Keys(world.prefix).adding))
    finally:
        await client.close()


async def fail_to_add(world: World, task: Task, *, is_journalled: bool) -> None:
    """Add a task while the broker is away, or goes with its answer."""

    def go_away() -> None:
        if not is_journalled:
            del world.journal.records[task.id]
        raise Unreachable("the broker is away")

    world.journal.after_append = go_away
    async with world.registry() as registry:
        with pytest.raises(Unreachable):
            await registry.add(task)
    world.journal.after_append = lambda: None


@pytest.mark.parametrize("is_journalled", [False, True])
async def test_rows_that_were_mended_after_a_failed_add_are_what_is_registered(
    redis_url: str, *, is_journalled: bool
) -> None:
    async with world_on(redis_url) as world:
        broken, mended = task_of("broken rows"), task_of("mended rows")
        await fail_to_add(world, broken, is_journalled=is_journalled)

        async with world.registry() as registry:
            assert await registry.add(mended) == mended
            assert await registry.get("daily") == mended
            assert await begun(world) == 0

            await world.lose_data()
            assert await listed(registry) == [mended]


async def test_the_same_rows_go_on_with_the_task_that_they_began_with(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        first = task_of("rows")
        await fail_to_add(world, first, is_journalled=True)

        async with world.registry() as registry:
            assert await registry.add(task_of("rows")) == first


async def test_of_two_adds_of_other_rows_the_one_that_lost_its_lock_leaves_nothing(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world, world.registry() as slow, world.registry() as quick:
        winner, loser = task_of("some rows"), task_of("other rows")

        async def overtake() -> None:
            world.journal.on_append = None
            await world.lose_locks()
            assert await quick.add(winner) == winner

        world.journal.on_append = overtake

        assert await slow.add(loser) == winner

        await world.lose_data()
        assert await listed(slow) == [winner]


@pytest.mark.parametrize("rows", ["rows", "mended rows"])
async def test_an_add_that_lost_its_lock_leaves_the_kept_task_in_the_journal(
    redis_url: str, rows: str
) -> None:
    """What it appends arrives last: the task as it began, or its removal for mended rows."""
    async with world_on(redis_url) as world, world.registry() as slow, world.registry() as quick:
        first = task_of("rows")
        await fail_to_add(world, first, is_journalled=True)

        async def overtake() -> None:
            world.journal.on_append = None
            late = world.journal.records[first.id]
            await world.lose_locks()
            await quick.add(task_of("rows"))
            await quick.change(first.id, task_changes.cancel)
            world.journal.records[first.id] = late

        world.journal.on_append = overtake

        kept = await slow.add(task_of(rows))

        assert (kept.id, kept.state) == (first.id, State.CANCELLED)
        await world.lose_data()
        assert await listed(slow) == [kept]


async def test_what_nobody_repeats_is_dropped_in_the_end(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        recent, old = task_of("rows"), new_task(key="weekly")
        old = replace(old, created_at_ms=old.created_at_ms - BEGUN_KEPT_MS - 1)
        await fail_to_add(world, recent, is_journalled=True)
        await fail_to_add(world, old, is_journalled=True)

        await registry.tidy()

        assert await begun(world) == 1
        assert await registry.add(task_of("rows")) == recent
        await world.lose_data()
        assert await listed(registry) == [recent]
