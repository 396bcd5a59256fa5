"""The ports about recipients, on Redis: windows, counts of days, suppressions, dead addresses.

None of it can be rebuilt when Redis loses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pushlane.backends.guard_ports import RecipientTurn
from pushlane.backends.redis.client import (
    NOW,
    Arg,
    OnRedis,
    Read,
    RedisClient,
    mapping,
    whole_numbers,
    words,
)
from pushlane.backends.redis.keys import Keys
from pushlane.model.recipients import (
    AddressDeath,
    CapDay,
    DeadAddress,
    DeadAddressPage,
    DeadAddressQuery,
    Mark,
    SuppressionScope,
)
from pushlane.util.texts import paged

TOKENS_A_CALL = 2_000  # a few ms during which Redis serves nobody else

# A key of a recipient's key and day holds the tokens of its pushes as `TOKEN:LEVEL `, one after
# another, until the day is over everywhere. Nearly always nothing was counted with a key.
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


MARKS_A_CALL = 2_000  # a few ms during which Redis serves nobody else

T = TypeVar("T")

# A key holds the token; while somebody is in its turn also until when, and who.
_READ = NOW
_READ += """
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

_FIRST = """
local answers = {}
for at, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[at + 1], 'PX', ARGV[1], 'NX')
  answers[at] = redis.call('GET', key) == ARGV[at + 1] and 1 or 0
end
return answers
"""

_ANNOUNCE = _READ
_ANNOUNCE += """
for at, key in ipairs(KEYS) do
  local mine = ARGV[at + 1]
  local token, until_ms, holder = read(key)
  if not token or token < mine then token = mine end
  write(key, ARGV[1], token, until_ms, holder)
end
"""

_ENTER = _READ
_ENTER += """
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

_LEAVE = _READ
_LEAVE += """
for at, key in ipairs(KEYS) do
  local token, until_ms, holder = read(key)
  if holder == ARGV[2] .. ' ' .. ARGV[at + 2] then write(key, ARGV[1], token) end
end
"""


class RedisRecipientWindows(OnRedis):
    """See `guard_ports.RecipientWindows`: a key for each mark, and one for each recipient and day.

    Redis forgets them after the window, and after the day. Duplicates of pushes whose marks it
    loses are sent once more.
    """

    def __init__(self, client: RedisClient, keys: Keys, window_s: float) -> None:
        super().__init__(client, keys)
        self._window_ms = max(1, round(window_s * 1000))

    async def first(self, marks: Sequence[Mark], window_s: float | None = None) -> list[bool]:
        window_ms = self._window_ms if window_s is None else max(1, round(window_s * 1000))
        return await self._run(_FIRST, marks, [window_ms], bool)

    async def announce(self, marks: Sequence[Mark]) -> None:
        await self._run(_ANNOUNCE, marks, [self._window_ms], None)

    async def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> list[RecipientTurn]:
        ttl_ms = max(1, round(ttl_s * 1000))
        args: list[Arg] = [self._window_ms + ttl_ms, owner, ttl_ms]
        return await self._run(_ENTER, marks, args, lambda word: RecipientTurn(word.decode()))

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        await self._run(_LEAVE, marks, [self._window_ms, owner], None)

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        if min(on.cap) <= 0:
            return list(keys)

        def read(answer: Any) -> list[str]:
            refused = [word.decode() for word in words(answer)]
            if not keys.keys() >= set(refused):
                raise ValueError("an answer about other pushes")
            return refused

        refused: list[str] = []
        args: list[Arg] = [on.level[0], *on.cap, on.over_at_ms]
        for names, tokens in self._calls(on, keys):
            refused += await self._client.run(_COUNT, names, [*args, *tokens], read=read)
        return refused

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        for names, tokens in self._calls(on, keys):
            await self._client.run(_UNCOUNT, names, [on.level[0], *tokens])

    def _calls(self, on: CapDay, keys: Mapping[str, int]) -> Iterator[tuple[list[str], list[str]]]:
        for some in paged([*keys.items()], TOKENS_A_CALL):
            yield [self._keys.day_count(on.day, key) for _, key in some], [one for one, _ in some]

    async def _run(
        self, script: str, marks: Sequence[Mark], args: Sequence[Arg], read_one: Read[T] | None
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


class RedisSuppressions(OnRedis):
    """See `guard_ports.Suppressions`: many small sets of hashes a scope, and a hash of their sizes.

    Redis keeps a set of up to 512 whole numbers as those numbers alone, 8 bytes each; so hashes are
    spread over sets by their last five digits.
    """

    async def add(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return await self._change("SADD", scope, hashes)

    async def remove(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return await self._change("SREM", scope, hashes)

    async def clear(self, scope: SuppressionScope) -> None:
        """Remove some of the sets at a time, so that others are not kept waiting."""
        for names in paged([*dict.fromkeys(_set_names())], _SETS_A_CALL):
            await self._client.run(_CLEAR, self._places(scope), [str(scope), *names], read=int)

    async def counts(self) -> dict[SuppressionScope, int]:
        return await self._client.call("HGETALL", self._keys.suppressions, read=_sizes)

    async def find(
        self, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> dict[SuppressionScope, list[int]]:
        return {scope: await self._found(scope, hashes) for scope, hashes in asked.items()}

    async def _found(self, scope: SuppressionScope, hashes: Sequence[int]) -> list[int]:
        found: list[int] = []
        for some in paged(hashes, HASHES_A_CALL):
            found += await self._client.run(_FIND, self._places(scope), some, read=whole_numbers)
        return found

    async def _change(self, how: str, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        changed = 0
        for some in paged(hashes, HASHES_A_CALL):
            args: list[Arg] = [how, str(scope), *some]
            changed += await self._client.run(_CHANGE, self._places(scope), args, read=int)
        return changed

    def _places(self, scope: SuppressionScope) -> list[str]:
        return [self._keys.suppressed(str(scope)), self._keys.suppressions]


def _set_names() -> list[str]:
    """Return the ends of the names of all sets: those of short hashes too, with their signs."""
    short = [str(number) for number in range(-9_999, 10_000)]
    return [f"{number:05}" for number in range(_SETS)] + short


def _sizes(answer: Any) -> dict[SuppressionScope, int]:
    sizes = mapping(answer).items()
    return {SuppressionScope.parse(name.decode()): int(size) for name, size in sizes}


PAGE = 500
ADDRESSES_A_CALL = 1_000  # a few ms during which Redis serves nobody else

# Whether an address was registered since it died is decided here, not over cells
# (`backends.cells`): a call has a thousand of them, each in four keys, and one that is registered
# between look and change would have all decided again.

# Numbers are written by hand: Lua would show those of 16 digits rounded.
_RECORD = """
local dead, ages, registered, sets, sizes = unpack(KEYS)
local sink, scope, at = ARGV[1], ARGV[2], tonumber(ARGV[3]) * 1000
local newest = redis.call('ZREVRANGEBYSCORE', ages, string.format('(%.0f', at + 60000000),
  string.format('%.0f', at), 'WITHSCORES', 'LIMIT', 0, 1)
local free = newest[2] and tonumber(newest[2]) + 1 or at
local new, suppressed = {}, 0
for place = 4, #ARGV, 3 do
  local hash = ARGV[place]
  local member = hash .. ':' .. sink
  local alive = redis.call('ZSCORE', registered, member)
  if not alive or tonumber(alive) < tonumber(ARGV[place + 1]) then
    suppressed = suppressed + redis.call('SADD', sets .. string.sub(hash, -5), hash)
    if redis.call('HSETNX', dead, member, ARGV[place + 2]) == 1 then
      redis.call('ZADD', ages, string.format('%.0f', free), member)
      free = free + 1
      new[#new + 1] = hash
    end
  end
end
if suppressed > 0 then redis.call('HINCRBY', sizes, scope, suppressed) end
return new
"""

_REGISTER = """
local dead, ages, registered, sets, sizes = unpack(KEYS)
local sink, scope, at = ARGV[1], ARGV[2], ARGV[3]
local changed = 0
for place = 4, #ARGV do
  local hash = ARGV[place]
  local member = hash .. ':' .. sink
  redis.call('HDEL', dead, member)
  redis.call('ZREM', ages, member)
  local before = redis.call('ZSCORE', registered, member)
  if not before or tonumber(before) < tonumber(at) then
    redis.call('ZADD', registered, at, member)
  end
  changed = changed + redis.call('SREM', sets .. string.sub(hash, -5), hash)
end
if changed > 0 and redis.call('HINCRBY', sizes, scope, -changed) <= 0 then
  redis.call('HDEL', sizes, scope)
end
return changed
"""

_PAGE = """
local found = redis.call(ARGV[1], KEYS[2], ARGV[2], ARGV[3], 'WITHSCORES', 'LIMIT', 0, ARGV[4])
local page = {}
for place = 1, #found, 2 do
  page[#page + 1] = found[place]
  page[#page + 1] = found[place + 1]
  page[#page + 1] = redis.call('HGET', KEYS[1], found[place])
end
return page
"""

_FORGET = """
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(old) do
  redis.call('HDEL', KEYS[1], member)
  redis.call('ZREM', KEYS[2], member)
end
local alive = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(alive) do redis.call('ZREM', KEYS[3], member) end
return #old + #alive
"""

_Record = tuple[int, str, str, str]  # died_at_ms, reason, app, sealed
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Record).decode


class RedisDeadAddresses(OnRedis):
    """See `guard_ports.DeadAddresses`: a hash of records, sorted sets of these and registrations.

    A record's number is the microsecond at which it was made, or the next one that is free: so
    records lie in the order of their times, and a page begins behind a number.
    """

    async def record(self, sink: str, deaths: Sequence[AddressDeath], at_ms: int) -> list[int]:
        recorded: list[int] = []
        for some in paged(deaths, ADDRESSES_A_CALL):
            args: list[Arg] = []
            for one in some:
                args += [one.hash, one.died_at_ms, _encode(one[1:])]
            recorded += await self._change(_RECORD, sink, at_ms, args, read=whole_numbers)
        return recorded

    async def register(self, sink: str, hashes: Sequence[int], at_ms: int) -> int:
        changed = 0
        for some in paged(hashes, ADDRESSES_A_CALL):
            changed += await self._change(_REGISTER, sink, at_ms, some, read=int)
        return changed

    async def page(self, query: DeadAddressQuery, after: int = 0) -> DeadAddressPage:
        first = str(query.since_ms * 1000)
        if query.newest_first:
            args = ["ZREVRANGEBYSCORE", f"({after}" if after else "+inf", first]
        else:
            args = ["ZRANGEBYSCORE", f"({after}" if after else first, "+inf"]
        found = await self._client.run(_PAGE, self._records(), [*args, PAGE], read=_numbered)
        fitting = [one for _, one in found if query.sink in ("", one.sink)]
        return DeadAddressPage(fitting, found[-1][0] if len(found) == PAGE else 0)

    async def forget(self, before_ms: int, most: int) -> int:
        args = [before_ms * 1000, before_ms, min(most, ADDRESSES_A_CALL)]
        keys = [*self._records(), self._keys.registered]
        return await self._client.run(_FORGET, keys, args, read=int)

    async def _change(
        self, script: str, sink: str, at_ms: int, args: Sequence[Arg], read: Any
    ) -> Any:
        scope = str(SuppressionScope("sink", sink))
        keys = [*self._records(), self._keys.registered]
        keys += [self._keys.suppressed(scope), self._keys.suppressions]
        return await self._client.run(script, keys, [sink, scope, at_ms, *args], read=read)

    def _records(self) -> list[str]:
        return [self._keys.dead_addresses, self._keys.dead_by_age]


def _numbered(answer: Any) -> list[tuple[int, DeadAddress]]:
    """Read members with their scores and records."""
    flat, found = words(answer), []
    for member, score, record in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        number = int(float(score))
        one, _, sink = member.decode().partition(":")
        found.append((number, DeadAddress(sink, int(one), number // 1000, *_decode(record))))
    return found
