"""The one way to put a task's pushes on its lane: open the lane, publish, seal the task.

Each step can be repeated, and none may go on for a task that has ended. Who does so holds the
task's lease; what makes the pushes, and what a crash leaves of them, is each caller's
(docs/producers.md has all of them in one table).
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.lanes import task_transitions
from pushlane.lanes.backend import Backend
from pushlane.lanes.bundle import Packed, bodies_of, packed
from pushlane.lanes.errors import TaskConflict, UnknownLane
from pushlane.lanes.naming import is_pool
from pushlane.lanes.ports import Source
from pushlane.lanes.push import decode
from pushlane.lanes.recipient_window import collapse_mark
from pushlane.lanes.task import Task

_CHUNK_ROWS = 4_096
_SUBMIT_AGAIN = "to send the rest, submit it under a new key"


def chunk_size(batch: int) -> int:
    """Return how many pushes to publish at a time: about 4,096, rounded down to whole bundles."""
    return max(1, _CHUNK_ROWS // batch) * batch


class Ended(TaskConflict):
    """The task has ended before all of it was published; the rest is never sent."""


class Publication:
    """A task that is published to its first lane, wherever it moved: the broker dedupes only there.

    `collapses` says that its pushes may replace others. `hidden`: dispatchers leave it alone until
    it is sealed. `advice` is what to do should it end meanwhile.
    """

    def __init__(
        self,
        backend: Backend,
        task: Task,
        *,
        collapses: bool = False,
        hidden: bool = False,
        advice: str = _SUBMIT_AGAIN,
    ) -> None:
        self.lane = task.first_lane or task.lane
        self._backend = backend
        self._task = task
        self._collapses = collapses
        self._hidden = hidden
        self.published = 0
        self._advice = advice

    async def open(self) -> Task:
        """Open the lane, so that it keeps what is published, and return the task. Raises Ended."""
        await self.refuse_ended()
        await self.open_lane()
        if self._hidden:
            return self._task
        return await self._backend.change_known(self._task.id, task_transitions.start)

    async def open_lane(self) -> None:
        keep = self._task.retention_s > 0 and not is_pool(self.lane) and not self._hidden
        await self._backend.broker.open_lane(self.lane, keep=keep)

    async def publish(self, bodies: Sequence[bytes], name: str, known: int = 0) -> None:
        """Publish the bodies in bundles, durably; of what `name` publishes twice one is kept.

        The first `known` are on the lane, or finished, already.

        Raises:
            Ended: the task has.
            TaskConflict: another publishes by this name.
        """
        new = bodies[known:] if known else bodies
        await self.publish_packed(list(packed(new, self._task.bundle or 1)), name)
        if self._collapses and known:
            await announce(self._backend, self._task, bodies[:known])

    async def publish_packed(self, bundles: Sequence[Packed], name: str) -> None:
        """Publish bundles that were packed before; a repeat must give the same ones."""
        await self.refuse_ended()
        messages = [bundle.message for bundle in bundles]
        source = Source(name, [bundle.last_seq for bundle in bundles])
        try:
            if messages:
                await self._backend.broker.publish(self.lane, messages, source=source)
        except UnknownLane:
            await self.refuse_ended()
            raise
        if self._collapses:
            bodies = [body for message in messages for body in bodies_of(message)]
            await announce(self._backend, self._task, bodies)
        self.published += sum(bundle.pushes for bundle in bundles)

    async def seal(self, total: int) -> Task:
        """Seal the task, all of which is published now, and return it.

        Raises:
            Ended: the task has, since the last publish.
            InvalidChange: it is sealed with another total.
        """

        def edit(task: Task) -> Task:
            refuse_ended(task, self._advice, self.published)
            sealed = task_transitions.seal(total)(task)
            return task_transitions.start(sealed) if self._hidden else sealed

        return await self._backend.change_known(self._task.id, edit)

    async def refuse_ended(self) -> None:
        task = await self._backend.known(self._task.id)
        refuse_ended(task, self._advice, self.published)


async def announce(backend: Backend, task: Task, bodies: Sequence[bytes]) -> None:
    """Announce collapse keys of pushes that are on the lane; earlier, both pushes could be lost."""
    pushes = map(decode, bodies)
    marks = [collapse_mark(task.app, push) for push in pushes if push.collapse]
    if marks:
        await backend.recipient_windows.announce(marks)


def refuse_ended(task: Task, advice: str = _SUBMIT_AGAIN, published: int = 0) -> None:
    """Raises Ended when the task has ended without being sealed."""
    if task.state.is_terminal and task.total is None:
        after = f", after {published} pushes" if published else ""
        raise Ended(f"task {task.id} is {task.state}{after}: the rest is never sent; {advice}")
