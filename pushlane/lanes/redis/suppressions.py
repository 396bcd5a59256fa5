"""The suppressions on Redis: many small sets of hashes a scope, and a hash of their sizes.

Redis keeps a set of up to 512 whole numbers as those numbers alone, 8 bytes each; so hashes are
spread over sets by their last five digits. What Redis loses cannot be rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.lanes.suppression import SuppressionScope

HASHES_A_CALL = 5_000  # a few ms during which Redis serves nobody else
_SETS = 100_000
_SETS_A_CALL = 2_000

# Nothing is decided here: Lua spreads a call's thousands of hashes over their sets, and counts them
# in the same step. As cells (`backends.cells`) each would be a step by itself.
_CHANGE = """
local changed = 0
for at = 3, #ARGV do
  local hash = ARGV[at]
  changed = changed + redis.call(ARGV[1], KEYS[1] .. string.sub(hash, -5), hash)
end
if changed > 0 then
  local left = redis.call('HINCRBY', KEYS[2], ARGV[2], ARGV[1] == 'SADD' and changed or -changed)
  if left <= 0 then redis.call('HDEL', KEYS[2], ARGV[2]) end
end
return changed
"""

_FIND = """
local found = {}
for _, hash in ipairs(ARGV) do
  if redis.call('SISMEMBER', KEYS[1] .. string.sub(hash, -5), hash) == 1 then
    found[#found + 1] = hash
  end
end
return found
"""

_CLEAR = """
local gone = 0
for at = 2, #ARGV do
  local key = KEYS[1] .. ARGV[at]
  gone = gone + redis.call('SCARD', key)
  redis.call('UNLINK', key)
end
if gone > 0 and redis.call('HINCRBY', KEYS[2], ARGV[1], -gone) <= 0 then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return gone
"""


class RedisSuppressions:
    """See `core.ports.Suppressions`."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def add(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return await self._change("SADD", scope, hashes)

    async def remove(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return await self._change("SREM", scope, hashes)

    async def clear(self, scope: SuppressionScope) -> None:
        """Remove some of the sets at a time, so that others are not kept waiting."""
        names = list(dict.fromkeys(_set_names()))
        for start in range(0, len(names), _SETS_A_CALL):
            args: list[str | bytes | int] = [str(scope), *names[start : start + _SETS_A_CALL]]
            await self._client.run(_CLEAR, self._places(scope), args, read=int)

    async def counts(self) -> dict[SuppressionScope, int]:
        return await self._client.call("HGETALL", self._keys.suppressions, read=_sizes)

    async def find(
        self, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> dict[SuppressionScope, list[int]]:
        return {scope: await self._found(scope, hashes) for scope, hashes in asked.items()}

    async def _found(self, scope: SuppressionScope, hashes: Sequence[int]) -> list[int]:
        found: list[int] = []
        for start in range(0, len(hashes), HASHES_A_CALL):
            some = hashes[start : start + HASHES_A_CALL]
            found += await self._client.run(_FIND, self._places(scope), some, read=_numbers)
        return found

    async def _change(self, how: str, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        changed = 0
        for start in range(0, len(hashes), HASHES_A_CALL):
            some = hashes[start : start + HASHES_A_CALL]
            args: list[str | bytes | int] = [how, str(scope), *some]
            changed += await self._client.run(_CHANGE, self._places(scope), args, read=int)
        return changed

    def _places(self, scope: SuppressionScope) -> list[str]:
        return [self._keys.suppressed(str(scope)), self._keys.suppressions]


def _set_names() -> list[str]:
    """Return the ends of the names of all sets: those of short hashes too, with their signs."""
    short = [str(number) for number in range(-9_999, 10_000)]
    return [f"{number:05}" for number in range(_SETS)] + short


def _numbers(answer: Any) -> list[int]:
    return list(map(int, answer))


def _sizes(answer: Any) -> dict[SuppressionScope, int]:
    """Read what a Redis of either protocol answers: pairs, or a mapping."""
    pairs = (
        answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    )
    return {SuppressionScope.parse(name.decode()): int(size) for name, size in pairs}
