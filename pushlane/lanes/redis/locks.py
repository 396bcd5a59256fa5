"""Locks of single writers: each has a token of its writer, and ends by itself when that dies.

A commit shows the token again, in the same step; a writer whose lock has ended starts over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator, Sequence

from pushlane.backends.redis.client import RedisClient, turn
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.rebuild import Rebuild
from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.lanes.ports import Journal

LOCK_MS = 10_000
PATIENCE_S = 20.0  # twice a lock's life: a dead holder is always outlived
MOST_PAUSE_S = 0.2

LOCK = """
local function lock(key, token, ttl_ms)
  return redis.call('SET', key, token, 'NX', 'PX', ttl_ms) or redis.call('GET', key) == token
end
"""

_UNLOCK = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"


class LockedWrites:
    """Writes one after the other what is journalled before it is in Redis."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        self._client = client
        self._keys = keys
        self._journal = journal
        self._rebuild = Rebuild(client, keys, journal)

    async def _begun(
        self, what: str, script: str, keys: Sequence[str], args: Sequence[str | bytes | int]
    ) -> AsyncIterator[tuple[str, bytes, bytes]]:
        """Yield a new token, how the script began with it, and what it found; then try again.

        Waits while the lock is busy, with growing pauses, and fills a registry that is not ready.

        Raises:
            TaskConflict: somebody else has been writing for PATIENCE_S.
        """
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 0.005
        while time.monotonic() < deadline:
            token = secrets.token_hex(8)
            how, found = await self._client.run(script, keys, [token, LOCK_MS, *args], read=turn)
            if how == b"unready":
                await self._rebuild.until_ready()
                deadline = time.monotonic() + PATIENCE_S  # that took as long as it took
            elif how != b"busy":
                yield token, how, found
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
        raise TaskConflict(
            f"{what} has been under change by other processes for {PATIENCE_S:.0f} s; "
            "see which still run, then try again"
        )

    async def _append(self, key: str, body: bytes) -> None:
        if self._journal is not None:
            await self._journal.append(key, body)

    async def _unlock(self, lock: str, token: str) -> bool:
        """Release the lock. False when it was not this writer's any more."""
        return bool(await self._client.run(_UNLOCK, [lock], [token]))

    @contextlib.asynccontextmanager
    async def _unlocked_on_error(self, lock: str, token: str) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            with contextlib.suppress(Unreachable):  # then the lock ends by itself
                await self._unlock(lock, token)
            raise


def unended() -> AssertionError:
    """Make the error for the end of a loop that only a return or an error ends."""
    return AssertionError("attempts end with a return or an error")
