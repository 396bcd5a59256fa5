"""What leases, documents and presence promise, on cells in memory and on a Redis by itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from pushlane.backends.cells import CellDocuments, CellLease, CellPresence
from pushlane.backends.memory.claims import MemoryCells
from pushlane.backends.memory.shared import LockAndClock
from pushlane.backends.redis import RedisPorts, connect_redis
from tests.backends.redis.memory_journal import MemoryJournal
from tests.contract.test_documents import *  # noqa: F403
from tests.contract.test_lease import *  # noqa: F403
from tests.contract.test_presence import *  # noqa: F403


class MemoryPorts(NamedTuple):
    """The three ports over cells in memory."""

    lease: CellLease
    documents: CellDocuments
    presence: CellPresence


Ports = MemoryPorts | RedisPorts


class InMemory:
    """All connections are to the same cells."""

    def __init__(self) -> None:
        lease, documents = (
            CellLease(MemoryCells(LockAndClock())),
            CellDocuments(MemoryCells(LockAndClock())),
        )
        self._ports = MemoryPorts(lease, documents, CellPresence(MemoryCells(LockAndClock())))

    async def one(self) -> Ports:
        return self._ports

    async def two(self) -> tuple[Ports, Ports]:
        return self._ports, self._ports

    async def __aenter__(self) -> InMemory:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


class OnRedis:
    """Each connection is like a process of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"test-{uuid.uuid4().hex}"
        self._journal = MemoryJournal()
        self._stack = AsyncExitStack()

    async def one(self) -> Ports:
        connection = connect_redis(self._url, self._prefix, self._journal, 600.0)
        return await self._stack.enter_async_context(connection)

    async def two(self) -> tuple[Ports, Ports]:
        return await self.one(), await self.one()

    async def __aenter__(self) -> OnRedis:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@pytest.fixture(params=["memory", "redis"])
def connections(request: pytest.FixtureRequest) -> Iterator[InMemory | OnRedis]:
    if request.param == "memory":
        yield InMemory()
    else:
        yield OnRedis(request.getfixturevalue("redis_url"))
