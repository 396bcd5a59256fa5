"""The second pass over the rows publishes them chunk by chunk, always in the same chunks.

A chunk published twice is kept once by the broker. Never goes on for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from pushlane.lanes import task_transitions
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import BadInput
from pushlane.lanes.task import Task
from pushlane.producers.check import CheckedRows
from pushlane.producers.chunks import Chunk, chunks
from pushlane.producers.input import OnProgress
from pushlane.producers.lease_guard import Sleep
from pushlane.producers.prefetch import prefetched
from pushlane.producers.publish import Publication
from pushlane.producers.reconcile import reached
from pushlane.producers.request import SubmitProgress, SubmitStage
from pushlane.producers.retry import until_reachable

Result = TypeVar("Result")


class RowsPublisher:
    """Publishes the rows of one task, then seals it.

    The broker forgets an idle producer in the end, so what it has of a task made before
    `remembered_since_ms` is looked for first; and so is what an older version has published, as it
    numbered messages in another way.
    """

    def __init__(
        self,
        backend: Backend,
        task: Task,
        rows: CheckedRows,
        tell: OnProgress,
        sleep: Sleep,
        remembered_since_ms: int = 0,
    ) -> None:
        self._backend = backend
        self._task = task
        self._publication = Publication(backend, task, collapses=rows.encoder.collapses)
        self._rows = rows
        self._tell = tell
        self._sleep = sleep
        is_old = remembered_since_ms > 0 and not task.bundle
        self._is_forgotten = is_old or task.created_at_ms < remembered_since_ms
        self.published = 0

    async def run(self, size: int) -> Task:
        """Publish chunks of `size` rows, and return the sealed task.

        Raises:
            BadInput: the file changed since it was checked; the task is cancelled.
            TaskConflict: the task ended meanwhile, or nobody knows what was published of it.
        """
        await self._publication.open()
        last = await self._reached() if self._is_forgotten else 0
        try:
            await self._publish_all(size, last)
            self._refuse_changed()
        except BadInput as error:
            raise await self._give_up(error) from error
        return await self._retried(lambda: self._publication.seal(self.published))

    async def _reached(self) -> int:
        """Return the last seq that an earlier run has published."""
        self._say("the broker may have forgotten this submit: reading its lane")
        stretch = range(1, self._rows.accepted + 1)
        [last] = await self._retried(lambda: reached(self._backend, self._task, [stretch]))
        return last

    async def _publish_all(self, size: int, last: int) -> None:
        source, encoder = self._rows.source, self._rows.encoder
        encode_row = encoder.for_task(self._task)
        again = chunks(source, encoder.wanted, encode_row, size, lambda number, bad: None)
        async with prefetched(again) as coming:
            async for chunk in coming:
                known = min(max(0, last - self.published), len(chunk))
                await self._retried(partial(self._send, chunk, known))
                self.published += len(chunk)
                self._say()

    async def _send(self, chunk: Chunk, known: int) -> None:
        """Publish a chunk, of which the first `known` are on a lane, or finished, already."""
        await self._publication.publish(chunk, f"submit-{self._task.id}", known)

    def _refuse_changed(self) -> None:
        rows = self._rows
        if rows.file.signature() != rows.signature or self.published != rows.accepted:
            raise BadInput(f"{rows.file.name} changed while it was submitted")

    async def _give_up(self, error: BadInput) -> BadInput:
        task_id = self._task.id
        await self._retried(lambda: self._backend.registry.change(task_id, task_transitions.cancel))
        return type(error)(
            f"{error}. Task {task_id} is cancelled; {self.published} of its pushes had been "
            "published. Submit the whole file under a new key"
        )

    async def _retried(self, action: Callable[[], Awaitable[Result]]) -> Result:
        return await until_reachable(action, self._say, self._sleep)

    def _say(self, note: str = "") -> None:
        total, task_id = self._rows.accepted, self._task.id
        self._tell(SubmitProgress(SubmitStage.PUBLISHING, self.published, total, task_id, note))
