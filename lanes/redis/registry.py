"""The registry port on Redis: tasks, weights and progress, shared by every process.

Reads come from Redis, writes go through the journal (`lanes.redis.writes`). A registry that lost
its data, or was set back to older ones, fills itself from the journal again, but for the counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from pushlane.lanes.ports import Changes, Edit, Fence, FoundTasks, Journal
from pushlane.lanes.redis.client import RedisClient, numbers_only
from pushlane.lanes.redis.codec import READY
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.redis.progress import TaskProgress
from pushlane.lanes.redis.pubsub import ChangeSignal
from pushlane.lanes.redis.reads import Reads
from pushlane.lanes.redis.rebuild import Rebuild
from pushlane.lanes.redis.writes import Writes
from pushlane.lanes.search import PAGE, TaskPage, TaskQuery
from pushlane.lanes.task import Finished, Moved, Progress, Span, Task, Weights

_VERSION = READY + "return ready(KEYS[1], KEYS[2]) and redis.call('GET', KEYS[1])"


class RedisRegistry:
    """See `lanes.ports.Registry`."""

    def __init__(self, client: RedisClient, keys: Keys, journal: Journal | None) -> None:
        self._client = client
        self._keys = keys
        self._reads = Reads(client, keys)
        self._writes = Writes(client, keys, journal)
        self._rebuild = Rebuild(client, keys, journal)
        self._change_signal = ChangeSignal(client, keys.change_channel)
        self._progress = TaskProgress(client, keys)

    async def add(self, task: Task) -> Task:
        return await self._writes.add(task)

    async def get(self, task_id: str) -> Task:
        await self._version()
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
        await self._version()
        return await self._reads.page(query, after, most)

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        await self._version()
        return await self._reads.some([task_id.encode() for task_id in task_ids])

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        await self._version()
        return await self._reads.ended(before_ms, most, skip)

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        return await self._writes.forget(task_id, fence)

    async def mend(self) -> None:
        await self._version()
        await self._rebuild.mend()

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
        found, forgotten = await self._reads.changed(since, version)
        return Changes(version, found.tasks, await self.weights(), found.unread, forgotten)

    async def record(self, finished: Sequence[Finished]) -> list[Progress]:
        """Count these seqs, in Redis alone: when it loses its data the counts start from zero."""
        return await self._progress.record(finished)

    async def progress(self, task_ids: Sequence[str]) -> list[Progress]:
        return await self._progress.progress(task_ids)

    async def finished(self, task_id: str, seqs: Sequence[int]) -> Sequence[bool]:
        return await self._progress.finished(task_id, seqs)

    async def move(self, moved: Sequence[Moved]) -> None:
        await self._progress.move(moved)

    async def gone(self, spans: Sequence[Span]) -> Sequence[int]:
        return await self._progress.gone(spans)

    async def counted_since_ms(self) -> int:
        return await self._client.call("GET", self._keys.counted, read=numbers_only) or 0

    async def close(self) -> None:
        await self._change_signal.close()

    async def _version(self) -> int:
        """Return the number of the latest change; fill the registry first when that is needed."""
        keys = [self._keys.version, self._keys.filled]
        version = await self._client.run(_VERSION, keys, read=numbers_only)
        if version is None:
            await self._rebuild.until_ready()
            version = await self._client.run(_VERSION, keys, read=numbers_only)
        return version or 0
