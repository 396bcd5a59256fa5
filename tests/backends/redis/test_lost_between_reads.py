"""A Redis that loses its data, at whatever moment of a read, never seems to have no tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pushlane.backends.ports import ALL
from pushlane.backends.redis import RedisPorts, connect_redis
from pushlane.backends.redis.client import RedisClient
from pushlane.core.task import State, Weights, start
from pushlane.model.task_changes import finish
from tests.backends.redis.world import WINDOW_S, World, new_task, world_on

TASK = new_task(key="daily", name="sale")
OVER = new_task()
HEAVY = Weights(3, 2, 1)

MOST_CALLS = 8
"""More than any read here makes."""

READS: dict[str, Callable[[RedisPorts], Awaitable[Any]]] = {
    "get": lambda redis: redis.registry.get(TASK.id),
    "get by key": lambda redis: redis.registry.get("daily"),
    "get by name": lambda redis: redis.registry.get("sale"),
    "some": lambda redis: redis.registry.some([TASK.id, OVER.id]),
    "find out": lambda redis: redis.registry.find_out([TASK.id, OVER.id]),
    "page": lambda redis: redis.registry.page(ALL),
    "ended": lambda redis: redis.registry.ended(2**53, 10),
    "weights": lambda redis: redis.registry.weights(),
    "document": lambda redis: redis.documents.get("rule", "a"),
    "documents": lambda redis: redis.documents.list("rule"),
}


@asynccontextmanager
async def filled(world: World) -> AsyncIterator[RedisPorts]:
    async with connect_redis(world.url, world.prefix, world.journal, WINDOW_S) as redis:
        await redis.registry.add(TASK)
        await redis.registry.add(OVER)
        await redis.registry.change(OVER.id, finish(State.DONE))
        await redis.registry.set_weights(HEAVY)
        for name in ("a", "b"):
            await redis.documents.put("rule", name, b"body", None)
        yield redis


def lose_before(monkeypatch: pytest.MonkeyPatch, world: World, number: int) -> Callable[[], bool]:
    """Empty Redis before the call of this number; return what tells whether that came."""
    calls = 0
    methods = {name: getattr(RedisClient, name) for name in ("run", "call")}

    def losing(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def called(self: RedisClient, *args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                monkeypatch.undo()
                await world.lose_data()
            return await method(self, *args, **options)

        return called

    for name, method in methods.items():
        monkeypatch.setattr(RedisClient, name, losing(method))
    return lambda: calls >= number


@pytest.mark.parametrize("what", READS)
async def test_it_is_filled_again_before_it_answers(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with world_on(redis_url) as world, filled(world) as redis:
        before = _plain(await READS[what](redis))
        lost = 0
        for number in range(1, MOST_CALLS):
            has_lost = lose_before(monkeypatch, world, number)
            after = _plain(await READS[what](redis))
            monkeypatch.undo()
            if not has_lost():
                break
            lost += 1
            assert after == before
        assert 0 < lost < MOST_CALLS - 1


async def test_what_follows_the_changes_hears_of_nothing_forgotten(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world_on(redis_url) as world, filled(world) as redis:
        for number in range(1, MOST_CALLS):
            since = (await redis.registry.changes(0, 0.0)).version
            await redis.registry.change(TASK.id, lambda task: start(task))
            has_lost = lose_before(monkeypatch, world, number)
            changes = await redis.registry.changes(since, 0.0)
            monkeypatch.undo()
            assert list(changes.forgotten) == []
            assert changes.weights == HEAVY
            if not has_lost():
                break
        assert number > 2


async def test_a_task_that_redis_alone_has_lost_is_unknown(redis_url: str) -> None:
    async with world_on(redis_url) as world, filled(world) as redis:
        client = RedisClient(redis_url)
        await client.call("HDEL", redis.registry._keys.tasks, TASK.id)
        await client.close()

        quick = await redis.registry.some([TASK.id, OVER.id])
        thorough = await redis.registry.find_out([TASK.id, OVER.id])

    for found in (quick, thorough):
        assert [task.id for task in found.tasks] == [OVER.id]
        assert not found.forgotten


async def test_a_task_that_the_journal_does_not_have_is_forgotten(redis_url: str) -> None:
    async with world_on(redis_url) as world, filled(world) as redis:
        assert not (await redis.registry.some(["nobodys"])).forgotten
        assert (await redis.registry.find_out(["nobodys", TASK.id])).forgotten == ["nobodys"]


async def test_a_task_forgotten_a_moment_ago_is_known_as_that_at_a_look(redis_url: str) -> None:
    async with world_on(redis_url) as world, filled(world) as redis:
        await redis.registry.forget(OVER.id)
        readings = world.journal.readings

        assert (await redis.registry.some([OVER.id])).forgotten == [OVER.id]
        assert (await redis.registry.find_out([OVER.id])).forgotten == [OVER.id]
        assert world.journal.readings == readings


def _plain(answer: Any) -> Any:
    """Leave out the versions of documents, which are new when they are filled in again."""
    documents = answer if isinstance(answer, list) else [answer]
    if all(hasattr(one, "body") for one in documents):
        return [(one.name, one.body) for one in documents]
    return answer
