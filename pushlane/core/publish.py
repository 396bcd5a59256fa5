"""The one way to put the pushes of a registered task on its lane: open, publish, seal.

Each step can be repeated, and none may go on for a task that has ended. Who does so holds the
task's lease; what makes the pushes, and what a crash leaves of them, is each caller's
(docs/producers.md has all of them in one table).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pushlane.core.errors import TaskConflict, UnknownLane
from pushlane.core.names import is_pool
from pushlane.core.ports import LaneBroker, Source
from pushlane.core.task import Edit, Task, seal, start
from pushlane.wire import Packed, bodies_of, packed

_CHUNK_ROWS = 4_096
_SUBMIT_AGAIN = "to send the rest, submit it under a new key"


def chunk_size(batch: int) -> int:
    """Return how many pushes to publish at a time: about 4,096, rounded down to whole bundles."""
    return max(1, _CHUNK_ROWS // batch) * batch


class Ended(TaskConflict):
    """The task has ended before all of it was published; the rest is never sent."""


class TaskChanges(Protocol):
    """Lanes and tasks, as far as who publishes needs them."""

    @property
    def broker(self) -> LaneBroker:
        """Where the lanes are."""

    async def known(self, task_id: str) -> Task:
        """Return a task that was added before.

        Raises:
            UnknownTask: it was forgotten.
            TaskInDoubt: the registry does not have it now, and it may be under way.
            UnknownFormat: only a newer version understands it, or it is damaged.
        """

    async def change_known(self, task_id: str, edit: Edit) -> Task:
        """Replace a task that was added before by `edit(task)`, atomically. Raises as `known`."""


Announce = Callable[[Task, Sequence[bytes]], Awaitable[None]]
"""Tells others of pushes of a task that are on its lane now."""


class Publication:
    """The publishing of one task, step by step.

    All of it goes on the task's first lane, even if the task has moved to another meanwhile: the
    broker knows a repeated publish only on the lane where it came first.
    `announce` is called with pushes once they are on the lane. `hidden`: dispatchers leave the task
    alone until it is sealed. `advice` is what to do should it end meanwhile.
    """

    def __init__(
        self,
        backend: TaskChanges,
        task: Task,
        *,
        announce: Announce | None = None,
        hidden: bool = False,
        advice: str = _SUBMIT_AGAIN,
    ) -> None:
        self.lane = task.first_lane or task.lane
        self._backend = backend
        self.task = task
        self._announce = announce
        self._hidden = hidden
        self.published, self._advice = 0, advice
        self.after: int | None = None  # as in `ports.Source`

    async def open(self) -> Task:
        """Open the lane, so that it keeps what is published, and return the task. Raises Ended."""
        await self.refuse_ended()
        await self.open_lane()
        if self._hidden:
            return self.task
        return await self._backend.change_known(self.task.id, start)

    async def open_lane(self) -> None:
        keep = self.task.retention_s > 0 and not is_pool(self.lane)
        await self._backend.broker.open_lane(self.lane, keep=keep)

    async def publish(self, bodies: Sequence[bytes], name: str, known: int = 0) -> None:
        """Publish the bodies in bundles, durably, under the name of a source (`ports.Source`).

        The same bodies may be published again under that name: the broker keeps them once. The
        first `known` are on the lane, or finished, already.

        Raises:
            Ended: the task has.
            TaskConflict: another publishes by this name.
        """
        new = bodies[known:] if known else bodies
        await self.publish_packed(list(packed(new, self.task.bundle)), name)
        if self._announce and known:
            await self._announce(self.task, bodies[:known])

    async def publish_packed(self, bundles: Sequence[Packed], name: str) -> None:
        """Publish bundles that were packed before; a repeat must give the same ones."""
        await self.refuse_ended()
        messages = [bundle.message for bundle in bundles]
        source = Source(name, [bundle.last_seq for bundle in bundles], self.after)
        try:
            if messages:
                await self._backend.broker.publish(self.lane, messages, source=source)
        except UnknownLane:
            await self.refuse_ended()
            raise
        if self._announce:
            bodies = [body for message in messages for body in bodies_of(message)]
            await self._announce(self.task, bodies)
        self.published += sum(bundle.pushes for bundle in bundles)

    async def seal(self, total: int, last_seq: int = 0) -> Task:
        """Seal the task, all of which is published now, and return it.

        The `last_seq` is to be given where the seqs have steps, so that it is not the total.

        Raises:
            Ended: the task has, since the last publish.
            InvalidChange: it is sealed with another total.
        """

        def edit(task: Task) -> Task:
            refuse_ended(task, self._advice, self.published)
            sealed = seal(total, last_seq)(task)
            return start(sealed) if self._hidden else sealed

        return await self._backend.change_known(self.task.id, edit)

    async def refuse_ended(self) -> None:
        task = await self._backend.known(self.task.id)
        refuse_ended(task, self._advice, self.published)


def refuse_ended(task: Task, advice: str = _SUBMIT_AGAIN, published: int = 0) -> None:
    """Raises Ended when the task has ended without being sealed."""
    if task.state.is_terminal and task.total is None:
        after = f", after {published} pushes" if published else ""
        raise Ended(f"task {task.id} is {task.state}{after}: the rest is never sent; {advice}")
