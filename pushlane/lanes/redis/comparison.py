"""Compares the tasks of the journal with those of Redis, and changes neither."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import aclosing

from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.lanes.ports import Journal
from pushlane.lanes.rebuilding import RegistryGap, TaskCount
from pushlane.lanes.redis.journal_sum import is_task
from pushlane.lanes.redis.refill_guard import stored_tasks
from pushlane.model.task_bytes import glimpse

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
