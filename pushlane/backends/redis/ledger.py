"""The ledger port on Redis: a key for each push that is claimed or confirmed; Redis forgets them.

A claim is as durable as Redis is set up to be. What Redis loses cannot be rebuilt: pushes that are
still to be acked then may be delivered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pushlane.backends.guard_ports import ClaimResult
from pushlane.backends.redis.client import NOW, Arg, OnRedis, RedisClient, words
from pushlane.backends.redis.keys import Keys
from pushlane.core.push import Push
from pushlane.util.texts import paged

PUSHES_A_CALL = 2_000  # a few ms during which Redis serves nobody else

# A key holds nothing when its push is confirmed, or else: end of the claim, its result, its owner.
# A value of another form is a newer version's claim: held, and never written over.
_CLAIM = NOW
_CLAIM += """
local until_ms = string.format('%.0f', now_ms + ARGV[2])
local kept = redis.call('MGET', unpack(KEYS))
local results = {}
for at, key in ipairs(KEYS) do
  local result = 'won'
  if kept[at] == '' then
    result = 'confirmed'
  elseif kept[at] then
    local ends_ms, got, owner = string.match(kept[at], '^(%d+) (%a+) (.*)$')
    if not owner then result = 'held'
    elseif owner == ARGV[1] then result = got
    elseif tonumber(ends_ms) > now_ms then result = 'held'
    else result = 'unknown' end
  end
  if result == 'won' or result == 'unknown' then
    redis.call('SET', key, until_ms .. ' ' .. result .. ' ' .. ARGV[1], 'PX', ARGV[2] + ARGV[3])
  end
  results[at] = result
end
return results
"""

_CONFIRM = """
for _, key in ipairs(KEYS) do redis.call('SET', key, '', 'PX', ARGV[1]) end
"""

_RELEASE_CLAIMS = """
local kept = redis.call('MGET', unpack(KEYS))
for at, key in ipairs(KEYS) do
  if kept[at] and string.match(kept[at], '^%d+ %a+ (.*)$') == ARGV[1] then
    redis.call('DEL', key)
  end
end
"""


def _results(count: int, answer: Any) -> list[ClaimResult]:
    results = [ClaimResult(word.decode()) for word in words(answer)]
    if len(results) != count:
        raise ValueError("not a result for each push")
    return results


class RedisLedger(OnRedis):
    """See `guard_ports.Ledger`."""

    def __init__(self, client: RedisClient, keys: Keys, window_s: float) -> None:
        super().__init__(client, keys)
        self._window_ms = max(1, round(window_s * 1000))

    async def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> list[ClaimResult]:
        args: list[Arg] = [owner, max(1, round(ttl_s * 1000)), self._window_ms]
        results: list[ClaimResult] = []
        for keys in self._calls(pushes):
            read = partial(_results, len(keys))
            results += await self._client.run(_CLAIM, keys, args, read=read)
        return results

    async def confirm(self, pushes: Sequence[Push]) -> None:
        for keys in self._calls(pushes):
            await self._client.run(_CONFIRM, keys, [self._window_ms])

    async def release(self, pushes: Sequence[Push], owner: str) -> None:
        for keys in self._calls(pushes):
            await self._client.run(_RELEASE_CLAIMS, keys, [owner])

    def _calls(self, pushes: Sequence[Push]) -> Iterator[Sequence[str]]:
        keys = [self._keys.claim(push.push_id) for push in pushes]
        return paged(keys, PUSHES_A_CALL)
