"""Locks of single writers: each has a token of its writer, and ends by itself when that dies.

A commit shows the token again, in the same step; a writer whose lock has ended starts over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator

from pushlane.lanes.errors import TaskConflict, Unreachable
from pushlane.lanes.redis.client import RedisClient

LOCK_MS = 10_000
PATIENCE_S = 20.0  # twice a lock's life: a dead holder is always outlived
MOST_PAUSE_S = 0.2

LOCK = """
local function lock(key, token, ttl_ms)
  return redis.call('SET', key, token, 'NX', 'PX', ttl_ms) or redis.call('GET', key) == token
end
"""

_UNLOCK = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"


async def attempts(what: str) -> AsyncIterator[str]:
    """Yield a new token for each attempt, with growing pauses between.

    Raises:
        TaskConflict: somebody else has been writing for PATIENCE_S.
    """
    deadline = time.monotonic() + PATIENCE_S
    pause_s = 0.005
    while time.monotonic() < deadline:
        yield secrets.token_hex(8)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, MOST_PAUSE_S)
    raise TaskConflict(
        f"{what} has been under change by other processes for {PATIENCE_S:.0f} s; "
        "see which still run, then try again"
    )


async def unlock(client: RedisClient, lock: str, token: str) -> bool:
    """Release the lock. False when it was not this writer's any more."""
    return bool(await client.run(_UNLOCK, [lock], [token]))


@contextlib.asynccontextmanager
async def unlocked_on_error(client: RedisClient, lock: str, token: str) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(Unreachable):  # then the lock ends by itself
            await unlock(client, lock, token)
        raise
