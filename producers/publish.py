"""The second pass over the rows: publishes them chunk by chunk, always in the same chunks.

A chunk published twice is kept once by the broker. Never goes on for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from lanes import life
from lanes.backend import Backend
from lanes.errors import BadInput, TaskConflict, UnknownLane
from lanes.ports import Source
from lanes.task import Task
from producers.ahead import ahead
from producers.chunks import Chunk, chunks
from producers.encoder import Encoder
from producers.hold import Sleep
from producers.input import InputFile, OnProgress
from producers.patience import patiently
from producers.request import Stage, SubmitProgress
from producers.rows import RowSource

Result = TypeVar("Result")


class Publisher:
    """Publishes the rows of one task on one lane, then seals it.

    `lane` is the one that the submit began on, even when the task has moved meanwhile: only there
    does the broker know what it has already.
    """

    def __init__(
        self, backend: Backend, task: Task, lane: str, total: int, tell: OnProgress, sleep: Sleep
    ) -> None:
        self._backend = backend
        self._task = task
        self._lane = lane
        self._total = total
        self._tell = tell
        self._sleep = sleep
        self.published = 0

    async def run(self, file: InputFile, source: RowSource, encoder: Encoder, size: int) -> Task:
        """The sealed task.

        Raises:
            BadInput: the file changed since it was checked; the task is cancelled.
            TaskConflict: the task ended meanwhile.
        """
        before = file.signature()
        await self._open()
        try:
            await self._publish_all(source, encoder, size)
            if file.signature() != before or self.published != self._total:
                raise BadInput(f"{source.name} changed while it was submitted")
        except BadInput as error:
            raise await self._give_up(error) from error
        seal = life.seal(self._total)
        return await self._patiently(lambda: self._backend.registry.change(self._task.id, seal))

    async def _open(self) -> None:
        await self._backend.broker.open_lane(self._lane)
        await self._backend.registry.change(self._task.id, life.start)

    async def _publish_all(self, source: RowSource, encoder: Encoder, size: int) -> None:
        encode_row = encoder.for_task(self._task)
        again = chunks(source, encoder.wanted, encode_row, size, lambda number, bad: None)
        async with ahead(again) as coming:
            async for chunk in coming:
                await self._patiently(partial(self._send, chunk))
                self.published += len(chunk)
                self._say()

    async def _send(self, chunk: Chunk) -> None:
        await self._refuse_ended()
        origin = Source(f"submit-{self._task.id}", self.published + 1)
        try:
            await self._backend.broker.publish(self._lane, chunk, source=origin)
        except UnknownLane:
            await self._refuse_ended()
            raise

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
        done = SubmitProgress(Stage.PUBLISHING, self.published, self._total, self._task.id, note)
        self._tell(done)


def refuse_ended(task: Task, published: int = 0) -> None:
    """Raises TaskConflict when the task has ended without being sealed."""
    if task.state.is_terminal and task.total is None:
        raise TaskConflict(
            f"task {task.id} is {task.state}, after {published} pushes of this submit; to send the "
            "rest, submit it under a new key"
        )
