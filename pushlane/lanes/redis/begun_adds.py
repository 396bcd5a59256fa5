"""Adds under a key that began and never ended, since their process or the journal was lost."""

from __future__ import annotations

import secrets

from pushlane.core.errors import DamagedRecord, UnknownFormat
from pushlane.core.task import now_ms
from pushlane.lanes.redis.locks import LOCK, LOCK_MS, LockedWrites
from pushlane.model.task_bytes import decode, glimpse

KEPT_MS = 7 * 24 * 3600 * 1000
"""An add that began so long ago is given up: as long as half-made tasks are kept by default."""

_LOOK = (
    LOCK
    + """
if redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] then return 0 end
return lock(KEYS[1], ARGV[1], ARGV[2]) and 1 or 0
"""
)

_DROP = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return redis.call('HDEL', KEYS[2], ARGV[2])
"""


class BegunAdds(LockedWrites):
    """Gives up old ones, so that nothing of them stays."""

    async def drop_old(self) -> None:
        """Drop those that began over KEPT_MS ago; their ids may be in the journal."""
        before_ms = now_ms() - KEPT_MS
        scan = self._client.redis.hscan_iter(self._keys.adding)
        with self._client.reach():
            found = [(key, body) async for key, body in scan]
        for key, body in found:
            if _is_given_up(key.decode(), body, before_ms):
                await self._drop(key.decode(), body)

    async def _drop(self, key: str, body: bytes) -> None:
        """Drop one, unless it is going on just now."""
        keys = [self._keys.lock(f"key:{key}"), self._keys.adding]
        token = secrets.token_hex(8)
        if not await self._client.run(_LOOK, keys, [token, LOCK_MS, key, body]):
            return
        async with self._unlocked_on_error(keys[0], token):
            if begun_id := glimpse(body).id:
                await self._append(begun_id, b"")
            await self._client.run(_DROP, keys, [token, key])


def _is_given_up(key: str, body: bytes, before_ms: int) -> bool:
    try:
        return decode(f"of key {key!r}", body).created_at_ms < before_ms
    except DamagedRecord:  # nobody can go on with it
        return True
    except UnknownFormat:  # a newer version has begun it, and gives it up itself
        return False
