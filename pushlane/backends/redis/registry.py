"""The registry port on Redis: tasks, weights and progress, shared by every process.

Reads come from Redis, writes go through the journal (`backends.redis.writes`). A registry that lost
its data, or was set back to older ones, fills itself from the journal again, but for the counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from pushlane.backends.redis.client import RedisClient, numbers_only, words
from pushlane.backends.redis.journal import JournalAnswers
from pushlane.backends.redis.journal_follower import JournalFollower
from pushlane.backends.redis.keys import Keys
from pushlane.backends.redis.progress import TaskProgress
from pushlane.backends.redis.rebuild import Rebuild
from pushlane.backends.redis.writes import Writes
from pushlane.core.task import Task, Weights, now_ms
from pushlane.lanes.finished_seqs import finished_seqs
from pushlane.lanes.ports import Changes, Edit, Fence, FoundTasks, Journal
from pushlane.lanes.redis.begun_adds import BegunAdds
from pushlane.lanes.redis.pubsub import ChangeSignal
from pushlane.lanes.redis.put_off import RedisPutOff
from pushlane.lanes.redis.task_reads import TaskReads
from pushlane.lanes.search import PAGE, TaskPage, TaskQuery
from pushlane.model.due import PutOff


class RedisRegistry(TaskProgress):
    """See `core.ports.Registry`."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        super().__init__(client, keys)
        self._writes = Writes(client, keys, journal)
        self._begun_adds = BegunAdds(client, keys, journal)
        self._rebuild = Rebuild(client, keys, journal)
        self._follower = JournalFollower(client, keys, journal)
        self._change_signal = ChangeSignal(client, keys.change_channel)
        self._reads = TaskReads(client, keys, self._until_ready)
        self._journal_answers = JournalAnswers(journal)
        self._put_off = RedisPutOff(client, keys)
        self._filling: asyncio.Task[None] | None = None

    async def add(self, task: Task) -> Task:
        return await self._writes.add(task)

    async def get(self, task_id: str) -> Task:
        found = await self._reads.find(task_id)
        if found is None:
            raise await self._reads.unknown(task_id)
        return found

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        changed = await self._writes.change(task_id, edit, fence)
        if changed is None:  # a key or a name, or no task at all
            changed = await self._writes.change((await self.get(task_id)).id, edit, fence)
        if changed is None:
            raise await self._reads.unknown(task_id)
        return changed

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        """See `core.ports.TaskStore.page`. A page ends at the id of its last task."""
        start = f"({after}" if after else "+"
        order = self._keys.open if query.is_of_active else self._keys.order
        ids = await self._reads.call(
            "ZRANGE", order, start, "-", "BYLEX", "REV", "LIMIT", 0, most, read=words
        )
        found = await self._reads.some(ids)
        last = ids[-1].decode() if len(ids) == most else ""
        return TaskPage([task for task in found.tasks if query.fits(task)], last)

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        return await self._reads.some([task_id.encode() for task_id in task_ids])

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        found = await self.some(task_ids)
        unknown = _unknown(task_ids, found)
        if not unknown:
            return found
        lacking = await self._journal_answers.lacking(unknown)
        again = await self.some(unknown)  # it may have come back meanwhile
        gone = lacking & {*_unknown(unknown, again)}
        return FoundTasks(
            [*found.tasks, *again.tasks],
            [*found.unread, *again.unread],
            [*found.forgotten, *again.forgotten, *gone],
        )

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        span = ("-inf", f"({before_ms}", "BYSCORE", "LIMIT", skip, most)
        ids = await self._reads.call("ZRANGE", self._keys.ended, *span, read=words)
        return await self._reads.some(ids)

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        is_forgotten = await self._writes.forget(task_id, fence)
        if is_forgotten:
            await self._put_off.forget(task_id)
        return is_forgotten

    async def discard(self, task_id: str) -> bool:
        return await self._writes.discard(task_id)

    async def mend(self) -> None:
        await self._reads.version()
        await self._rebuild.mend()
        await self._begun_adds.drop_old()

    async def keep_up(self) -> None:
        await self._follower.look()

    async def weights(self) -> Weights:
        return await self._reads.call(
            "GET",
            self._keys.weights,
            read=lambda kept: Weights.parse(kept.decode()) if kept else Weights(),
        )

    async def set_weights(self, weights: Weights) -> None:
        await self._writes.set_weights(weights)

    async def changes(self, since: int, timeout_s: float) -> Changes:
        deadline = time.monotonic() + timeout_s
        version = await self._reads.version()
        while version == since and (left_s := deadline - time.monotonic()) > 0:
            await self._change_signal.wait(left_s)
            version = await self._reads.version()
        # Tasks are read after the version: what changes in between comes again, and is not missed.
        found = await self._changed(since, version)
        return Changes(version, found.tasks, await self.weights(), found.unread, found.forgotten)

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

    async def _until_ready(self) -> None:
        """Wait until the registry is filled. A caller that gives up does not end the filling."""
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._rebuild.until_ready(), name="fill registry")
        await asyncio.shield(self._filling)

    async def _changed(self, since: int, version: int) -> FoundTasks:
        """Return what is new of tasks since then."""
        if since == version:
            return FoundTasks([])
        reads, keys = self._reads, self._keys
        if since == 0 or since > version:  # a first look, or a registry that was set back
            return await reads.some(await reads.call("SMEMBERS", keys.active, read=words))
        span = (keys.changes, f"({since}", "+inf")
        return await reads.some(await reads.call("ZRANGEBYSCORE", *span, read=words))


def _unknown(task_ids: Sequence[str], found: FoundTasks) -> list[str]:
    """Return those of which nothing was found."""
    known = {*(task.id for task in found.tasks), *found.unread, *found.forgotten}
    return [task_id for task_id in task_ids if task_id not in known]
