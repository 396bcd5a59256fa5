"""The dead addresses on Redis: a hash of records, and sorted sets of these and of registrations.

A record's number is the microsecond at which it was made, or the next one that is free: so records
lie in the order of their times, and a page begins behind a number. What Redis loses cannot be
rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pushlane.backends.redis.client import RedisClient, words
from pushlane.backends.redis.keys import Keys
from pushlane.lanes.dead_address import AddressDeath, DeadAddress, DeadAddressPage, DeadAddressQuery
from pushlane.lanes.paging import paged
from pushlane.lanes.suppression import SuppressionScope

PAGE = 500
ADDRESSES_A_CALL = 1_000  # a few ms during which Redis serves nobody else

# Whether an address was registered since it died is decided here, not over cells (`backends.cells`): a
# call has a thousand of them, each in four keys, and one that is registered between look and change
# would have all decided again.

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


class RedisDeadAddresses:
    """See `core.ports.DeadAddresses`."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def record(self, sink: str, deaths: Sequence[AddressDeath], at_ms: int) -> list[int]:
        recorded: list[int] = []
        for some in paged(deaths, ADDRESSES_A_CALL):
            args: list[str | bytes | int] = []
            for one in some:
                args += [one.hash, one.died_at_ms, _encode(one[1:])]
            recorded += await self._change(_RECORD, sink, at_ms, args, read=_numbers)
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
        self,
        script: str,
        sink: str,
        at_ms: int,
        args: Sequence[str | bytes | int],
        read: Any,
    ) -> Any:
        scope = str(SuppressionScope("sink", sink))
        suppressed = [self._keys.suppressed(scope), self._keys.suppressions]
        keys = [*self._records(), self._keys.registered, *suppressed]
        return await self._client.run(script, keys, [sink, scope, at_ms, *args], read=read)

    def _records(self) -> list[str]:
        return [self._keys.dead_addresses, self._keys.dead_by_age]


def _numbers(answer: Any) -> list[int]:
    return list(map(int, answer))


def _numbered(answer: Any) -> list[tuple[int, DeadAddress]]:
    """Read members with their scores and records."""
    flat = words(answer)
    return [_made(*three) for three in zip(flat[::3], flat[1::3], flat[2::3], strict=True)]


def _made(member: bytes, score: bytes, record: bytes) -> tuple[int, DeadAddress]:
    number = int(float(score))
    one, _, sink = member.decode().partition(":")
    return number, DeadAddress(sink, int(one), number // 1000, *_decode(record))
