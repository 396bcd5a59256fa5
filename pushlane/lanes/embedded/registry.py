"""The registry port on SQLite: tasks as rows, one version counter over all of them.

A change is durable when it returns, and reaches other processes by polling SQLite's counter of
changes. Counts survive a crash of the process; a power cut may take the last ones back together
with the acks that followed them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pushlane.backends.embedded import registry, tasks
from pushlane.backends.embedded.cells import check_fence
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.schema import note_ended
from pushlane.core.task import Edit, Finished, Moved, Progress, Span, Task, Weights, now_ms
from pushlane.lanes.death_reasons import Deaths
from pushlane.lanes.embedded import put_off
from pushlane.lanes.finished_seqs import finished_seqs
from pushlane.lanes.ports import Changes, Fence, FoundTasks
from pushlane.lanes.search import PAGE, TaskPage, TaskQuery
from pushlane.model.due import PutOff
from pushlane.model.task_bytes import Understood

T = TypeVar("T")


class EmbeddedRegistry:
    """See `core.ports.Registry`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._news = asyncio.Event()
        self._watching = False
        self._understood = Understood()

    async def add(self, task: Task) -> Task:
        return await self._change(partial(tasks.add, task=task))

    async def get(self, task_id: str) -> Task:
        return await self._database.read(partial(tasks.find, word=task_id))

    async def change(self, task_id: str, edit: Edit, fence: Fence | None = None) -> Task:
        return await self._change(partial(tasks.change, word=task_id, edit=edit), fence)

    async def page(self, query: TaskQuery, after: str = "", most: int = PAGE) -> TaskPage:
        look = partial(tasks.page, query=query, after=after, most=most, understood=self._understood)
        return await self._database.read(look)

    async def some(self, task_ids: Sequence[str]) -> FoundTasks:
        look = partial(tasks.some, task_ids=task_ids, understood=self._understood)
        return await self._database.read(look)

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        return await self.some(task_ids)

    async def ended(self, before_ms: int, most: int, skip: int = 0) -> FoundTasks:
        look = partial(
            tasks.ended, before_ms=before_ms, most=most, skip=skip, understood=self._understood
        )
        return await self._database.read(look)

    async def forget(self, task_id: str, fence: Fence | None = None) -> bool:
        return await self._change(partial(tasks.forget, task_id=task_id), fence)

    async def discard(self, task_id: str) -> bool:
        return await self._change(partial(tasks.discard, task_id=task_id))

    async def keep_up(self) -> None:
        """The file is the truth: there is nothing that it could lack."""

    async def mend(self) -> None:
        await self._database.write(note_ended)

    async def weights(self) -> Weights:
        return await self._database.read(tasks.weights)

    async def set_weights(self, weights: Weights) -> None:
        await self._change(partial(tasks.set_weights, weights=weights))

    async def changes(self, since: int, timeout_s: float) -> Changes:
        self._watch()
        news, changes = self._news, await self._look(since)
        try:
            async with asyncio.timeout(timeout_s):
                while since and changes.version <= since:
                    await news.wait()
                    news, changes = self._news, await self._look(since)
        except TimeoutError:
            return Changes(since, [], changes.weights)
        return changes

    async def record(self, finished: Sequence[Finished]) -> list[Progress]:
        return await self._database.write(partial(registry.record, finished=finished))

    async def progress(self, task_ids: Sequence[str]) -> list[Progress]:
        return await self._database.read(partial(registry.progress, task_ids=task_ids))

    async def deaths(self, task_ids: Sequence[str]) -> list[Deaths]:
        return await self._database.read(partial(registry.deaths, task_ids=task_ids))

    async def finished(self, task_id: str, seqs: Sequence[int]) -> list[bool]:
        return await finished_seqs(self, task_id, seqs)

    async def move(self, moved: Sequence[Moved]) -> None:
        if moved:
            await self._database.write(partial(registry.move, moved=moved))

    async def put_off(self, put_offs: Sequence[PutOff]) -> None:
        job = partial(put_off.put_off, put_offs=put_offs, now_ms=now_ms())
        await self._database.write(job)

    async def put_offs(self, task_ids: Sequence[str]) -> list[list[PutOff]]:
        return await self._database.read(partial(put_off.found, task_ids=task_ids))

    async def gone(self, spans: Sequence[Span]) -> list[int]:
        return await self._database.read(partial(registry.gone, spans=spans))

    async def counted_since_ms(self) -> int:
        """Return 0: the counts lie in the store beside the tasks, and are lost only with them."""
        return 0

    async def close(self) -> None:
        """Do nothing: the store is closed by whoever opened it."""

    async def _change(
        self, job: Callable[[sqlite3.Connection], T], fence: Fence | None = None
    ) -> T:
        def fenced(connection: sqlite3.Connection) -> T:
            if fence is not None:
                check_fence(connection, fence)
            return job(connection)

        answer = await self._database.write(fenced, durable=True)
        self._tell()
        return answer

    async def _look(self, since: int) -> Changes:
        return await self._database.read(
            partial(tasks.newer_than, since=since, understood=self._understood)
        )

    def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            self._database.on_change(self._tell)

    def _tell(self) -> None:
        """Wake all who wait; later callers wait for the next event."""
        self._news.set()
        self._news = asyncio.Event()
