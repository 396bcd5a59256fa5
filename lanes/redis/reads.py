"""Reads tasks out of Redis: by id, key or name, those that changed, those in some states.

Never writes, and holds nothing between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lanes.errors import UnknownTask
from lanes.nearest import ambiguous_task, unknown_task
from lanes.redis.client import Client, words
from lanes.redis.keys import Keys
from lanes.task import State, Task
from lanes.task_bytes import Understood, decode

TASKS_A_CALL = 500  # so many are read without a pause
NEAREST_AMONG = 1_000

Found = tuple[list[Task], list[str]]
"""Tasks, and the ids of those that only a newer version understands."""


class Reads:
    """What tasks there are."""

    def __init__(self, client: Client, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._understood = Understood()

    async def in_states(self, states: Sequence[State]) -> list[Task]:
        """Oldest first; all of them when no state is named."""
        if states and not any(state.is_terminal for state in states):
            tasks, _ = await self._active()
        else:
            tasks = await self._everything()
        kept = [task for task in tasks if not states or task.state in states]
        return sorted(kept, key=lambda task: (task.created_at_ms, task.id))

    async def _active(self) -> Found:
        return await self._tasks(await self._client.call("SMEMBERS", self._keys.active, read=_ids))

    async def changed(self, since: int, version: int) -> Found:
        if since == version:
            return [], []
        if since == 0 or since > version:  # a first look, or a registry that was set back
            return await self._active()
        newer = await self._client.call(
            "ZRANGEBYSCORE", self._keys.changes, f"({since}", "+inf", read=words
        )
        return await self._tasks(newer)

    async def _tasks(self, ids: Iterable[bytes]) -> Found:
        wanted = [*ids]
        tasks: list[Task] = []
        unread: list[str] = []
        for start in range(0, len(wanted), TASKS_A_CALL):
            page = wanted[start : start + TASKS_A_CALL]
            bodies = await self._client.call("HMGET", self._keys.tasks, *page, read=_bodies)
            pairs = zip(page, bodies, strict=True)
            found = self._understood.read(
                (task_id.decode(), body) for task_id, body in pairs if body
            )
            tasks += found[0]
            unread += found[1]
        return tasks, unread

    async def _everything(self) -> list[Task]:
        tasks: dict[str, Task] = {}  # a scan may show one twice
        cursor, first = 0, True
        while cursor or first:
            first = False
            cursor, found = await self._client.call(
                "HSCAN", self._keys.tasks, cursor, "COUNT", TASKS_A_CALL, read=_page
            )
            page, _ = self._understood.read(
                (task_id.decode(), body) for task_id, body in found.items()
            )
            tasks |= {task.id: task for task in page}
        return list(tasks.values())

    async def find(self, wanted: str) -> Task | None:
        """The task of this id, key or name."""
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
        tasks, _ = await self._tasks(latest)
        near = {word for task in tasks for word in (task.id, task.key, task.name) if word}
        return unknown_task(wanted, near)


def _ids(answer: Any) -> list[bytes]:
    """A set, which the client gives as a set or as a list."""
    return words(list(answer) if isinstance(answer, set) else answer)


def _bodies(answer: Any) -> list[bytes | None]:
    """What is there of what was asked for, in that order."""
    words([body for body in answer if body is not None])
    return list(answer)


def _page(answer: Any) -> tuple[int, dict[bytes, bytes]]:
    cursor, found = answer
    words([*found, *found.values()])
    return int(cursor), dict(found)
