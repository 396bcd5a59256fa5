"""The limiter port on Redis: a key each for a rate, for held places and for a total.

Time is the server's. What Redis loses cannot be rebuilt: a rate begins with one burst, places are
known again at the next heartbeat, and totals begin again at what live processes have spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pushlane.backends.guard_ports import (
    PlaceAsk,
    TokenAsk,
    TokenGrant,
    TokenReturn,
    TotalAsk,
    Usage,
)
from pushlane.backends.redis.client import NOW, Arg, OnRedis, whole_numbers, words
from pushlane.util.texts import paged

ASKS_A_CALL = 500  # a few ms during which Redis serves nobody else

_DAY_MS = 24 * 3600 * 1000

# What is granted is decided here, not over cells (`backends.cells`): each grant changes the key, so
# of eight processes that compare and set it one fails again and again. The longest ask of such took
# 3.3 s, and 0.06 s in one step.

# A key holds the tokens and the microsecond of that, and goes when all have gathered again.
_TOKENS = """
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local answers = {}
for at, key in ipairs(KEYS) do
  local rate, burst = tonumber(ARGV[4 * at - 3]), tonumber(ARGV[4 * at - 2])
  local wanted, least = tonumber(ARGV[4 * at - 1]), tonumber(ARGV[4 * at])
  local tokens = burst
  local kept = redis.call('GET', key)
  if kept then
    local left, at_us = string.match(kept, '^(%S+) (%d+)$')
    local passed_s = math.max(0, now_us - tonumber(at_us)) / 1000000
    tokens = math.min(burst, tonumber(left) + passed_s * rate)
  end
  local enough, granted, wait_s = math.min(least, burst), 0, 0
  if tokens < enough then
    wait_s = (enough - tokens) / rate
  else
    granted = math.max(least, math.min(wanted, tokens))
    tokens = tokens - granted
  end
  local full_ms = math.ceil((burst - tokens) / rate * 1000) + 1000
  redis.call('SET', key, string.format('%.17g %.0f', tokens, now_us), 'PX',
    string.format('%.0f', math.min(full_ms, 1e15)))
  answers[2 * at - 1] = string.format('%.17g', granted)
  answers[2 * at] = string.format('%.17g', wait_s)
end
return answers
"""

_RETURN = """
for at, key in ipairs(KEYS) do
  local kept = redis.call('GET', key)
  if kept then
    local left, at_us = string.match(kept, '^(%S+) (%d+)$')
    local burst, tokens = tonumber(ARGV[2 * at - 1]), tonumber(left)
    tokens = math.max(tokens, math.min(burst, tokens + tonumber(ARGV[2 * at])))
    redis.call('SET', key, string.format('%.17g ', tokens) .. at_us, 'KEEPTTL')
  end
end
"""

# A field is a holder: places held, places wanted, since when it waits, and the end of its time.
_PLACES = NOW
_PLACES += """
local me, ttl_ms = ARGV[1], tonumber(ARGV[2])
local answers = {}
for at, key in ipairs(KEYS) do
  local cap, wanted = tonumber(ARGV[3 * at]), tonumber(ARGV[3 * at + 1])
  local in_use = tonumber(ARGV[3 * at + 2])
  local others, waiting, since_ms = {}, 0, now_ms
  local kept = redis.call('HGETALL', key)
  for i = 1, #kept, 2 do
    local held, wants, since, until_ms = string.match(kept[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
    held, wants, since = tonumber(held), tonumber(wants), tonumber(since)
    if tonumber(until_ms) <= now_ms then redis.call('HDEL', key, kept[i])
    elseif kept[i] == me then
      if held == 0 then since_ms = since end
    else
      others[#others + 1] = {held, wants, since}
      if wants > 0 then waiting = waiting + 1 end
    end
  end
  local share, taken = math.floor(cap / (1 + waiting)), 0
  for _, one in ipairs(others) do
    local due = math.min(one[2], share)
    if share == 0 and one[1] == 0 and one[2] > 0 and one[3] < since_ms then due = 1 end
    taken = taken + math.max(one[1], due)
  end
  local places = math.max(0, math.min(wanted, cap - taken))
  local held = math.max(in_use, places)
  if held > 0 then since_ms = now_ms end
  redis.call('HSET', key, me,
    string.format('%.0f %.0f %.0f %.0f', held, wanted, since_ms, now_ms + ttl_ms))
  local left_ms = redis.call('PTTL', key)
  if left_ms < ttl_ms then redis.call('PEXPIRE', key, ttl_ms) end
  answers[at] = places
end
return answers
"""

# A field is a total's name, its day and a holder: what that was allotted, and when it last asked.
# Holders that were not heard of for two days are gone: their parts are added up under no name.
_TOTALS = NOW
_TOTALS += """
local gone_ms = now_ms - tonumber(ARGV[1])
local stamp = string.format(' %.0f', now_ms)
local answers = {}
for at, key in ipairs(KEYS) do
  local tally, me, limit = ARGV[5 * at - 3], ARGV[5 * at - 2], tonumber(ARGV[5 * at - 1])
  local used, wanted = tonumber(ARGV[5 * at]), tonumber(ARGV[5 * at + 1])
  local others, gone = 0, 0
  local kept = redis.call('HGETALL', key)
  for i = 1, #kept, 2 do
    local name, day, holder = string.match(kept[i], '^(%S+ (%S*)) (.*)$')
    local amount, at_ms = string.match(kept[i + 1], '^(%S+) (%d+)$')
    amount = tonumber(amount)
    local is_mine, is_gone = name == tally, tonumber(at_ms) < gone_ms and holder ~= me
    if is_mine and holder ~= me then others = others + amount end
    if is_gone and day ~= '' then redis.call('HDEL', key, kept[i])
    elseif is_gone and is_mine and holder ~= '' then
      gone = gone + amount
      redis.call('HDEL', key, kept[i])
    end
  end
  if gone > 0 then
    local before = string.match(redis.call('HGET', key, tally .. ' ') or '0 0', '^(%S+) ')
    redis.call('HSET', key, tally .. ' ', string.format('%.17g', tonumber(before) + gone) .. stamp)
  end
  local allotted = math.max(used, math.min(wanted, limit - others))
  redis.call('HSET', key, tally .. ' ' .. me, string.format('%.17g', allotted) .. stamp)
  answers[at] = string.format('%.17g', allotted)
end
return answers
"""

# For each subject its places and its totals: the places held, then names and what was spent.
_USAGE = NOW
_USAGE += """
local answers = {}
for at = 1, #KEYS / 2 do
  local in_flight = 0
  for _, one in ipairs(redis.call('HVALS', KEYS[2 * at - 1])) do
    local held, until_ms = string.match(one, '^(%d+) %d+ %d+ (%d+)$')
    if tonumber(until_ms) > now_ms then in_flight = in_flight + tonumber(held) end
  end
  local spent = {}
  local kept = redis.call('HGETALL', KEYS[2 * at])
  for i = 1, #kept, 2 do
    local what, day = string.match(kept[i], '^(%S+) (%S*) ')
    if day == '' or day == ARGV[1] then
      spent[what] = (spent[what] or 0) + tonumber(string.match(kept[i + 1], '^(%S+) '))
    end
  end
  local answer = {string.format('%.0f', in_flight)}
  for what, amount in pairs(spent) do
    answer[#answer + 1] = what
    answer[#answer + 1] = string.format('%.17g', amount)
  end
  answers[at] = answer
end
return answers
"""


class RedisLimiter(OnRedis):
    """See `guard_ports.Limiter`."""

    async def lease_tokens(self, asks: Sequence[TokenAsk]) -> list[TokenGrant]:
        def read(answer: Any) -> list[TokenGrant]:
            numbers = _numbers(answer)
            return [TokenGrant(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]

        grants: list[TokenGrant] = []
        for some in paged(asks, ASKS_A_CALL):
            args = [_text(number) for ask in some for number in ask[1:]]
            keys = [self._keys.rate(ask.subject) for ask in some]
            grants += await self._client.run(_TOKENS, keys, args, read=read)
        return grants

    async def return_tokens(self, returns: Sequence[TokenReturn]) -> None:
        for some in paged(returns, ASKS_A_CALL):
            args = [_text(number) for one in some for number in one[1:]]
            await self._client.run(_RETURN, [self._keys.rate(one.subject) for one in some], args)

    async def hold_places(self, asks: Sequence[PlaceAsk], holder: str, ttl_s: float) -> list[int]:
        places: list[int] = []
        for some in paged(asks, ASKS_A_CALL):
            keys = [self._keys.places(ask.subject) for ask in some]
            args: list[Arg] = [holder, max(1, round(ttl_s * 1000))]
            for ask in some:
                args += [ask.cap, ask.wanted, ask.in_use]
            places += await self._client.run(_PLACES, keys, args, read=whole_numbers)
        return places

    async def lease_totals(self, asks: Sequence[TotalAsk]) -> list[float]:
        totals: list[float] = []
        for some in paged(asks, ASKS_A_CALL):
            keys = [self._keys.tallies(ask.tally.subject) for ask in some]
            args: list[Arg] = [2 * _DAY_MS]
            for ask in some:
                args += [f"{ask.tally.what} {ask.tally.day}", ask.holder]
                args += map(_text, (ask.limit, ask.used, ask.wanted))
            totals += await self._client.run(_TOTALS, keys, args, read=_numbers)
        return totals

    async def usage(self, subjects: Sequence[str], day: str) -> list[Usage]:
        found: list[Usage] = []
        for some in paged(subjects, ASKS_A_CALL):
            keys = [key(one) for one in some for key in (self._keys.places, self._keys.tallies)]
            found += await self._client.run(_USAGE, keys, [day], read=_usages)
        return found

    async def forget(self, subjects: Sequence[str]) -> None:
        names = self._keys
        for some in paged(subjects, ASKS_A_CALL):
            keys = [key(one) for one in some for key in (names.rate, names.places, names.tallies)]
            await self._client.call("DEL", *keys)


def _text(number: float) -> str:
    return repr(float(number))


def _numbers(answer: Any) -> list[float]:
    return [float(word) for word in words(answer)]


def _usages(answer: Any) -> list[Usage]:
    found = []
    for in_flight, *spent in answer:
        pairs = zip(spent[::2], spent[1::2], strict=True)
        found.append(Usage(int(in_flight), {what.decode(): float(sum_) for what, sum_ in pairs}))
    return found
