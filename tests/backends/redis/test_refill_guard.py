"""A journal that lacks what Redis has: who loses tasks by that is asked first."""

from __future__ import annotations

import pytest

from pushlane.backends.operations import Beside, is_loss
from pushlane.backends.ports import listed
from pushlane.backends.redis import RedisRegistry, connect_redis
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.rebuild import REFUSED_MS, Rebuild
from pushlane.core.errors import Unreachable
from pushlane.core.task import State, Task, Weights
from pushlane.model.task_bytes import encode
from pushlane.util.errors import RefillRefused
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.world import WINDOW_S, World, new_task, world_on
from tests.unreadable import store_unreadable

OVER = {"state": State.DONE, "finished_at_ms": 1}


async def added(registry: RedisRegistry, count: int, **fields: object) -> list[Task]:
    return [await registry.add(new_task(**fields)) for _ in range(count)]


async def rebuilt(world: World, beside: Beside = Beside.REFUSED) -> None:
    client = RedisClient(world.url)
    try:
        await Rebuild(client, Keys(world.prefix), world.journal).again(beside)
    finally:
        await client.close()


async def call(world: World, *command: str) -> object:
    client = RedisClient(world.url)
    try:
        return await client.call(*command)
    finally:
        await client.close()


async def ids(world: World) -> set[str]:
    found = await call(world, "HKEYS", Keys(world.prefix).tasks)
    assert isinstance(found, list)
    return {task_id.decode() for task_id in found}


async def test_a_journal_that_was_made_anew_takes_no_task_from_redis(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            tasks = await added(registry, 12)
        world.journal = MemoryJournal()

        with pytest.raises(RefillRefused) as refused:
            await rebuilt(world)

        assert isinstance(refused.value, Unreachable)
        assert "the task topic on Pulsar only 0 of them" in str(refused.value)
        assert "pushlane registry rebuild --dry-run" in str(refused.value)
        assert await ids(world) == {task.id for task in tasks}
        assert not world.journal.appended
        with pytest.raises(RefillRefused, match="the other 12 would be lost"):
            async with world.registry():
                raise AssertionError("it is not ready")


async def test_an_empty_journal_takes_not_even_a_few(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            await added(registry, 2)
        world.journal = MemoryJournal()

        with pytest.raises(RefillRefused, match="only 0 of them"):
            await rebuilt(world)


async def test_a_journal_of_other_tasks_adds_its_own_and_takes_none(redis_url: str) -> None:
    """As a copy of Redis that is a month old, whose tasks were forgotten since."""
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            old = {task.id for task in await added(registry, 11)}
        world.journal, new = MemoryJournal(), new_task()
        await world.journal.append(new.id, encode(new))

        with pytest.raises(RefillRefused, match="only 0 of them"):
            await rebuilt(world)

        assert await ids(world) == old | {new.id}


async def test_a_refusal_is_not_worked_out_again_by_each_who_waits(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            await added(registry, 12)
        world.journal = MemoryJournal()
        with pytest.raises(RefillRefused):
            await rebuilt(world)
        for _ in range(3):
            with pytest.raises(RefillRefused):
                async with world.registry():
                    raise AssertionError("it is not ready")
        assert world.journal.readings == 1

        refused = Keys(world.prefix).refused
        left_ms = await call(world, "PTTL", refused)
        assert isinstance(left_ms, int)
        assert 0 < left_ms <= REFUSED_MS
        await call(world, "DEL", refused)
        with pytest.raises(RefillRefused):
            async with world.registry():
                raise AssertionError("it is not ready")
        assert world.journal.readings == 2


async def test_a_process_that_runs_waits_and_goes_on_once_the_journal_is_back(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        tasks = await added(registry, 12)
        kept = dict(world.journal.records)
        world.journal.records.clear()
        await call(world, "SET", Keys(world.prefix).filled, "another server")
        await call(world, "SET", Keys(world.prefix).server, "another server")
        with pytest.raises(RefillRefused):
            await registry.get(tasks[0].id)

        world.journal.records.update(kept)
        await call(world, "DEL", Keys(world.prefix).refused)

        assert await registry.get(tasks[0].id) == tasks[0]


async def test_what_has_ended_or_was_removed_goes_as_ever(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        [kept] = await added(registry, 1)
        ended, gone = await added(registry, 12, **OVER), await added(registry, 12)
        for task in ended:
            del world.journal.records[task.id]
        for task in gone:
            await world.journal.append(task.id, b"")

        await rebuilt(world)

        assert await listed(registry) == [kept]


async def test_who_accepts_the_loss_gets_what_the_journal_has(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.registry() as registry:
            await added(registry, 12)
        world.journal, new = MemoryJournal(), new_task()
        await world.journal.append(new.id, encode(new))
        with pytest.raises(RefillRefused):
            await rebuilt(world)

        await rebuilt(world, Beside.REMOVED)

        async with world.registry() as registry:
            assert await listed(registry) == [new]


async def test_who_keeps_it_has_everything_in_the_journal_again(redis_url: str) -> None:
    """Byte for byte, so that a newer version's task is kept as well."""
    async with world_on(redis_url) as world:
        async with connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis:
            [*tasks, newer] = await added(redis.registry, 13)
            [ended] = await added(redis.registry, 1, key="sale", **OVER)
            await store_unreadable(redis.registry, newer.id, format=99)
            await redis.registry.set_weights(Weights(1, 2, 3))
            await redis.documents.put("rule", "news", b"body", None)
        stored = await call(world, "HGETALL", Keys(world.prefix).tasks)
        world.journal, new = MemoryJournal(), new_task()
        await world.journal.append(new.id, encode(new))
        with pytest.raises(RefillRefused):
            await rebuilt(world)

        await rebuilt(world, Beside.KEPT)
        assert isinstance(stored, dict)
        for task_id, body in stored.items():
            assert world.journal.records[task_id.decode()] == body

        await world.lose_data()
        async with connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis:
            found = {task.id for task in await listed(redis.registry)}
            assert found == {new.id, ended.id, *(task.id for task in tasks)}
            assert (await redis.registry.get("sale")).id == ended.id
            assert await redis.registry.weights() == Weights(1, 2, 3)
            document = await redis.documents.get("rule", "news")
            assert document is not None
            assert document.body == b"body"


async def test_what_the_journal_has_removed_is_not_kept(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.registry() as registry:
        kept, gone = await added(registry, 2)
        await world.journal.append(gone.id, b"")
        del world.journal.records[kept.id]

        await rebuilt(world, Beside.KEPT)

        assert await listed(registry) == [kept]
        assert world.journal.records == {gone.id: b"", kept.id: encode(kept)}


@pytest.mark.parametrize(
    ("lost", "unfinished", "is_refused"),
    [
        (10, 10, False),
        (11, 11, True),
        (11, 1_000, True),
        (11, 1_100, False),
        (12, 1_100, True),
        (0, 0, False),
    ],
)
def test_more_than_a_hundredth_and_more_than_ten_is_a_loss(
    lost: int, unfinished: int, is_refused: bool
) -> None:
    assert is_loss(lost, unfinished, is_journal_empty=False) is is_refused
