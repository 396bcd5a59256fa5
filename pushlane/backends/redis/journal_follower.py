"""Follows the journal, and settles where it differs from Redis: both get the value that stands.

A writer journals first and keeps in Redis then, within milliseconds. So a difference that lasts was
left by one that died in between, or that wrote to another server of Redis.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pushlane.backends.cells import CellDocuments
from pushlane.backends.operations import RegistryGap, TaskCount
from pushlane.backends.ports import Journal, JournalPage
from pushlane.backends.redis.cells import RedisDocumentCells
from pushlane.backends.redis.client import (
    Arg,
    OnRedis,
    RedisClient,
    bodies_only,
    body_or_empty,
    turn,
    words,
)
from pushlane.backends.redis.journal import DOCUMENT_KEY, WEIGHTS_KEY, is_task
from pushlane.backends.redis.keys import READY, Keys
from pushlane.backends.redis.rebuild import stored_tasks
from pushlane.backends.redis.writes import LOCK, LOCK_MS, Held, Writes
from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.core.task import State, Weights
from pushlane.model.task_bytes import Merged, decode, encode, glimpse, merged
from pushlane.model.task_changes import finish
from pushlane.util.texts import paged

_NAMED = 10

_Tasks = dict[str, bool]  # by id, whether it is unfinished


async def compared(client: RedisClient, keys: Keys, journal: Journal) -> RegistryGap:
    """Return what each has. Of the journal the last value of a task counts."""
    journalled = await _journalled(journal)
    stored: _Tasks = {}
    async for page in stored_tasks(client, keys):
        stored.update((task_id, glimpse(body).is_active) for task_id, body in page.items())
    alone = stored.keys() - journalled.keys()
    return RegistryGap(
        client.where,
        _extent(journalled, journalled),
        _extent(stored, stored),
        _extent(stored, alone),
        _extent(journalled, journalled.keys() - stored.keys()),
        sorted(alone, key=lambda task_id: (not stored[task_id], task_id))[:_NAMED],
    )


async def _journalled(journal: Journal) -> _Tasks:
    found: _Tasks = {}
    async with aclosing(journal.pages()) as pages:
        async for page in pages:
            if page.is_first:
                found.clear()
            for key, body in page.records:
                if is_task(key) and body:
                    found[key] = glimpse(body).is_active
                else:
                    found.pop(key, None)
    return found


def _extent(tasks: _Tasks, among: Collection[str]) -> TaskCount:
    return TaskCount(len(among), sum(tasks[task_id] for task_id in among))


log = logging.getLogger("pushlane.registry")

REMOVED = "it ended, and was forgotten, on another server of Redis"

_BEGIN_SETTLING = LOCK + READY
_BEGIN_SETTLING += """
if not ready(KEYS[1], KEYS[2]) then return {'unready'} end
if not lock(KEYS[3], ARGV[1], ARGV[2]) then return {'busy'} end
return {'ours', redis.call('HGET', KEYS[4], ARGV[3]) or ''}
"""


class StoredTask(NamedTuple):
    """What Redis has of a task: its value, or empty, and whether it was forgotten of late."""

    body: bytes = b""
    is_forgotten: bool = False


def is_same(found: Merged, stored: StoredTask) -> bool:
    """Tell whether Redis has what the journal has: nothing of a task that is over is missed."""
    if not found.body:
        return not _is_active(stored.body)
    if stored.is_forgotten:
        return False
    return found.last == stored.body == found.body


def standing(task_id: str, found: Merged, stored: StoredTask) -> bytes:
    """Return what both are to have; empty where the task is to be gone, or is left to go.

    Raises:
        UnknownFormat: only a newer version of pushlane could write it.
    """
    if not found.body:
        return _cancelled(task_id, stored.body) if _is_active(stored.body) else stored.body
    if stored.is_forgotten:
        return b""
    return found.behind(merged(stored.body)).standing(task_id)


def _is_active(body: bytes) -> bool:
    return bool(body) and glimpse(body).is_active


def _cancelled(task_id: str, body: bytes) -> bytes:
    task = decode(task_id, body)
    return encode(replace(finish(State.CANCELLED, REMOVED)(task), version=task.version + 1))


class Settlement(Writes):
    """Writes as others do, under the task's lock; what changed meanwhile is left alone."""

    async def settle(self, task_id: str, found: Merged, stored: StoredTask) -> bool:
        """Give the journal and Redis what stands. False when nothing could be done about it."""
        try:
            body = standing(task_id, found, stored)
        except UnknownFormat as error:
            text = "task %s differs from the task topic, and is left as it is: %s"
            log.warning(text, task_id, error.fault, extra={"action": "journal_differs"})
            return False
        key = "" if stored.body else glimpse(body).key
        lock = self._keys.lock(f"key:{key}" if key else f"task:{task_id}")  # an add's, a change's
        keys = [self._keys.version, self._keys.filled, lock, self._keys.tasks]
        held = Held(lock, secrets.token_hex(8))
        args: list[Arg] = [held.token, LOCK_MS, task_id]
        how, now = await self._client.run(_BEGIN_SETTLING, keys, args, read=turn)
        if how != b"ours":
            return True
        async with self._unlocked_on_error(held):
            if now == stored.body:
                await self._write_both(held, task_id, body, found, stored)
            await self._unlock(held)
        return True

    async def _write_both(
        self, held: Held, task_id: str, body: bytes, found: Merged, stored: StoredTask
    ) -> None:
        if body != found.last:
            await self._append(task_id, body)
        if body != stored.body:
            await self._commit(held, task_id, body)
            text = (
                "task %s is %s in the task topic, written through another Redis or by a process "
                "that died: it is now the same here"
            )
            log.warning(text, task_id, glimpse(body).state, extra={"action": "journal_followed"})


LOOK_S = 2.0
MOST_OPEN = 10_000
PAGES_A_LOOK = 10
SETTLED_A_LOOK = 500
_A_CALL = 200

_MOVE = READY
_MOVE += """
if not ready(KEYS[1], KEYS[2]) then return 0 end
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[3], ARGV[2])
return 1
"""

_STORED = """
local bodies = redis.call('HMGET', KEYS[1], unpack(ARGV))
local found = {}
for at, id in ipairs(ARGV) do
  found[#found + 1] = bodies[at] or ''
  found[#found + 1] = redis.call('ZSCORE', KEYS[2], id) and '1' or ''
end
return found
"""


class _Difference(Struct, eq=False):
    """What the journal has of a key since `before`, and what Redis had of it at the last look."""

    before: bytes
    found: Merged = Merged()
    stored: StoredTask = StoredTask()
    seen: tuple[Merged, StoredTask] | None = None
    since_s: float = 0.0

    def look(self, now_s: float) -> bool:
        """Tell whether it has stood as it is for long enough."""
        if self.seen != (self.found, self.stored):
            self.seen, self.since_s = (self.found, self.stored), now_s
        return now_s - self.since_s >= LOOK_S

    def is_held(self) -> bool:
        """Tell whether Redis has what stands, though the journal may have another value last."""
        if not self.found.body:
            return False
        return self.found.rank < merged(self.stored.body).rank


class JournalFollower(OnRedis):
    """Looks at the journal whenever it is asked to, at most every LOOK_S.

    It reads from the place up to which Redis has all of the journal. A difference that stands
    unchanged over two looks is settled; one that a writer is about to end is left to it. The place
    is in Redis, and moves past a difference once that is settled.
    """

    def __init__(
        self,
        client: RedisClient,
        keys: Keys,
        journal: Journal | None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(client, keys)
        self._journal = journal
        self._clock_s = clock_s
        self._settlement = Settlement(client, keys, journal)
        self._documents = CellDocuments(RedisDocumentCells(client, keys, journal))
        self._pages: AsyncGenerator[JournalPage, None] | None = None
        self._place = b""  # in Redis, as last seen
        self._position = b""  # up to which it was read
        self._open: dict[str, _Difference] = {}
        self._next_s = float("-inf")

    async def look(self) -> None:
        """Read what is new, and settle what has stood since the last look.

        Raises:
            Unreachable: the journal or Redis does not answer. The next look begins again.
        """
        now_s = self._clock_s()
        if self._journal is None or now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        try:
            await self._look(self._journal, now_s)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the reading. What is not settled is found again from the place in Redis."""
        pages, self._pages = self._pages, None
        self._open.clear()
        if pages is not None:
            await pages.aclose()

    async def _look(self, journal: Journal, now_s: float) -> None:
        place = await self._ask_filled("GET", self._keys.followed, read=body_or_empty)
        if not place:  # it is filled by whoever reads or writes next
            await self.close()
            return
        if self._pages is None or place[0] != self._place:  # it was filled, or another one leads
            await self.close()
            self._place = self._position = place[0]
            self._pages = journal.follow(self._place)
        is_at_end = await self._read(self._pages)
        await self._compare([*self._open])
        await self._settle(now_s, is_at_end=is_at_end)
        await self._move()

    async def _read(self, pages: AsyncGenerator[JournalPage, None]) -> bool:
        """Read some pages; return whether that was all there is."""
        for _ in range(PAGES_A_LOOK):
            if len(self._open) >= MOST_OPEN:
                return False
            page = await anext(pages)
            if not page.records:
                return True
            for key, body in page.records:
                difference = self._open.setdefault(key, _Difference(self._position))
                task = difference.found.then(body) if is_task(key) else Merged(last=body)
                difference.found = task
            self._position = page.position
            await self._compare(list(dict.fromkeys(key for key, _ in page.records)))
        return False

    async def _compare(self, keys: Sequence[str]) -> None:
        """Look what Redis has of these; where it is what the journal has, that is settled."""
        for page in paged([key for key in keys if is_task(key)], _A_CALL):
            names = [self._keys.tasks, self._keys.forgotten]
            found = await self._client.run(_STORED, names, page, read=words)
            for key, body, forgotten in zip(page, found[::2], found[1::2], strict=True):
                self._note(key, StoredTask(body, bool(forgotten) and not body))
        documents = [key for key in keys if key.startswith(DOCUMENT_KEY)]
        for page in paged(documents, _A_CALL):
            fields = [key.removeprefix(DOCUMENT_KEY) for key in page]
            place = self._keys.documents
            values = await self._client.call("HMGET", place, *fields, read=bodies_only)
            for key, value in zip(page, values, strict=True):
                self._note(key, StoredTask(value or b""))
        if WEIGHTS_KEY in keys:
            weights = await self._client.call("GET", self._keys.weights, read=body_or_empty)
            self._note(WEIGHTS_KEY, StoredTask(weights))

    def _note(self, key: str, stored: StoredTask) -> None:
        difference = self._open[key]
        difference.stored = stored
        if is_task(key):
            is_over = is_same(difference.found, stored)
        else:  # a document has its version in front
            body = stored.body if key == WEIGHTS_KEY else stored.body.partition(b"\n")[2]
            is_over = difference.found.last == body
        if is_over:
            del self._open[key]

    async def _settle(self, now_s: float, *, is_at_end: bool) -> None:
        """Settle what has stood; before the end only to make room for more."""
        is_full = len(self._open) >= MOST_OPEN
        if not (is_at_end or is_full):
            return
        settled = 0
        for key, difference in [*self._open.items()]:
            if is_full and not is_at_end and difference.is_held():
                del self._open[key]  # more of it comes later in the journal
            elif difference.look(now_s) and settled < SETTLED_A_LOOK:
                settled += 1
                if not await self._is_settled(key, difference):
                    del self._open[key]

    async def _is_settled(self, key: str, difference: _Difference) -> bool:
        """Settle one, which the next look sees. False when it is left as it is."""
        found, stored = difference.found, difference.stored
        if is_task(key):
            return await self._settlement.settle(key, found, stored)
        with suppress(BadInput, ValueError):  # what is no document or weights of ours
            if key == WEIGHTS_KEY:
                weights = Weights.parse(found.last.decode())
                await self._settlement.set_weights(weights, over=(stored.body,))
                return True
            kind, _, name = key.removeprefix(DOCUMENT_KEY).partition(":")
            if not found.last:
                await self._documents.remove(kind, name)
                return True
            version = int(stored.body.partition(b"\n")[0]) if stored.body else None
            await self._documents.put(kind, name, found.last, version)
            return True
        return False

    async def _move(self) -> None:
        """Move the place in Redis to before the first difference."""
        first = next(iter(self._open.values()), None)
        place = first.before if first else self._position
        if place == self._place:
            return
        keys = [self._keys.version, self._keys.filled, self._keys.followed]
        if await self._client.run(_MOVE, keys, [self._place, place]):
            self._place = place
