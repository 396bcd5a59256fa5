"""The second pass over the rows: publishes them chunk by chunk, always in the same chunks.

A chunk published twice is kept once by the broker. Never goes on for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from lanes import life
from lanes.backend import Backend
from lanes.errors import BadInput, TaskConflict, UnknownLane
from lanes.marks import collapse_mark
from lanes.naming import is_pool
from lanes.ports import Source
from lanes.push import decode
from lanes.task import Task
from producers.ahead import ahead
from producers.check import CheckedRows
from producers.chunks import Chunk, chunks
from producers.hold import Sleep
from producers.input import OnProgress
from producers.patience import patiently
from producers.reconcile import reached
from producers.request import Stage, SubmitProgress

Result = TypeVar("Result")


class Publisher:
    """Publishes the rows of one task on one lane, then seals it.

    `lane` is the one that the submit began on, even when the task has moved meanwhile: only there
    does the broker know what it has already. It forgets an idle producer in the end, so a task made
    before `remembered_since_ms` is looked for first.
    """

    def __init__(
        self,
        backend: Backend,
        task: Task,
        lane: str,
        rows: CheckedRows,
        tell: OnProgress,
        sleep: Sleep,
        remembered_since_ms: int = 0,
    ) -> None:
        self._backend = backend
        self._task = task
        self._lane = lane
        self._rows = rows
        self._tell = tell
        self._sleep = sleep
        self._is_forgotten = task.created_at_ms < remembered_since_ms
        self.published = 0

    async def run(self, size: int) -> Task:
        """The sealed task. `size` is the rows of a chunk.

        Raises:
            BadInput: the file changed since it was checked; the task is cancelled.
            TaskConflict: the task ended meanwhile, or nobody knows what was published of it.
        """
        await self._open()
        last = await self._reached() if self._is_forgotten else 0
        try:
            await self._publish_all(size, last)
            self._refuse_changed()
        except BadInput as error:
            raise await self._give_up(error) from error
        seal = life.seal(self.published)
        return await self._patiently(lambda: self._backend.registry.change(self._task.id, seal))

    async def _open(self) -> None:
        keep = self._task.retention_s > 0 and not is_pool(self._lane)
        await self._backend.broker.open_lane(self._lane, keep=keep)
        await self._backend.registry.change(self._task.id, life.start)

    async def _reached(self) -> int:
        """The last seq that was published, by an earlier run."""
        self._say("the broker may have forgotten this submit: reading its lane")
        stretch = range(1, self._rows.accepted + 1)
        [last] = await self._patiently(lambda: reached(self._backend, self._task, [stretch]))
        return last

    async def _publish_all(self, size: int, last: int) -> None:
        source, encoder = self._rows.source, self._rows.encoder
        encode_row = encoder.for_task(self._task)
        again = chunks(source, encoder.wanted, encode_row, size, lambda number, bad: None)
        async with ahead(again) as coming:
            async for chunk in coming:
                known = min(max(0, last - self.published), len(chunk))
                await self._patiently(partial(self._send, chunk, known))
                self.published += len(chunk)
                self._say()

    async def _send(self, chunk: Chunk, known: int) -> None:
        """The first `known` of the chunk are on a lane, or finished."""
        await self._refuse_ended()
        origin = Source(f"submit-{self._task.id}", self.published + known + 1)
        try:
            if known < len(chunk):
                await self._backend.broker.publish(self._lane, chunk[known:], source=origin)
            if self._rows.encoder.collapses:
                await announce(self._backend, self._task, chunk)
        except UnknownLane:
            await self._refuse_ended()
            raise

    def _refuse_changed(self) -> None:
        rows = self._rows
        if rows.file.signature() != rows.signature or self.published != rows.accepted:
            raise BadInput(f"{rows.file.name} changed while it was submitted")

    async def _refuse_ended(self) -> None:
        refuse_ended(await self._backend.registry.get(self._task.id), self.published)

    async def _give_up(self, error: BadInput) -> BadInput:
        task_id = self._task.id
        await self._patiently(lambda: self._backend.registry.change(task_id, life.cancel))
        return type(error)(
            f"{error}. Task {task_id} is cancelled; {self.published} of its pushes had been "
            "published. Submit the whole file under a new key"
        )

    async def _patiently(self, action: Callable[[], Awaitable[Result]]) -> Result:
        return await patiently(action, self._say, self._sleep)

    def _say(self, note: str = "") -> None:
        total, task_id = self._rows.accepted, self._task.id
        self._tell(SubmitProgress(Stage.PUBLISHING, self.published, total, task_id, note))


async def announce(backend: Backend, task: Task, bodies: Sequence[bytes]) -> None:
    """Only what is on the lane may replace what waits there: else both could be lost."""
    pushes = map(decode, bodies)
    marks = [collapse_mark(task.app, push) for push in pushes if push.collapse]
    await backend.marks.announce(marks)


def refuse_ended(task: Task, published: int = 0) -> None:
    """Raises TaskConflict when the task has ended without being sealed."""
    if task.state.is_terminal and task.total is None:
        raise TaskConflict(
            f"task {task.id} is {task.state}, after {published} pushes of this submit; to send the "
            "rest, submit it under a new key"
        )
