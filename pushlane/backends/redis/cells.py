"""Cells on Redis, for the rules in `backends.cells`, in the form that earlier versions gave them.

Processes of release 0.2 may have the same cell at the same time: each change is one step of the
server, as theirs are, and shows what it was decided for. All times are the server's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pushlane.backends.cells import Cell
from pushlane.backends.ports import Grant
from pushlane.backends.redis.client import (
    NOW,
    Arg,
    OnRedis,
    bodies_only,
    mapping,
    numbers_only,
    words,
)
from pushlane.backends.redis.journal import DOCUMENT_KEY
from pushlane.backends.redis.keys import PUT_DOCUMENT, READY
from pushlane.backends.redis.writes import LOCK, Held, LockedWrites, unended

# The number is given here and not before, since it is to be no lower than the time at which it is
# given: a Redis that lost everything since it was asked would else give an earlier one.
_PUT_NEW = NOW
_PUT_NEW += """
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
local fence = math.max(now_ms, tonumber(redis.call('GET', KEYS[2]) or 0) + 1)
fence = string.format('%.0f', fence)
redis.call('SET', KEYS[2], fence, 'PX', ARGV[2] + ARGV[3])
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'fence', fence)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {tonumber(fence), now_ms}
"""

_RENEW = NOW
_RENEW += """
local held = redis.call('HMGET', KEYS[1], 'holder', 'fence')
if held[1] ~= ARGV[1] then return false end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2] + ARGV[3])
return {tonumber(held[2]), now_ms}
"""

_DROP = "return redis.call('HGET', KEYS[1], 'holder') == ARGV[1] and redis.call('DEL', KEYS[1])"

_FENCE_KEPT_MS = 24 * 3600 * 1000


class RedisLeaseCells(OnRedis):
    """See `backends.cells.LeaseCells`: a hash, and the number apart, kept for a day longer.

    There the scripts that write tasks look for it (`backends.redis.writes`).
    """

    async def read(self, key: str) -> Cell | None:
        held = self._keys.lease(key)
        return await self._client.call("HMGET", held, "holder", "fence", read=_held)

    async def put_new(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        return await self._last(_PUT_NEW, key, value, ttl_ms)

    async def renew(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        return await self._last(_RENEW, key, value, ttl_ms)

    async def drop(self, key: str, value: bytes) -> bool:
        return bool(await self._client.run(_DROP, [self._keys.lease(key)], [value]))

    async def _last(self, script: str, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        keys = [self._keys.lease(key), self._keys.fence(key)]
        return await self._client.run(script, keys, [value, ttl_ms, _FENCE_KEPT_MS], read=_grant)


def _held(answer: Any) -> Cell | None:
    holder, fence = bodies_only(answer)
    return None if holder is None or fence is None else Cell(holder, int(fence))


def _grant(answer: Any) -> Grant | None:
    return None if answer is None else Grant(*map(int, answer))


# This stays in Lua: a document is journalled between the comparison of its version and its put. A
# lock keeps the journal in the order of the puts, which a comparison alone does not; and each step
# looks whether this Redis has all (`ready`), since it may have been lost since the one before.
_A_PAGE = 100
_ANY = "any"

_BEGIN = LOCK + READY
_BEGIN += """
if not ready(KEYS[1], KEYS[2]) then return {'unready'} end
local kept = redis.call('HGET', KEYS[3], ARGV[3]) or ''
if ARGV[4] ~= 'any' and string.match(kept, '^%d*') ~= ARGV[4] then return {'other'} end
if not lock(KEYS[4], ARGV[1], ARGV[2]) then return {'busy'} end
return {'ours', kept}
"""

_COMMIT = READY + PUT_DOCUMENT
_COMMIT += """
if redis.call('GET', KEYS[4]) ~= ARGV[1] then return false end
redis.call('DEL', KEYS[4])
if not ready(KEYS[1], KEYS[2]) then return false end
if ARGV[3] == '' then return redis.call('HDEL', KEYS[3], ARGV[2]) end
return put_document(KEYS[3], ARGV[2], ARGV[3])
"""


class RedisDocumentCells(LockedWrites):
    """See `backends.cells.DocumentCells`: fields of one hash, each journalled before it is put.

    The order is as with tasks (`backends.redis.writes`): lock, journal, then Redis. A writer that
    was refused after it had journalled puts the kept value into the journal again.
    """

    async def read(self, key: str) -> Cell | None:
        shelf = self._keys.documents
        while not (found := await self._ask_filled("HGET", shelf, key, read=_cell_or_none)):
            await self._rebuild.until_ready()
        return found[0]

    async def put(self, key: str, value: bytes, over: int | None) -> int | None:
        return await self._write(key, value, "" if over is None else str(over))

    async def remove(self, key: str, over: int | None) -> bool:
        return bool(await self._write(key, b"", _ANY if over is None else str(over)))

    async def _write(self, field: str, body: bytes, expected: str) -> int | None:
        """Return the new version, or whether one was removed; None when another version is kept."""
        refused = False
        async for held, how, _ in self._begin(field, expected):
            if how == b"other":
                if refused:
                    await self._journal_kept(field)
                return None
            async with self._unlocked_on_error(held):
                await self._append(DOCUMENT_KEY + field, body)
                keys = [*self._shelf(), held.lock]
                args: list[Arg] = [held.token, field, body]
                written = await self._client.run(_COMMIT, keys, args, read=numbers_only)
            if written is not None:
                return written
            refused = True
        raise unended()

    async def _journal_kept(self, field: str) -> None:
        """Journal the kept document again, behind the one that was journalled and then refused."""
        async for held, _, kept in self._begin(field, _ANY):
            async with self._unlocked_on_error(held):
                await self._append(DOCUMENT_KEY + field, kept.partition(b"\n")[2])
            if await self._unlock(held):
                return

    def _begin(self, field: str, expected: str) -> AsyncIterator[tuple[Held, bytes, bytes]]:
        lock, what = self._keys.lock(f"shelf:{field}"), f"the document {field!r}"
        return self._begun(what, _BEGIN, lock, [*self._shelf(), lock], [field, expected])

    def _shelf(self) -> list[str]:
        return [self._keys.version, self._keys.filled, self._keys.documents]

    async def list(self, prefix: str) -> dict[str, Cell]:
        while (found := await self._scan(prefix)) is None:
            await self._rebuild.until_ready()
        return found

    async def _scan(self, prefix: str) -> dict[str, Cell] | None:
        """Return all fields that begin so; None when this Redis turned out not to have all."""
        found: dict[str, Cell] = {}
        cursor: int | None = None
        while cursor != 0:
            match = ("MATCH", f"{prefix}*", "COUNT", _A_PAGE)
            page = await self._ask_filled(
                "HSCAN", self._keys.documents, cursor or 0, *match, read=_page
            )
            if not page:
                return None
            cursor = page[0][0]
            found |= page[0][1]  # one may come twice
        return found


def _page(answer: Any) -> tuple[int, dict[str, Cell]]:
    """Read a cursor and the fields with their cells."""
    cursor, found = answer
    fields = mapping(words(found)).items()
    return int(cursor), {field.decode(): _cell(value) for field, value in fields}


def _cell_or_none(answer: Any) -> Cell | None:
    return None if answer is None else _cell(answer)


def _cell(value: bytes) -> Cell:
    number, _, body = value.partition(b"\n")
    return Cell(body, int(number))


# The index ends with the server's time, which only a script has in the step that puts the value.
_PRUNE = NOW + "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now_ms))\n"

_ANNOUNCE = _PRUNE
_ANNOUNCE += """
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms + ARGV[3]), ARGV[1])
"""

_LIST = _PRUNE + "return redis.call('ZRANGE', KEYS[1], 0, -1)"

_LEAVE = """
redis.call('ZREM', KEYS[1], ARGV[1])
return redis.call('DEL', KEYS[2])
"""


class RedisPresenceCells(OnRedis):
    """See `backends.cells.PresenceCells`: a key with an expiry for each, and an index of them.

    The index drops those whose time is over whenever anybody writes or looks.
    """

    async def show(self, key: str, value: bytes, ttl_ms: int) -> None:
        keys = [self._keys.processes, self._keys.process(key)]
        await self._client.run(_ANNOUNCE, keys, [key, value, ttl_ms])

    async def values(self) -> Sequence[bytes]:
        ids = await self._client.run(_LIST, [self._keys.processes], read=words)
        if not ids:
            return []
        keys = [self._keys.process(process_id.decode()) for process_id in ids]
        bodies = await self._client.call("MGET", *keys, read=bodies_only)
        return [body for body in bodies if body]

    async def remove(self, key: str) -> bool:
        keys = [self._keys.processes, self._keys.process(key)]
        return bool(await self._client.run(_LEAVE, keys, [key]))
