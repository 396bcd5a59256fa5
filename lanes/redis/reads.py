"""Reads tasks out of Redis: by id, key or name, those that changed, those in some states.

Never writes, and holds nothing between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lanes.errors import UnknownTask
from lanes.nearest import ambiguous_task, unknown_task
from lanes.redis.client import Client
from lanes.redis.keys import Keys
from lanes.task import State, Task
from lanes.task_bytes import Understood, decode

TASKS_A_CALL = 1_000
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
        return await self._tasks(await self._client.call("SMEMBERS", self._keys.active))

    async def changed(self, since: int, version: int) -> Found:
        if since == version:
            return [], []
        if since == 0 or since > version:  # a first look, or a registry that was set back
            return await self._active()
        newer = await self._client.call("ZRANGEBYSCORE", self._keys.changes, f"({since}", "+inf")
        return await self._tasks(newer)

    async def _tasks(self, ids: Iterable[bytes]) -> Found:
        wanted = [*ids]
        kept: list[tuple[str, bytes]] = []
        for start in range(0, len(wanted), TASKS_A_CALL):
            page = wanted[start : start + TASKS_A_CALL]
            bodies = await self._client.call("HMGET", self._keys.tasks, *page)
            pairs = zip(page, bodies, strict=True)
            kept += [(task_id.decode(), body) for task_id, body in pairs if body is not None]
        return self._understood.read(kept)

    async def _everything(self) -> list[Task]:
        kept: dict[str, bytes] = {}  # a scan may show one twice
        cursor, first = 0, True
        while cursor or first:
            first = False
            cursor, found = await self._client.call(
                "HSCAN", self._keys.tasks, cursor, "COUNT", TASKS_A_CALL
            )
            kept |= {task_id.decode(): body for task_id, body in found.items()}
        tasks, _ = self._understood.read(kept.items())
        return tasks

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
            body, keyed, names = await pipeline.execute()
        if body is not None:
            return decode(wanted, body)
        ids = {keyed} if keyed else {name.rpartition(b"\0")[2] for name in names}
        if len(ids) > 1:
            raise ambiguous_task(wanted, sorted(task_id.decode() for task_id in ids))
        for task_id in ids:
            body = await self._client.call("HGET", self._keys.tasks, task_id)
            return None if body is None else decode(task_id.decode(), body)
        return None

    async def unknown(self, wanted: str) -> UnknownTask:
        latest = await self._client.call("ZREVRANGE", self._keys.changes, 0, NEAREST_AMONG - 1)
        tasks, _ = await self._tasks(latest)
        words = {word for task in tasks for word in (task.id, task.key, task.name) if word}
        return unknown_task(wanted, words)
