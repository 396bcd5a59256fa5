"""The presence port on Redis: a key with an expiry for each process, and an index of them.

The index drops expired processes whenever anybody announces or looks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.lanes.presence import Process, decode_all, encode, newer_than_ours
from pushlane.lanes.redis.client import NOW, RedisClient, bodies_only, words
from pushlane.lanes.redis.keys import Keys

_PRUNE = NOW + "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_ms))\n"

_ANNOUNCE = (
    _PRUNE
    + """
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms + ARGV[3]), ARGV[1])
"""
)

_LIST = _PRUNE + "return redis.call('ZRANGE', KEYS[1], 0, -1)"

_LEAVE = """
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
"""


class RedisPresence:
    """See `lanes.ports.Presence`."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def announce(self, process: Process, ttl_s: float) -> None:
        keys = [self._keys.processes, self._keys.process(process.id)]
        ttl_ms = max(1, round(ttl_s * 1000))
        await self._client.run(_ANNOUNCE, keys, [process.id, encode(process), ttl_ms])

    async def list(self) -> list[Process]:
        return decode_all(await self._bodies())

    async def newer(self) -> Sequence[str]:
        return newer_than_ours(await self._bodies())

    async def _bodies(self) -> Sequence[bytes]:
        ids = await self._client.run(_LIST, [self._keys.processes], read=words)
        if not ids:
            return []
        keys = [self._keys.process(process_id.decode()) for process_id in ids]
        bodies = await self._client.call("MGET", *keys, read=bodies_only)
        return [body for body in bodies if body]

    async def leave(self, process_id: str) -> None:
        keys = [self._keys.processes, self._keys.process(process_id)]
        await self._client.run(_LEAVE, keys, [process_id])
