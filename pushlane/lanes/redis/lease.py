"""The lease port on Redis: one holder a name, with a number that only grows.

The holder is told by the server's clock alone. It never takes a lease away from a live holder.
"""

from __future__ import annotations

from typing import Any

from pushlane.lanes.ports import Grant
from pushlane.lanes.redis.client import NOW, RedisClient
from pushlane.lanes.redis.keys import Keys

# A fence is never below the server's time in ms: it keeps growing even when Redis has lost
# everything, or was set back to an older state; so the last one need not be kept for ever.
_ACQUIRE = (
    NOW
    + """
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
)

_RELEASE = """
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""

_FENCE_KEPT_MS = 24 * 3600 * 1000


class RedisLease:
    """See `lanes.ports.Lease`."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        ttl_ms = max(1, round(ttl_s * 1000))
        keys = [self._keys.lease(name), self._keys.fence(name)]
        return await self._client.run(_ACQUIRE, keys, [holder, ttl_ms, _FENCE_KEPT_MS], read=_grant)

    async def is_held(self, name: str) -> bool:
        return bool(await self._client.call("EXISTS", self._keys.lease(name)))

    async def release(self, name: str, holder: str) -> None:
        await self._client.run(_RELEASE, [self._keys.lease(name)], [holder])


def _grant(answer: Any) -> Grant | None:
    if answer is None:
        return None
    number, at_ms = answer
    return Grant(int(number), int(at_ms))
