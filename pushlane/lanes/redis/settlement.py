"""Settles differences between the journal and Redis that last: both get the value that stands.

A writer journals first and keeps in Redis then, within milliseconds. So what lasts was left by one
that died in between, or that wrote to another server of Redis.
"""

from __future__ import annotations

import logging
import secrets
from typing import NamedTuple

from msgspec.structs import replace

from pushlane.backends.redis.client import turn
from pushlane.backends.redis.writes import Writes
from pushlane.core.errors import UnknownFormat
from pushlane.core.task import State, finish
from pushlane.lanes.redis.codec import READY
from pushlane.lanes.redis.locks import LOCK, LOCK_MS
from pushlane.lanes.task_merge import Merged, merged
from pushlane.model.task_bytes import decode, encode, glimpse

log = logging.getLogger("pushlane.registry")

REMOVED = "it ended, and was forgotten, on another server of Redis"

_BEGIN_SETTLING = (
    LOCK
    + READY
    + """
if not ready(KEYS[1], KEYS[2]) then return {'unready'} end
if not lock(KEYS[3], ARGV[1], ARGV[2]) then return {'busy'} end
return {'ours', redis.call('HGET', KEYS[4], ARGV[3]) or ''}
"""
)


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
            log.warning(
                "task %s is not what the journal has, and is left so: %s",
                task_id,
                error.fault,
                extra={"action": "journal_differs"},
            )
            return False
        key = "" if stored.body else glimpse(body).key
        lock = self._keys.lock(
            f"key:{key}" if key else f"task:{task_id}"
        )  # as an add's, a change's
        keys = [self._keys.version, self._keys.filled, lock, self._keys.tasks]
        token = secrets.token_hex(8)
        args: list[str | bytes | int] = [token, LOCK_MS, task_id]
        how, now = await self._client.run(_BEGIN_SETTLING, keys, args, read=turn)
        if how != b"ours":
            return True
        async with self._unlocked_on_error(lock, token):
            if now == stored.body:
                await self._write_both(lock, token, task_id, body, found, stored)
            await self._unlock(lock, token)
        return True

    async def _write_both(
        self, lock: str, token: str, task_id: str, body: bytes, found: Merged, stored: StoredTask
    ) -> None:
        if body != found.last:
            await self._append(task_id, body)
        if body != stored.body:
            await self._commit(lock, token, task_id, body)
            log.warning(
                "task %s is %s in the journal, which another server of Redis, or a process that "
                "died, has written: it is so here now",
                task_id,
                glimpse(body).state,
                extra={"action": "journal_followed"},
            )
