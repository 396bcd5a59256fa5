"""What was counted against frequency caps, on Redis: a key for each recipient's key and day.

A value holds the tokens of its pushes as `TOKEN:LEVEL `, one after another. Redis forgets it when
the day is over everywhere. What Redis loses is not counted any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pushlane.backends.redis.client import RedisClient, words
from pushlane.backends.redis.keys import Keys
from pushlane.model.recipients import CapDay

TOKENS_A_CALL = 2_000  # a few ms during which Redis serves nobody else

# Nearly always nothing was counted with a key.
_COUNT = """
local refused = {}
local mark = ':' .. ARGV[1]
for at, key in ipairs(KEYS) do
  local token = ARGV[at + 4]
  local entry = token .. mark .. ' '
  if not redis.call('SET', key, entry, 'NX', 'PXAT', ARGV[4]) then
    local kept = ' ' .. redis.call('GET', key)
    if not string.find(kept, ' ' .. token .. ':', 1, true) then
      local _, in_all = string.gsub(kept, ':', '')
      local _, of_level = string.gsub(kept, mark, '')
      if in_all < tonumber(ARGV[3]) and of_level < tonumber(ARGV[2]) then
        redis.call('APPEND', key, entry)
      else
        refused[#refused + 1] = token
      end
    end
  end
end
return refused
"""

_UNCOUNT = """
for at, key in ipairs(KEYS) do
  local kept = ' ' .. (redis.call('GET', key) or '')
  local entry = ' ' .. ARGV[at + 1] .. ':' .. ARGV[1] .. ' '
  local from, to = string.find(kept, entry, 1, true)
  if from then
    local rest = string.sub(kept, 2, from) .. string.sub(kept, to + 1)
    if rest == '' then redis.call('DEL', key) else redis.call('SET', key, rest, 'KEEPTTL') end
  end
end
"""


class RedisDayCounts:
    """The part of `core.ports.RecipientWindows` that counts."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        if min(on.cap) <= 0:
            return list(keys)

        def read(answer: Any) -> list[str]:
            refused = [word.decode() for word in words(answer)]
            if not keys.keys() >= set(refused):
                raise ValueError("an answer about other pushes")
            return refused

        refused: list[str] = []
        args: list[str | bytes | int] = [on.level[0], *on.cap, on.over_at_ms]
        for names, tokens in self._calls(on, keys):
            refused += await self._client.run(_COUNT, names, [*args, *tokens], read=read)
        return refused

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        for names, tokens in self._calls(on, keys):
            await self._client.run(_UNCOUNT, names, [on.level[0], *tokens])

    def _calls(self, on: CapDay, keys: Mapping[str, int]) -> Iterator[tuple[list[str], list[str]]]:
        tokens = list(keys)
        names = [self._keys.day_count(on.day, key) for key in keys.values()]
        for start in range(0, len(tokens), TOKENS_A_CALL):
            end = start + TOKENS_A_CALL
            yield names[start:end], tokens[start:end]
