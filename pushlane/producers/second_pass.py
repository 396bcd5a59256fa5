"""The second pass over the rows of a submit sends the pushes of its task, and then ends it.

Where they go, the lanes of a backend or a server, is what its kinds differ in. Once it is begun,
each step can be repeated, and is when a service was lost in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from pushlane.core.errors import BadInput
from pushlane.core.task import Progress, Task
from pushlane.model.limits import Limit
from pushlane.producers.check import CheckedRows
from pushlane.producers.request import (
    OnProgress,
    SubmitProgress,
    SubmitRequest,
    SubmitStage,
    Submitted,
)
from pushlane.producers.rows import prefetched
from pushlane.util.retrying import Sleep, until_reachable

Result = TypeVar("Result")


class Begun(NamedTuple):
    """Up to which seq a task was sent before, and what it is limited to if that was asked for."""

    reached: int
    limit: Limit | None = None


@dataclass(eq=False, repr=False)
class SecondPass(ABC):
    """The second pass over the rows of one task, which takes `size` of them at a time.

    `sent` is the seq up to which all is sent, as far as it knows.
    """

    task: Task
    request: SubmitRequest
    rows: CheckedRows
    tell: OnProgress
    sleep: Sleep

    def __post_init__(self) -> None:
        self.sent, self.size = 0, 4_096
        accepted, first = self.rows.accepted, self.request.first
        self.is_part = first is not None
        self.end = accepted if first is None else min(first, accepted)

    @abstractmethod
    async def progress(self) -> Progress:
        """Return what has become of the pushes of the task, which is complete."""

    @abstractmethod
    async def begin(self) -> Begun:
        """Make ready to send. Raises Unreachable when a service is away at the start."""

    @abstractmethod
    def steps(self, bodies: list[bytes], before: int) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield what sends the pushes behind the seq `before`, one step after another."""

    @abstractmethod
    async def close(self) -> Task:
        """Seal the task, all of which is sent, or end this part of it; return the task."""

    @abstractmethod
    async def cancel(self) -> None:
        """Cancel the task, since its rest cannot be sent."""

    async def run(self) -> Submitted:
        """Send the rows and return the task sealed, or the first of them and return the task.

        Raises BadInput if the file changed since it was checked, or a row is refused after all: the
        task is cancelled then; and whatever its steps raise.
        """
        rows = self.rows
        result = Submitted(self.task, 0, rows.rejected, rows.rejects, accepted=rows.accepted)
        if self.task.total is not None:
            return replace(result, already_done=True, progress=await self.progress())
        begun = await self.begin()
        result = replace(result, limit=begun.limit)
        if self.is_part and self.end <= begun.reached:
            return replace(result, part=begun.reached)
        try:
            read = await self._send_all()
            rows.refuse_changed(read + rows.accepted - self.end)
        except BadInput as error:
            raise await self._give_up(error) from error
        task = await self.retried(self.close)
        part = self.end if self.is_part else None
        return replace(result, task=task, published=self.end - begun.reached, part=part)

    async def _send_all(self) -> int:
        """Send the rows up to the end; return how many of them there were to read."""
        read = 0
        async with prefetched(self.rows.chunks(self.task, self.size)) as coming:
            async for chunk in coming:
                some = chunk[: self.end - read]
                for step in self.steps(some, read):
                    await self.retried(step)
                read += len(some)
                self.say()
                if self.is_part and read >= self.end:
                    break
        return read

    async def _give_up(self, error: BadInput) -> BadInput:
        await self.retried(self.cancel)
        return type(error)(
            f"{error}. Task {self.task.id} is cancelled; {self.sent} of its pushes had been "
            "published. Submit the whole file under a new key"
        )

    async def retried(self, action: Callable[[], Awaitable[Result]]) -> Result:
        """Do a step again until its service answers."""
        return await until_reachable(action, self.say, self.sleep)

    def say(self, note: str = "") -> None:
        """Tell how far it is."""
        sent = min(self.sent, self.end)
        self.tell(SubmitProgress(SubmitStage.PUBLISHING, sent, self.end, self.task.id, note))
