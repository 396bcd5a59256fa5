"""Fills a registry from the journal: tasks, keys, names, weights and documents.

That is needed when Redis has lost its data, and whenever its server is another one than before,
since the data of that may be old. One process does it while the others wait. Counts
(`lanes.redis.progress`) are not in the journal: they start from zero, or from those of an old copy.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Any

from pushlane.lanes.errors import Unreachable
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import Journal
from pushlane.lanes.redis.client import NOW, RedisClient, words
from pushlane.lanes.redis.codec import (
    INDEX,
    KEPT_MS,
    PUT_DOCUMENT,
    READY,
    REMOVE,
    STORE,
    index_args,
    remove_args,
    store_args,
)
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.task_bytes import glimpse

WEIGHTS_KEY = ":weights"  # no task id begins with a colon
DOCUMENT_KEY = ":shelf:"
TASKS_A_CALL = 200
DOCUMENTS_A_CALL = 20
GUARD_MS = 30_000
PATIENCE_S = 120.0
POLL_S = 0.1

# A registry that an earlier version of pushlane has filled lacks only the indexes it did not know.
_GUARD = (
    READY
    + """
if ready(KEYS[1], KEYS[3]) then return 'ready' end
local guard = redis.call('GET', KEYS[2])
if guard and guard ~= ARGV[1] then return 'busy' end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return ready(KEYS[1], KEYS[4]) and 'index' or 'fill'
"""
)

_INDEX = (
    INDEX
    + """
if redis.call('GET', KEYS[11]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[11], ARGV[2])
for at = 3, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[2], ARGV[at]) == 1 then index(unpack(ARGV, at, at + 2)) end
end
return 1
"""
)

# The news that a task was forgotten is kept for a day.
_TRIM = (
    NOW
    + """
local before_ms = now_ms - ARGV[1]
local old = redis.call('ZRANGE', KEYS[2], '-inf', before_ms, 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(old) do
  redis.call('ZREM', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end
return #old
"""
)

# Processes of an earlier version add and end tasks without a word to the indexes.
_LACKS = """
local tasks, active = redis.call('HLEN', KEYS[2]), redis.call('SCARD', KEYS[5])
local ended = redis.call('ZCARD', KEYS[9])
return redis.call('ZCARD', KEYS[8]) ~= tasks or redis.call('ZCARD', KEYS[10]) ~= active
  or active + ended ~= tasks
"""

_INDEXED = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], redis.call('GET', KEYS[3]))
return 1
"""

# Refuses when the guard went to somebody else, so that old tasks never overwrite newer ones.
# Tasks whose lane may still be read count as just changed: who followed the registry before the
# loss hears of them.
_FILL = (
    NOW
    + STORE
    + """
if redis.call('GET', KEYS[11]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[11], ARGV[2])
for at = 3, #ARGV, 7 do
  store(at)
  redis.call('ZADD', KEYS[6], ARGV[at + 6] == 'open' and now_ms or 1, ARGV[at])
end
return 1
"""
)

# A task that only the old copy holds was forgotten since.
_EMPTY = (
    REMOVE
    + """
if redis.call('GET', KEYS[11]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[11], ARGV[2])
local counts = 12
for at = 3, #ARGV, 3 do
  remove(ARGV[at], ARGV[at + 1], ARGV[at + 2], unpack(KEYS, counts, counts + 2))
  redis.call('ZREM', KEYS[6], ARGV[at])
  counts = counts + 3
end
return 1
"""
)

# A document that is in Redis alone was removed from the journal since.
_CLEAR = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
return 1
"""

_FILL_DOCUMENTS = (
    PUT_DOCUMENT
    + """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
for at = 3, #ARGV, 2 do put_document(KEYS[2], ARGV[at], ARGV[at + 1]) end
return 1
"""
)

# Versions start at the server's time in ms, so that they are higher than any from before a loss.
_OPEN = (
    NOW
    + """
if redis.call('GET', KEYS[11]) ~= ARGV[1] then return 0 end
if ARGV[2] ~= '' then redis.call('SET', KEYS[12], ARGV[2]) end
local version = math.max(now_ms, tonumber(redis.call('GET', KEYS[1]) or 0) + 1)
redis.call('SET', KEYS[1], string.format('%.0f', version))
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('SET', KEYS[13], run_id)
redis.call('SET', KEYS[14], run_id)
redis.call('SET', KEYS[15], string.format('%.0f', now_ms))
redis.call('DEL', KEYS[11])
redis.call('PUBLISH', KEYS[7], version)
return 1
"""
)


def is_task(key: str) -> bool:
    """Tell whether the journal has a task under this key."""
    return key != WEIGHTS_KEY and not key.startswith(DOCUMENT_KEY)


class Rebuild:
    """Makes a registry that is empty, or perhaps old, ready for use."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        self._client = client
        self._keys = keys
        self._journal = journal

    async def until_ready(self) -> None:
        """Return once the registry is ready, whoever made it so.

        Raises:
            Unreachable: another process has been rebuilding for PATIENCE_S.
        """
        token = secrets.token_hex(8)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            guard = [self._keys.version, self._keys.rebuilding]
            guard += [self._keys.filled, self._keys.server]
            turn: bytes = await self._client.run(_GUARD, guard, [token, GUARD_MS])
            if turn == b"ready":
                return
            if turn == b"index" and await self._index(token):
                return
            if turn == b"fill" and await self._fill(token):
                return
            await asyncio.sleep(POLL_S)
        raise Unreachable(
            f"the registry in Redis at {self._client.where} has been rebuilding for "
            f"{PATIENCE_S:.0f} s; look at the process that does it, then try again"
        )

    async def again(self) -> None:
        """Fill the registry anew, though it may be ready."""
        await self._client.call("DEL", self._keys.filled, self._keys.server)
        await self.until_ready()

    async def mend(self) -> None:
        """Trim old news, and fill the indexes again when they lack something.

        The indexes are left alone while another process fills them.
        """
        keys, args = [self._keys.changes, self._keys.forgotten], [KEPT_MS, TASKS_A_CALL]
        while await self._client.run(_TRIM, keys, args):
            pass
        if not await self._client.run(_LACKS, self._keys.index):
            return
        token = secrets.token_hex(8)
        guard = ("SET", self._keys.rebuilding, token, "NX", "PX", GUARD_MS)
        if await self._client.call(*guard):
            await self._index(token)

    async def _index(self, token: str) -> bool:
        async for page in self._stored():
            args = [arg for task_id, body in page.items() for arg in index_args(task_id, body)]
            if not await self._client.run(_INDEX, self._filled_keys(), [token, GUARD_MS, *args]):
                return False
        keys = [self._keys.rebuilding, self._keys.filled, self._keys.server]
        return bool(await self._client.run(_INDEXED, keys, [token]))

    async def _fill(self, token: str) -> bool:
        weights, documents, known = b"", dict[str, bytes](), set[str]()
        for page in paged(await self._journal.replay() if self._journal else [], TASKS_A_CALL):
            tasks: list[tuple[str, bytes]] = []
            for key, body in page:
                if key == WEIGHTS_KEY:
                    weights = body
                elif key.startswith(DOCUMENT_KEY):
                    documents[key.removeprefix(DOCUMENT_KEY)] = body
                else:
                    tasks.append((key, body))
            known.update(task_id for task_id, _ in tasks)
            if not await self._fill_some(token, tasks):
                return False
        if self._journal and not await self._empty(token, known):
            return False
        if not await self._fill_documents(token, documents):
            return False
        keys = [*self._filled_keys(), self._keys.weights, self._keys.filled, self._keys.server]
        keys.append(self._keys.counted)
        return bool(await self._client.run(_OPEN, keys, [token, weights]))

    async def _fill_some(self, token: str, tasks: Sequence[tuple[str, bytes]]) -> bool:
        """Fill in tasks with the journal's bytes, which may be a newer version's."""
        args = [
            arg for task_id, body in tasks for arg in (*store_args(task_id, body), _lane_is(body))
        ]
        return bool(await self._client.run(_FILL, self._filled_keys(), [token, GUARD_MS, *args]))

    async def _empty(self, token: str, known: Container[str]) -> bool:
        async for page in self._stored():
            old = [(task_id, body) for task_id, body in page.items() if task_id not in known]
            progress = [key for task_id, _ in old for key in self._keys.progress(task_id)]
            args = [arg for task_id, body in old for arg in remove_args(task_id, body)]
            keys = [*self._filled_keys(), *progress]
            if not await self._client.run(_EMPTY, keys, [token, GUARD_MS, *args]):
                return False
        return True

    async def _stored(self) -> AsyncIterator[dict[str, bytes]]:
        """Yield all tasks that are there, in pages; a task may come twice."""
        cursor, is_over = 0, False
        while not is_over:
            cursor, page = await self._client.call(
                "HSCAN", self._keys.tasks, cursor, "COUNT", TASKS_A_CALL, read=_page
            )
            is_over = cursor == 0
            if page:
                yield page

    async def _fill_documents(self, token: str, documents: Mapping[str, bytes]) -> bool:
        keys = [self._keys.rebuilding, self._keys.documents]
        if not await self._client.run(_CLEAR, keys, [token]):
            return False
        for page in paged([*documents.items()], DOCUMENTS_A_CALL):
            args = [arg for document in page for arg in document]
            if not await self._client.run(_FILL_DOCUMENTS, keys, [token, GUARD_MS, *args]):
                return False
        return True

    def _filled_keys(self) -> list[str]:
        return [*self._keys.index, self._keys.rebuilding]


def _lane_is(body: bytes) -> str:
    return "gone" if glimpse(body).lane_dropped else "open"


def _page(answer: Any) -> tuple[int, dict[str, bytes]]:
    cursor, found = answer
    words([*found, *found.values()])
    return int(cursor), {task_id.decode(): body for task_id, body in found.items()}
