"""Every write of tasks and weights: lock, journal, then Redis.

The lock is taken before the journal is written, so that of two writers the later one to commit is
the later one in the journal too, and a writer that loses has journalled nothing. A lock has a token
of its writer, which a commit shows again in the same step, and ends by itself when its writer dies;
a commit whose lock has ended is refused and tried again from the start. A writer that dies between
journal and commit leaves a change that is made by who follows the journal
(`backends.redis.journal_follower`); one that is refused there journals the kept value again, which
stands over it, but for a task that it cancelled. A fence is checked at both ends.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from msgspec.structs import replace

from pushlane.backends.ports import Fence, Journal
from pushlane.backends.redis.client import NOW, Arg, OnRedis, RedisClient, body_or_empty, turn
from pushlane.backends.redis.journal import WEIGHTS_KEY
from pushlane.backends.redis.keys import (
    ANNOUNCE,
    KEPT_MS,
    READY,
    REMOVE,
    STORE,
    Keys,
    remove_args,
    store_args,
)
from pushlane.backends.redis.rebuild import Rebuild
from pushlane.core.errors import TaskConflict, Unreachable
from pushlane.core.task import Task, Weights
from pushlane.model.task_bytes import decode, encode, encode_weights, glimpse, refuse_readable
from pushlane.model.task_changes import check_forgettable
from pushlane.util.errors import DamagedRecord, Superseded

LOCK_MS = 10_000
PATIENCE_S = 20.0  # twice a lock's life: a dead holder is always outlived
MOST_PAUSE_S = 0.2

LOCK = """
local function lock(key, token, ttl_ms)
  return redis.call('SET', key, token, 'NX', 'PX', ttl_ms) or redis.call('GET', key) == token
end
"""

_UNLOCK = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"


class Held(NamedTuple):
    """A lock, and the token that its writer has put there."""

    lock: str
    token: str


class LockedWrites(OnRedis):
    """Writes one after the other what is journalled before it is in Redis."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        super().__init__(client, keys)
        self._journal = journal
        self._rebuild = Rebuild(client, keys, journal)

    async def _begun(
        self, what: str, script: str, lock: str, keys: Sequence[str], args: Sequence[Arg]
    ) -> AsyncIterator[tuple[Held, bytes, bytes]]:
        """Yield the lock with a new token, how the script began, and what it found; then try again.

        Waits while the lock is busy, with growing pauses, and fills a registry that is not ready.

        Raises:
            TaskConflict: somebody else has been writing for PATIENCE_S.
        """
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 0.005
        while time.monotonic() < deadline:
            token = secrets.token_hex(8)
            how, found = await self._client.run(script, keys, [token, LOCK_MS, *args], read=turn)
            if how == b"unready":
                await self._rebuild.until_ready()
                deadline = time.monotonic() + PATIENCE_S  # that took as long as it took
            elif how != b"busy":
                yield Held(lock, token), how, found
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
        raise TaskConflict(
            f"other processes have been changing {what} for {PATIENCE_S:.0f} s; see which still "
            "run, then try again"
        )

    async def _append(self, key: str, body: bytes) -> None:
        if self._journal is not None:
            await self._journal.append(key, body)

    async def _unlock(self, held: Held) -> bool:
        """Release the lock. False when it was not this writer's any more."""
        return bool(await self._client.run(_UNLOCK, [held.lock], [held.token]))

    @asynccontextmanager
    async def _unlocked_on_error(self, held: Held) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            with suppress(Unreachable):  # then the lock ends by itself
                await self._unlock(held)
            raise


def unended() -> AssertionError:
    """Make the error for the end of a loop that only a return or an error ends."""
    return AssertionError("attempts end with a return or an error")


# An add that died after it began is carried on with the task it began with: its id may already be
# in the journal, and a second id for one key must not stay there.
_BEGIN_ADD = LOCK + READY
_BEGIN_ADD += """
local id, key, body = ARGV[3], ARGV[4], ARGV[5]
if not ready(KEYS[1], KEYS[6]) then return {'unready'} end
local kept = redis.call('HGET', KEYS[2], key ~= '' and redis.call('HGET', KEYS[3], key) or id)
if kept then return {'kept', kept} end
if not lock(KEYS[4], ARGV[1], ARGV[2]) then return {'busy'} end
if key == '' then return {'ours', body} end
redis.call('HSETNX', KEYS[5], key, body)
return {'ours', redis.call('HGET', KEYS[5], key)}
"""

# The number that a change carries, when it carries one, is its lease's latest.
_FENCE = """
local function fenced(key, number)
  return number ~= '' and redis.call('GET', key) ~= number
end
"""

_BEGIN_CHANGE = LOCK + READY + _FENCE
_BEGIN_CHANGE += """
if not ready(KEYS[1], KEYS[5]) then return {'unready'} end
if fenced(KEYS[4], ARGV[4]) then return {'fenced'} end
local body = redis.call('HGET', KEYS[2], ARGV[3])
if not body then return {'unknown'} end
if not lock(KEYS[3], ARGV[1], ARGV[2]) then return {'busy'} end
return {'ours', body}
"""

_BEGIN_WEIGHTS = LOCK + READY
_BEGIN_WEIGHTS += """
if not ready(KEYS[1], KEYS[3]) then return {'unready'} end
return {lock(KEYS[2], ARGV[1], ARGV[2]) and 'ours' or 'busy'}
"""

# A registry that is to be filled again takes nothing: what fills it may have been read before.
_HELD = READY
_HELD += """
if redis.call('GET', KEYS[11]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[11])
if not ready(KEYS[1], KEYS[#KEYS]) then return 0 end
"""

# A key stays with the task that has it: two servers of Redis may each have given it to another.
_COMMIT_TASK = STORE + ANNOUNCE + _FENCE + _HELD
_COMMIT_TASK += """
if fenced(KEYS[15], ARGV[9]) then return 0 end
local holder = ARGV[4] ~= '' and redis.call('HGET', KEYS[3], ARGV[4])
if holder and holder ~= ARGV[2] and redis.call('HEXISTS', KEYS[2], holder) == 1 then
  ARGV[4] = ''
end
store(2)
if ARGV[4] ~= '' then redis.call('HDEL', KEYS[12], ARGV[4]) end
if ARGV[8] ~= '' then
  redis.call('PEXPIRE', KEYS[13], ARGV[8])
  redis.call('PEXPIRE', KEYS[14], ARGV[8])
end
announce(ARGV[2])
return 1
"""

# For a day those who follow the changes hear of it, by an id without a task.
_COMMIT_FORGET = NOW + REMOVE + ANNOUNCE + _FENCE + _HELD
_COMMIT_FORGET += """
if fenced(KEYS[16], ARGV[5]) then return 0 end
remove(ARGV[2], ARGV[3], ARGV[4], KEYS[12], KEYS[13], KEYS[14])
announce(ARGV[2])
redis.call('ZADD', KEYS[15], now_ms, ARGV[2])
return 1
"""

_COMMIT_WEIGHTS = ANNOUNCE + _HELD
_COMMIT_WEIGHTS += """
redis.call('SET', KEYS[12], ARGV[2])
announce()
return 1
"""


_Edit = Callable[[Task], Task | None]


class Writes(LockedWrites):
    """Adds and changes, one writer at a time for each task."""

    async def add(self, task: Task) -> Task:
        lock = self._keys.lock(f"key:{task.key}" if task.key else f"task:{task.id}")
        names = self._keys
        keys = [names.version, names.tasks, names.by_key, lock, names.adding, names.filled]
        args: list[Arg] = [task.id, task.key, encode(task)]
        what, refused = f"task {task.key or task.id!r}", set[str]()
        async for held, how, body in self._begun(what, _BEGIN_ADD, lock, keys, args):
            if how == b"kept":
                for task_id in refused:
                    await self._journal_kept(task_id, 0)
                return decode(f"of key {task.key!r}", body)
            async with self._unlocked_on_error(held):
                added = await self._carried_on(body, task)
                if await self._write(held, added):
                    return added
            refused |= {glimpse(body).id, added.id} - {""}
        raise unended()

    async def _carried_on(self, body: bytes, task: Task) -> Task:
        """Return what is to be kept under the key: what an add began with, if it is the same."""
        with suppress(DamagedRecord):
            begun = decode(f"of key {task.key!r}", body)
            if begun.id == task.id or begun.fingerprint == task.fingerprint:
                return begun
        if begun_id := glimpse(body).id:
            await self._append(begun_id, b"")  # it failed, and its rows were mended since
        await self._client.call("HSET", self._keys.adding, task.key, encode(task))
        return task

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        """Forget the task as `Registry.forget` does. False when there is no such task."""
        return await self.change(task_id, check_forgettable, fence) is not None

    async def discard(self, task_id: str) -> bool:
        """Remove the task as `Registry.discard` does. False when there is no such task."""
        refused = False
        async for held, how, body in self._begun_change(task_id, None):
            if how == b"unknown":
                return False
            async with self._unlocked_on_error(held):
                if refused:
                    await self._append(task_id, body)  # it may be another one meanwhile
                refuse_readable(task_id, body)
                if await self._remove(held, task_id, body, None):
                    return True
            refused = True
        raise unended()

    async def change(
        self, task_id: str, edit: _Edit, fence: Fence | None = None, refused: int | None = None
    ) -> Task | None:
        """Return the changed task; the task as it was when the edit gives None, which removes it.

        None when there is no such task.

        `refused` is the version of a value in the journal that was not kept: it gets the kept one
        first, and no lower version, which would not stand over that.
        """
        async for held, how, body in self._begun_change(task_id, fence):
            if how == b"unknown":
                if refused is not None:  # it was forgotten since
                    await self._append(task_id, b"")
                return None
            if how == b"fenced":
                if refused is not None:
                    await self._journal_kept(task_id, refused)
                assert fence is not None
                raise Superseded(
                    f"another process holds the lease {fence.lease} now: nothing was changed"
                )
            async with self._unlocked_on_error(held):
                least = 0
                if refused is not None:
                    await self._append(task_id, body)
                    least = refused
                changed, kept = await self._edit(held, task_id, body, edit, fence, least)
            if kept:
                return changed
            refused = max(least, changed.version)
        raise unended()

    async def _journal_kept(self, task_id: str, refused: int) -> None:
        """Journal the kept task again, or that there is none, after a value that was not kept."""
        await self.change(task_id, lambda task: task, None, refused)

    def _begun_change(
        self, task_id: str, fence: Fence | None
    ) -> AsyncIterator[tuple[Held, bytes, bytes]]:
        lock = self._keys.lock(f"task:{task_id}")
        names, fenced = self._keys, self._fence_key(fence)
        keys = [names.version, names.tasks, lock, fenced, names.filled]
        args: list[Arg] = [task_id, _number(fence)]
        return self._begun(f"task {task_id}", _BEGIN_CHANGE, lock, keys, args)

    async def set_weights(self, weights: Weights, over: Sequence[bytes] = ()) -> bool:
        """Set the weights; where `over` has any, only if one of these is stored now.

        A writer that was refused after it had journalled puts the kept ones into the journal again.
        """
        lock, body = self._keys.lock("weights"), encode_weights(weights)
        begin = [self._keys.version, lock, self._keys.filled]
        commit = [*self._keys.index, lock, self._keys.weights, self._keys.filled]
        what = "the level weights"
        refused = False
        async for held, _, _ in self._begun(what, _BEGIN_WEIGHTS, lock, begin, []):
            async with self._unlocked_on_error(held):
                if over and (kept := await self._weights()) not in over:
                    if refused:
                        await self._append(WEIGHTS_KEY, kept)
                    if await self._unlock(held) or not refused:
                        return False
                    continue
                await self._append(WEIGHTS_KEY, body.encode())
                if await self._client.run(_COMMIT_WEIGHTS, commit, [held.token, body]):
                    return True
            refused = True
        raise unended()

    async def _weights(self) -> bytes:
        return await self._client.call("GET", self._keys.weights, read=body_or_empty)

    async def _edit(
        self, held: Held, task_id: str, body: bytes, edit: _Edit, fence: Fence | None, least: int
    ) -> tuple[Task, bool]:
        """Return the edited task, of no lower version than `least`, and whether it is kept now."""
        task = decode(task_id, body)
        edited = edit(task)
        if edited is None:
            return task, await self._remove(held, task_id, body, fence)
        if edited == task and task.version >= least:
            await self._unlock(held)
            return task, True
        edited = replace(edited, version=max(task.version + 1, least))
        return edited, await self._write(held, edited, fence)

    async def _write(self, held: Held, task: Task, fence: Fence | None = None) -> bool:
        """Write the task. False when the lock or the fence ended before it was kept."""
        body = encode(task)
        await self._append(task.id, body)
        return await self._commit(held, task.id, body, fence)

    async def _commit(
        self, held: Held, task_id: str, body: bytes, fence: Fence | None = None
    ) -> bool:
        """Keep what is journalled. False when the lock or the fence ended before."""
        seen, moved, _ = self._keys.progress(task_id)
        keys = [*self._keys.index, held.lock, self._keys.adding, seen, moved]
        kept_ms = KEPT_MS if glimpse(body).lane_dropped else ""
        args = [held.token, *store_args(task_id, body), kept_ms, _number(fence)]
        keys += [self._fence_key(fence), self._keys.filled]
        return bool(await self._client.run(_COMMIT_TASK, keys, args))

    async def _remove(self, held: Held, task_id: str, body: bytes, fence: Fence | None) -> bool:
        """Remove the task. False when the lock or the fence ended before."""
        await self._append(task_id, b"")
        keys = [*self._keys.index, held.lock, *self._keys.progress(task_id)]
        keys += [self._keys.forgotten, self._fence_key(fence), self._keys.filled]
        args = [held.token, *remove_args(task_id, body), _number(fence)]
        return bool(await self._client.run(_COMMIT_FORGET, keys, args))

    def _fence_key(self, fence: Fence | None) -> str:
        return self._keys.fence(fence.lease if fence else "")


def _number(fence: Fence | None) -> int | str:
    return fence.number if fence else ""
