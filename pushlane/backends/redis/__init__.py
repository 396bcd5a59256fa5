"""The registry, the lease and the ledger on Redis: what every process shares, and fast.

Tasks, weights and documents are written to a journal first, so that losing Redis loses none.
Nothing but this folder knows that the server is Redis.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from pushlane.backends.cells import CellDocuments, CellLease, CellPresence
from pushlane.backends.operations import Beside, RegistryGap
from pushlane.backends.ports import Journal
from pushlane.backends.redis.access import NO_ACCESS, RedisAccess, redis_access
from pushlane.backends.redis.cells import RedisDocumentCells, RedisLeaseCells, RedisPresenceCells
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.journal import is_task
from pushlane.backends.redis.journal_follower import compared
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.ledger import RedisLedger
from pushlane.backends.redis.limiter import RedisLimiter
from pushlane.backends.redis.rebuild import Rebuild
from pushlane.backends.redis.recipients import (
    RedisDeadAddresses,
    RedisRecipientWindows,
    RedisSuppressions,
)
from pushlane.backends.redis.registry import RedisRegistry

__all__ = [
    "RedisPorts",
    "RedisRegistry",
    "compare",
    "connect_redis",
    "is_task",
    "redis_access",
    "refill",
]


class RedisPorts(NamedTuple):
    """The ports that Redis serves."""

    registry: RedisRegistry
    lease: CellLease
    ledger: RedisLedger
    recipient_windows: RedisRecipientWindows
    documents: CellDocuments
    presence: CellPresence
    limiter: RedisLimiter
    suppressions: RedisSuppressions
    dead_addresses: RedisDeadAddresses


@asynccontextmanager
async def connect_redis(
    url: str,
    prefix: str,
    journal: Journal | None,
    ledger_window_s: float,
    recipient_window_s: float = 86_400.0,
    access: RedisAccess = NO_ACCESS,
) -> AsyncIterator[RedisPorts]:
    """Connect, fill an empty registry from the journal, and disconnect in the end.

    Everything is kept under `{prefix}:`. The journal stays open: it belongs to who gave it.
    Without one (None) nothing can be rebuilt.

    Raises:
        BadInput: the URL is none of Redis.
        Unreachable: Redis or the journal does not answer.
    """
    client = RedisClient(url, access)
    keys = Keys(prefix)
    registry = RedisRegistry(client, keys, journal)
    try:
        await client.ping()
        await Rebuild(client, keys, journal).until_ready()
        yield RedisPorts(
            registry,
            CellLease(RedisLeaseCells(client, keys)),
            RedisLedger(client, keys, ledger_window_s),
            RedisRecipientWindows(client, keys, recipient_window_s),
            CellDocuments(RedisDocumentCells(client, keys, journal)),
            CellPresence(RedisPresenceCells(client, keys)),
            RedisLimiter(client, keys),
            RedisSuppressions(client, keys),
            RedisDeadAddresses(client, keys),
        )
    finally:
        await registry.close()
        await client.close()


async def refill(
    url: str,
    prefix: str,
    journal: Journal,
    access: RedisAccess = NO_ACCESS,
    beside: Beside = Beside.REFUSED,
) -> None:
    """Make the registry what the journal says, whatever it was before.

    Raises:
        BadInput: the URL is none of Redis.
        RefillRefused: the journal lacks too many of the tasks that Redis has.
        Unreachable: Redis or the journal does not answer.
    """
    async with RedisClient(url, access) as client:
        await Rebuild(client, Keys(prefix), journal).again(beside)


async def compare(
    url: str, prefix: str, journal: Journal, access: RedisAccess = NO_ACCESS
) -> RegistryGap:
    """Say what the journal and Redis have; neither is changed, and Redis need not be ready.

    Raises:
        BadInput: the URL is none of Redis.
        Unreachable: Redis or the journal does not answer.
    """
    async with RedisClient(url, access) as client:
        return await compared(client, Keys(prefix), journal)
