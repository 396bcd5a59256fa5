"""Reads tasks out of Redis: by id, key or name, changed or ended ones, page after page.

Never writes, and holds nothing between two calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pushlane.lanes.errors import UnknownTask
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import FoundTasks
from pushlane.lanes.redis.client import RedisClient, bodies_only, words
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.search import TaskPage, TaskQuery
from pushlane.lanes.suggestions import ambiguous_task, unknown_task
from pushlane.lanes.task import Task
from pushlane.lanes.task_bytes import Understood, decode

TASKS_A_CALL = 200  # so many are read without a pause: two or three ms
NEAREST_AMONG = 1_000


class Reads:
    """The reading half of the registry."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._understood = Understood()

    async def page(self, query: TaskQuery, after: str, most: int) -> TaskPage:
        """See `lanes.ports.TaskStore.page`. A page ends at the id of its last task."""
        start = f"({after}" if after else "+"
        order = self._keys.open if query.is_of_active else self._keys.order
        ids = await self._client.call(
            "ZRANGE", order, start, "-", "BYLEX", "REV", "LIMIT", 0, most, read=words
        )
        found = await self.some(ids)
        last = ids[-1].decode() if len(ids) == most else ""
        return TaskPage([task for task in found.tasks if query.fits(task)], last)

    async def ended(self, before_ms: int, most: int, skip: int) -> FoundTasks:
        ids = await self._client.call(
            "ZRANGE",
            self._keys.ended,
            "-inf",
            f"({before_ms}",
            "BYSCORE",
            "LIMIT",
            skip,
            most,
            read=words,
        )
        return await self.some(ids)

    async def changed(self, since: int, version: int) -> tuple[FoundTasks, list[str]]:
        """Return the tasks that are new, and the ids of those that are not there any more."""
        if since == version:
            return FoundTasks([]), []
        if since == 0 or since > version:  # a first look, or a registry that was set back
            return await self.some(await self._active_ids()), []
        newer = await self._client.call(
            "ZRANGEBYSCORE", self._keys.changes, f"({since}", "+inf", read=words
        )
        found = await self.some(newer)
        there = {*(task.id for task in found.tasks), *found.unread}
        return found, [one for task_id in newer if (one := task_id.decode()) not in there]

    async def _active_ids(self) -> list[bytes]:
        return await self._client.call("SMEMBERS", self._keys.active, read=_ids)

    async def some(self, task_ids: Sequence[bytes]) -> FoundTasks:
        tasks: list[Task] = []
        unread: list[str] = []
        for page in paged(task_ids, TASKS_A_CALL):
            bodies = await self._client.call("HMGET", self._keys.tasks, *page, read=bodies_only)
            pairs = zip(page, bodies, strict=True)
            found = self._understood.read(
                (task_id.decode(), body) for task_id, body in pairs if body
            )
            tasks += found[0]
            unread += found[1]
        return FoundTasks(tasks, unread)

    async def find(self, wanted: str) -> Task | None:
        """Return the task of this id, key or name; None when there is none."""
        named = f"[{wanted}\0"
        pipeline = self._client.pipeline()
        pipeline.execute_command("HGET", self._keys.tasks, wanted)
        pipeline.execute_command("HGET", self._keys.by_key, wanted)
        pipeline.execute_command(
            "ZRANGEBYLEX", self._keys.by_name, named, named.encode() + b"\xff", "LIMIT", 0, 3
        )
        with self._client.reach():
            answers = await pipeline.execute()
        with self._client.understood():
            body, keyed, names = answers
            ids = set(words([keyed] if keyed else [name.rpartition(b"\0")[2] for name in names]))
        if body is not None:
            return decode(wanted, body)
        if len(ids) > 1:
            raise ambiguous_task(wanted, sorted(task_id.decode() for task_id in ids))
        for task_id in ids:
            body = await self._client.call("HGET", self._keys.tasks, task_id)
            return None if body is None else decode(task_id.decode(), body)
        return None

    async def unknown(self, wanted: str) -> UnknownTask:
        latest = await self._client.call(
            "ZREVRANGE", self._keys.changes, 0, NEAREST_AMONG - 1, read=words
        )
        found = await self.some(latest)
        near = {word for task in found.tasks for word in (task.id, task.key, task.name) if word}
        return unknown_task(wanted, near)


def _ids(answer: Any) -> list[bytes]:
    """Read a set, which the client gives as a set or as a list."""
    return words(list(answer) if isinstance(answer, set) else answer)
