"""What every registry, ledger, limiter and so on promises, on a Redis Cluster and on Sentinel.

The contracts are those of the other files, run without Pulsar: the journal is in memory.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import AsyncExitStack

import pytest

from pushlane.backends.redis import RedisPorts, connect_redis
from pushlane.core.task import Weights
from tests.backends.redis.memory_journal import MemoryJournal
from tests.contract.test_dead_addresses import *  # noqa: F403
from tests.contract.test_documents import *  # noqa: F403
from tests.contract.test_lease import *  # noqa: F403
from tests.contract.test_ledger import *  # noqa: F403
from tests.contract.test_limiter import *  # noqa: F403
from tests.contract.test_presence import *  # noqa: F403
from tests.contract.test_recipient_windows import *  # noqa: F403
from tests.contract.test_registry import *  # noqa: F403
from tests.contract.test_suppressions import *  # noqa: F403

pytestmark = pytest.mark.xdist_group("redis groups")

LONG_S = 600.0


class RedisConnections:
    """As many connections to one prefix as a test asks for, each like a process of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"test-{uuid.uuid4().hex}"
        self._journal = MemoryJournal()
        self._stack = AsyncExitStack()

    async def one(self) -> RedisPorts:
        opened = connect_redis(self._url, self._prefix, self._journal, 600.0)
        return await self._stack.enter_async_context(opened)

    async def two(self) -> tuple[RedisPorts, RedisPorts]:
        return await self.one(), await self.one()

    async def __aenter__(self) -> RedisConnections:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@pytest.fixture(params=["cluster", "sentinel"])
def connections(request: pytest.FixtureRequest) -> RedisConnections:
    return RedisConnections(request.getfixturevalue(f"{request.param}_url"))


async def test_a_change_wakes_who_waits_at_another_node(
    connections: RedisConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pushlane.backends.redis.registry.RECHECK_S", LONG_S
    )  # only a message ends it
    async with connections:
        here, there = await connections.two()
        before = (await here.registry.changes(0, 0.0)).version
        waiting = asyncio.create_task(here.registry.changes(before, LONG_S))

        while not waiting.done():  # the first message may come before the subscription
            await there.registry.set_weights(Weights(1, 2, 3))
            await asyncio.wait([waiting], timeout=0.05)

        assert (await waiting).weights == Weights(1, 2, 3)
