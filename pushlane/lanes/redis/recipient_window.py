"""The recipient windows on Redis: a key for each mark, with its token and whose turn it is.

Redis forgets them after the window. Marks that Redis loses cannot be rebuilt: duplicates of pushes
sent before are then sent once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pushlane.backends.redis.client import NOW, RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import RecipientTurn
from pushlane.lanes.redis.day_counts import RedisDayCounts
from pushlane.model.recipients import CapDay, Mark

MARKS_A_CALL = 2_000  # a few ms during which Redis serves nobody else

T = TypeVar("T")

# A key holds the token; while somebody is in its turn also until when, and who.
_READ = (
    NOW
    + """
local function read(key)
  local kept = redis.call('GET', key)
  if not kept then return nil end
  local token, until_ms, holder = string.match(kept, '^(%S+) (%d+) (.*)$')
  if token and tonumber(until_ms) > now_ms then return token, until_ms, holder end
  return token or kept
end
local function write(key, window_ms, token, until_ms, holder)
  local body = token
  if holder then body = token .. ' ' .. until_ms .. ' ' .. holder end
  redis.call('SET', key, body, 'PX', window_ms)
end
"""
)

_FIRST = """
local answers = {}
for at, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[at + 1], 'PX', ARGV[1], 'NX')
  answers[at] = redis.call('GET', key) == ARGV[at + 1] and 1 or 0
end
return answers
"""

_ANNOUNCE = (
    _READ
    + """
for at, key in ipairs(KEYS) do
  local mine = ARGV[at + 1]
  local token, until_ms, holder = read(key)
  if not token or token < mine then token = mine end
  write(key, ARGV[1], token, until_ms, holder)
end
"""
)

_ENTER = (
    _READ
    + """
local ends_ms = string.format('%.0f', now_ms + ARGV[3])
for at, key in ipairs(KEYS) do
  local mine = ARGV[at + 3]
  local token, until_ms, holder = read(key)
  if not token or token < mine then write(key, ARGV[1], mine, until_ms, holder) end
end
local answers = {}
for at, key in ipairs(KEYS) do
  local mine = ARGV[at + 3]
  local me = ARGV[2] .. ' ' .. mine
  local token, until_ms, holder = read(key)
  if token ~= mine then answers[at] = 'over'
  elseif holder and holder ~= me then answers[at] = 'busy'
  else
    write(key, ARGV[1], mine, ends_ms, me)
    answers[at] = 'go'
  end
end
return answers
"""
)

_LEAVE = (
    _READ
    + """
for at, key in ipairs(KEYS) do
  local token, until_ms, holder = read(key)
  if holder == ARGV[2] .. ' ' .. ARGV[at + 2] then write(key, ARGV[1], token) end
end
"""
)


class RedisRecipientWindows:
    """See `core.ports.RecipientWindows`."""

    def __init__(self, client: RedisClient, keys: Keys, window_s: float) -> None:
        self._client = client
        self._keys = keys
        self._window_ms = max(1, round(window_s * 1000))
        self._counts = RedisDayCounts(client, keys)

    async def first(self, marks: Sequence[Mark]) -> list[bool]:
        return await self._run(_FIRST, marks, [self._window_ms], bool)

    async def announce(self, marks: Sequence[Mark]) -> None:
        await self._run(_ANNOUNCE, marks, [self._window_ms], None)

    async def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> list[RecipientTurn]:
        ttl_ms = max(1, round(ttl_s * 1000))
        args: list[str | bytes | int] = [self._window_ms + ttl_ms, owner, ttl_ms]
        return await self._run(_ENTER, marks, args, lambda word: RecipientTurn(word.decode()))

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        await self._run(_LEAVE, marks, [self._window_ms, owner], None)

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        return await self._counts.count(on, keys)

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        await self._counts.uncount(on, keys)

    async def _run(
        self,
        script: str,
        marks: Sequence[Mark],
        args: Sequence[str | bytes | int],
        read_one: Callable[[Any], T] | None,
    ) -> list[T]:
        """Return one answer a mark, unless the script gives none."""

        def read(answer: Any) -> list[T]:
            if read_one is None:
                return []
            if len(answer) != len(some):
                raise ValueError("not an answer for each mark")
            return [read_one(one) for one in answer]

        answers: list[T] = []
        for some in paged(marks, MARKS_A_CALL):
            keys = [self._keys.mark(mark.key) for mark in some]
            tokens = [mark.token for mark in some]
            answers += await self._client.run(script, keys, [*args, *tokens], read=read)
        return answers
