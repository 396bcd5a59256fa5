"""Processes of release 0.2, which decide in Lua, and of this one hold the same lease in turn."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from pushlane.backends.cells import Cell, CellLease, CellPresence
from pushlane.backends.ports import Grant
from pushlane.backends.redis.cells import RedisLeaseCells, RedisPresenceCells
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.model.presence import Process, decode_all, encode

LONG_S = 600.0
SHORT_S = 0.03
EACH = 4
TURNS = 25

ACQUIRE = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HMGET', KEYS[1], 'holder', 'fence')
if held[1] and held[1] ~= ARGV[1] then return false end
local fence = held[2]
if not fence then
  fence = math.max(now_ms, tonumber(redis.call('GET', KEYS[2]) or 0) + 1)
  fence = string.format('%.0f', fence)
  redis.call('SET', KEYS[2], fence)
  redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'fence', fence)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2] + ARGV[3])
return {tonumber(fence), now_ms}
"""
RELEASE = """
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
PRUNE = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_ms))
"""
ANNOUNCE = (
    PRUNE
    + """
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms + ARGV[3]), ARGV[1])
"""
)
LIST = PRUNE + "return redis.call('ZRANGE', KEYS[1], 0, -1)"
LEAVE = """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
"""


class EarlierLease:
    """The lease of a process of 0.2."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        keys = [self._keys.lease(name), self._keys.fence(name)]
        args = [holder, max(1, round(ttl_s * 1000)), 24 * 3600 * 1000]
        answer = await self._client.run(ACQUIRE, keys, args)
        return None if answer is None else Grant(int(answer[0]), int(answer[1]))

    async def release(self, name: str, holder: str) -> None:
        await self._client.run(RELEASE, [self._keys.lease(name)], [holder])


AnyLease = EarlierLease | CellLease


@asynccontextmanager
async def prefix_on(url: str) -> AsyncIterator[tuple[RedisClient, Keys]]:
    client, prefix = RedisClient(url), f"test-{uuid.uuid4().hex}"
    try:
        yield client, Keys(prefix)
    finally:
        if names := await client.call("KEYS", f"{{{prefix}}}:*"):
            await client.call("DEL", *names)
        await client.close()


async def server_ms(client: RedisClient) -> int:
    seconds, micros = await client.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


@pytest.mark.parametrize("earlier_first", [True, False])
async def test_one_of_both_versions_holds_it_and_the_next_gets_a_higher_number(
    redis_url: str, earlier_first: bool
) -> None:
    async with prefix_on(redis_url) as (client, keys):
        both: list[AnyLease] = [
            EarlierLease(client, keys),
            CellLease(RedisLeaseCells(client, keys)),
        ]
        one, other = both if earlier_first else reversed(both)
        first = await one.acquire("janitor", "one", LONG_S)

        assert await other.acquire("janitor", "two", LONG_S) is None
        await other.release("janitor", "two")
        assert await other.acquire("janitor", "two", LONG_S) is None
        await one.release("janitor", "one")
        second = await other.acquire("janitor", "two", LONG_S)

        assert first is not None
        assert second is not None
        assert second.number > first.number
        assert await one.acquire("janitor", "one", LONG_S) is None


@pytest.mark.parametrize("earlier_first", [True, False])
async def test_a_holder_keeps_its_number_over_an_upgrade_and_back(
    redis_url: str, earlier_first: bool
) -> None:
    async with prefix_on(redis_url) as (client, keys):
        both: list[AnyLease] = [
            EarlierLease(client, keys),
            CellLease(RedisLeaseCells(client, keys)),
        ]
        one, other = both if earlier_first else reversed(both)
        first = await one.acquire("janitor", "one", LONG_S)

        again = await other.acquire("janitor", "one", 2 * LONG_S)

        assert first is not None
        assert again is not None
        assert again.number == first.number
        for key, least_s in ((keys.lease("janitor"), LONG_S), (keys.fence("janitor"), 86_400)):
            assert await client.call("PTTL", key) > least_s * 1000
        await other.release("janitor", "one")
        assert await one.acquire("janitor", "two", LONG_S) is not None


class Between(RedisLeaseCells):
    """Something else happens after each first look, before what was decided for it."""

    def __init__(
        self, client: RedisClient, keys: Keys, then: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(client, keys)
        self._then: Callable[[], Awaitable[None]] | None = then

    async def read(self, key: str) -> Cell | None:
        found = await super().read(key)
        if self._then is not None:
            then, self._then = self._then, None
            await then()
        return found


async def test_an_earlier_process_that_takes_it_after_the_look_keeps_it(redis_url: str) -> None:
    async with prefix_on(redis_url) as (client, keys):
        earlier = EarlierLease(client, keys)

        async def taken() -> None:
            assert await earlier.acquire("janitor", "earlier", LONG_S) is not None

        lease = CellLease(Between(client, keys, taken))

        assert await lease.acquire("janitor", "new", LONG_S) is None
        assert (await earlier.acquire("janitor", "earlier", LONG_S)) is not None


async def test_a_renewal_that_comes_too_late_takes_nothing_away(redis_url: str) -> None:
    async with prefix_on(redis_url) as (client, keys):
        earlier = EarlierLease(client, keys)
        await earlier.acquire("janitor", "new", LONG_S)

        async def passed_on() -> None:
            await client.call("DEL", keys.lease("janitor"))  # as when its time is over
            assert await earlier.acquire("janitor", "earlier", LONG_S) is not None

        lease = CellLease(Between(client, keys, passed_on))

        assert await lease.acquire("janitor", "new", LONG_S) is None


async def test_a_redis_that_lost_all_after_the_look_gives_a_higher_number(redis_url: str) -> None:
    async with prefix_on(redis_url) as (client, keys):
        earlier = EarlierLease(client, keys)
        before: list[Grant] = []

        async def lost() -> None:
            grant = await earlier.acquire("janitor", "earlier", LONG_S)
            assert grant is not None
            before.append(grant)
            while await server_ms(client) <= grant.number:
                pass  # the same moment may have but one number
            await client.call("DEL", keys.lease("janitor"), keys.fence("janitor"))

        grant = await CellLease(Between(client, keys, lost)).acquire("janitor", "new", LONG_S)

        assert grant is not None
        assert grant.number > before[0].number


async def test_of_many_of_both_versions_at_once_one_holds_it(redis_url: str) -> None:
    holding: list[str] = []
    numbers: list[int] = []

    async def contend(lease: AnyLease, name: str) -> None:
        for _ in range(TURNS):
            while (grant := await lease.acquire("janitor", name, LONG_S)) is None:
                await asyncio.sleep(0)
            holding.append(name)
            numbers.append(grant.number)
            await asyncio.sleep(0)
            assert holding == [name]
            holding.remove(name)
            await lease.release("janitor", name)

    async with prefix_on(redis_url) as (client, keys):
        new, earlier = CellLease(RedisLeaseCells(client, keys)), EarlierLease(client, keys)
        await asyncio.gather(
            *(contend(new, f"new-{number}") for number in range(EACH)),
            *(contend(earlier, f"earlier-{number}") for number in range(EACH)),
        )

    assert len(numbers) == 2 * EACH * TURNS
    assert numbers == sorted(set(numbers))


async def test_processes_of_both_versions_see_each_other(redis_url: str) -> None:
    async with prefix_on(redis_url) as (client, keys):
        presence = CellPresence(RedisPresenceCells(client, keys))
        one = Process(id="new", kind="dispatcher", pid=1, version="1", started_at_ms=1)
        other = Process(id="earlier", kind="dispatcher", pid=2, version="1", started_at_ms=2)
        of_other = [keys.processes, keys.process("earlier")]
        await presence.announce(one, LONG_S)
        await client.run(ANNOUNCE, of_other, ["earlier", encode(other), 600_000])

        assert await presence.list() == [one, other]
        ids = await client.run(LIST, [keys.processes])
        bodies = await client.call("MGET", *(keys.process(name.decode()) for name in ids))
        assert decode_all(bodies) == [one, other]

        await client.run(LEAVE, [keys.processes, keys.process("new")], ["new"])
        assert await presence.list() == [other]
        await presence.leave("earlier")
        assert await client.run(LIST, [keys.processes]) == []
