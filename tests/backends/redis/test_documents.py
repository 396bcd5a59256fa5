"""What the document store on Redis promises beyond the contract: its journal and its rebuild."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.ports import listed
from pushlane.backends.redis import RedisPorts, connect_redis
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.journal import DOCUMENT_KEY
from pushlane.backends.redis.keys import Keys
from pushlane.core.task import Level, Task
from tests.backends.redis.memory_journal import MemoryJournal

DEADLINE_S = 60.0
KEY = DOCUMENT_KEY + "rule:weekly"


class World:
    """One prefix in Redis with its journal."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"test-{uuid.uuid4().hex}"
        self.journal = MemoryJournal()

    @asynccontextmanager
    async def redis(self) -> AsyncIterator[RedisPorts]:
        async with connect_redis(self.url, self.prefix, self.journal, 600.0) as redis:
            yield redis

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
        await world.delete("*")


async def test_a_lost_redis_has_its_documents_and_its_tasks_again(redis_url: str) -> None:
    task = Task(id="0a", level=Level.HIGH, lane="task-0a")

    async with world_on(redis_url) as world, world.redis() as redis:
        await redis.registry.add(task)
        for number in range(50):
            await redis.documents.put("rule", f"rule-{number:02}", b"%d" % number, None)
        await redis.documents.remove("rule", "rule-07")
        await world.delete("*")

        found = await redis.documents.list("rule")

        assert [int(document.body) for document in found] == [*range(7), *range(8, 50)]
        assert await listed(redis.registry) == [task]


async def test_what_was_removed_does_not_come_back_with_an_older_copy(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.redis() as redis:
        version = await redis.documents.put("rule", "weekly", b"old", None)
        client = RedisClient(world.url)
        copy = await client.call("HGET", Keys(world.prefix).documents, "rule:weekly")
        await redis.documents.remove("rule", "weekly")
        del world.journal.records[KEY]  # the topic was compacted
        await client.call("HSET", Keys(world.prefix).documents, "rule:weekly", copy)
        for key in (Keys(world.prefix).server, Keys(world.prefix).filled):
            await client.call("SET", key, "another")
        await client.close()

        assert await redis.documents.get("rule", "weekly") is None
        assert await redis.documents.put("rule", "weekly", b"late", version) is None


async def test_a_document_is_in_the_journal_before_anybody_sees_it(redis_url: str) -> None:
    async with world_on(redis_url) as world, world.redis() as redis:
        world.journal.let_append.clear()
        put = asyncio.create_task(redis.documents.put("rule", "weekly", b"one", None))
        await world.journal.appending.wait()
        assert await redis.documents.get("rule", "weekly") is None
        world.journal.let_append.set()
        await put
        assert world.journal.records[KEY] == b"one"


async def test_of_puts_over_one_version_the_loser_journals_nothing(redis_url: str) -> None:
    async with world_on(redis_url) as world:
        async with world.redis() as one, world.redis() as other:
            puts = (redis.documents.put("rule", "weekly", b"x", None) for redis in (one, other) * 5)
            versions = await asyncio.gather(*puts)
        assert sum(version is not None for version in versions) == 1
        assert world.journal.appended == [KEY]


async def test_a_writer_whose_lock_ended_leaves_the_kept_body_in_the_journal(
    redis_url: str,
) -> None:
    async with world_on(redis_url) as world, world.redis() as slow, world.redis() as quick:
        first = await slow.documents.put("rule", "weekly", b"first", None)
        world.journal.let_append.clear()
        world.journal.appending.clear()
        late = asyncio.create_task(slow.documents.put("rule", "weekly", b"late", first))
        await world.journal.appending.wait()
        await world.delete("lock:*")
        world.journal.appending.clear()
        soon = asyncio.create_task(quick.documents.put("rule", "weekly", b"soon", first))
        await world.journal.appending.wait()
        world.journal.let_append.set()

        kept = await soon
        assert await late is None

        assert (await quick.documents.get("rule", "weekly")) == ("weekly", kept, b"soon")
        assert world.journal.records[KEY] == b"soon"


async def test_a_journal_that_fails_lets_the_next_writer_in_at_once(redis_url: str) -> None:
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    async with world_on(redis_url) as world, world.redis() as redis:
        world.journal.after_append = die
        with pytest.raises(Died):
            await redis.documents.put("rule", "weekly", b"one", None)
        world.journal.after_append = lambda: None
        assert await redis.documents.put("rule", "weekly", b"two", None) is not None
