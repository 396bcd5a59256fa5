"""The registry port on Redis: tasks, weights and progress, shared by every process.

Reads come from Redis, writes go through the journal (`lanes.redis.writes`). A registry that lost
its data, or was set back to older ones, fills itself from the journal again, but for the counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from pushlane.lanes.errors import UnknownTask
from pushlane.lanes.finished_seqs import finished_seqs
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import Changes, Edit, Fence, FoundTasks, Journal
from pushlane.lanes.put_off import PutOff
from pushlane.lanes.redis.begun_adds import BegunAdds
from pushlane.lanes.redis.client import RedisClient, bodies_only, numbers_only, words
from pushlane.lanes.redis.codec import READY
from pushlane.lanes.redis.journal_follower import JournalFollower
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.redis.progress import TaskProgress
from pushlane.lanes.redis.pubsub import ChangeSignal
from pushlane.lanes.redis.put_off import RedisPutOff
from pushlane.lanes.redis.rebuild import Rebuild
from pushlane.lanes.redis.writes import Writes
from pushlane.lanes.search import PAGE, TaskPage, TaskQuery
from pushlane.lanes.suggestions import ambiguous_task, unknown_task
from pushlane.lanes.task import Task, Weights
from pushlane.lanes.task_bytes import Understood, decode
from pushlane.lanes.task_transitions import now_ms

TASKS_A_CALL = 200  # so many are read without a pause: two or three ms
NEAREST_AMONG = 1_000

_VERSION = READY + "return ready(KEYS[1], KEYS[2]) and redis.call('GET', KEYS[1])"


class RedisRegistry(TaskProgress):
    """See `lanes.ports.Registry`."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        super().__init__(client, keys)
        self._writes = Writes(client, keys, journal)
        self._begun_adds = BegunAdds(client, keys, journal)
        self._rebuild = Rebuild(client, keys, journal)
        self._follower = JournalFollower(client, keys, journal)
        self._change_signal = ChangeSignal(client, keys.change_channel)
        self._understood = Understood()
        self._put_off = RedisPutOff(client, keys)
        self._filling: asyncio.Task[None] | None = None

    async def add(self, task: Task) -> Task:
        return await self._writes.add(task)

    async def get(self, task_id: str) -> Task:
        await self._version()
        found = await self._find(task_id)
        if found is None:
            raise await self._unknown(task_id)
        return found

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        changed = await self._writes.change(task_id, edit, fence)
        if changed is None:  # a key or a name, or no task at all
            changed = await self._writes.change((await self.get(task_id)).id, edit, fence)
        if changed is None:
            raise await self._unknown(task_id)
        return changed

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        """See `lanes.ports.TaskStore.page`. A page ends at the id of its last task."""
        await self._version()
        start = f"({after}" if after else "+"
        order = self._keys.open if query.is_of_active else self._keys.order
        ids = await self._client.call(
            "ZRANGE", order, start, "-", "BYLEX", "REV", "LIMIT", 0, most, read=words
        )
        found = await self._read(ids)
        last = ids[-1].decode() if len(ids) == most else ""
        return TaskPage([task for task in found.tasks if query.fits(task)], last)

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        await self._version()
        return await self._read([task_id.encode() for task_id in task_ids])

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        await self._version()
        span = ("-inf", f"({before_ms}", "BYSCORE", "LIMIT", skip, most)
        return await self._read(
            await self._client.call("ZRANGE", self._keys.ended, *span, read=words)
        )

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        is_forgotten = await self._writes.forget(task_id, fence)
        if is_forgotten:
            await self._put_off.forget(task_id)
        return is_forgotten

    async def discard(self, task_id: str) -> bool:
        return await self._writes.discard(task_id)

    async def mend(self) -> None:
        await self._version()
        await self._rebuild.mend()
        await self._begun_adds.drop_old()

    async def keep_up(self) -> None:
        await self._follower.look()

    async def weights(self) -> Weights:
        await self._version()
        return await self._client.call(
            "GET",
            self._keys.weights,
            read=lambda kept: Weights.parse(kept.decode()) if kept else Weights(),
        )

    async def set_weights(self, weights: Weights) -> None:
        await self._writes.set_weights(weights)

    async def changes(self, since: int, timeout_s: float) -> Changes:
        deadline = time.monotonic() + timeout_s
        version = await self._version()
        while version == since and (left_s := deadline - time.monotonic()) > 0:
            await self._change_signal.wait(left_s)
            version = await self._version()
        # Tasks are read after the version: what changes in between comes again, and is not missed.
        found, forgotten = await self._changed(since, version)
        return Changes(version, found.tasks, await self.weights(), found.unread, forgotten)

    async def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        return await finished_seqs(self, task_id, seqs)

    async def put_off(self, put_offs: Sequence[PutOff]) -> None:
        await self._put_off.put_off(put_offs, now_ms())

    async def put_offs(self, task_ids: Sequence[str]) -> list[list[PutOff]]:
        return await self._put_off.found(task_ids)

    async def counted_since_ms(self) -> int:
        return await self._client.call("GET", self._keys.counted, read=numbers_only) or 0

    async def close(self) -> None:
        await self._change_signal.close()
        await self._follower.close()
        if self._filling is not None:
            self._filling.cancel()
            await asyncio.wait([self._filling])

    async def _version(self) -> int:
        """Return the number of the latest change; fill the registry first when that is needed."""
        keys = [self._keys.version, self._keys.filled]
        version = await self._client.run(_VERSION, keys, read=numbers_only)
        if version is None:
            await self._until_ready()
            version = await self._client.run(_VERSION, keys, read=numbers_only)
        return version or 0

    async def _until_ready(self) -> None:
        """Wait until the registry is filled. A caller that gives up does not end the filling."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._rebuild.until_ready(), name="fill registry")
        await asyncio.shield(self._filling)

    async def _changed(self, since: int, version: int) -> tuple[FoundTasks, list[str]]:
        """Return the tasks that are new, and the ids of those that are not there any more."""
        if since == version:
            return FoundTasks([]), []
        if since == 0 or since > version:  # a first look, or a registry that was set back
            return await self._read(
                await self._client.call("SMEMBERS", self._keys.active, read=words)
            ), []
        newer = await self._client.call(
            "ZRANGEBYSCORE", self._keys.changes, f"({since}", "+inf", read=words
        )
        found = await self._read(newer)
        there = {*(task.id for task in found.tasks), *found.unread}
        return found, [one for task_id in newer if (one := task_id.decode()) not in there]

    async def _read(self, task_ids: Sequence[bytes]) -> FoundTasks:
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

    async def _find(self, wanted: str) -> Task | None:
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

    async def _unknown(self, wanted: str) -> UnknownTask:
        latest = await self._client.call(
            "ZREVRANGE", self._keys.changes, 0, NEAREST_AMONG - 1, read=words
        )
        found = await self._read(latest)
        near = {word for task in found.tasks for word in (task.id, task.key, task.name) if word}
        return unknown_task(wanted, near)
