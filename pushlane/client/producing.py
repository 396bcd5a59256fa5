"""The producer that an application has: it sends on a backend, or through a server.

Through a server its pushes are lines of a task there, in their order: what is cut off goes on from
the last line that is safe, so that each is on its lane once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from pushlane.backends.backend import Connect
from pushlane.client.lines import Lines
from pushlane.client.remote import Remote
from pushlane.core.errors import InvalidChange, TaskConflict, Unreachable, UserError
from pushlane.core.publish import Ended
from pushlane.core.push import decode
from pushlane.core.task import DeliveryMode
from pushlane.operations.receiving import CreateTask, SealTask
from pushlane.operations.task_views import TaskView
from pushlane.operations.tasks import GetTask
from pushlane.producers import producer
from pushlane.producers.lines import in_requests, line_of
from pushlane.producers.outbox.sender import Sender
from pushlane.producers.outbox.store import Added
from pushlane.util.errors import LinesBusy, NotFound, NotNow, Unauthorized

T = TypeVar("T")

TOUCH_S = 240.0
"""A task that gets no line for ten minutes counts as stalled: after so long it says it is there."""

_OPEN_AGAIN = "open the producer again to go on with a new task"


class Producer(producer.Producer):
    __doc__ = producer.Producer.__doc__

    def _sends_by(self) -> type[Sender]:
        is_remote = bool(self._settings.url) and self._connect is None
        return ServerSender if is_remote else super()._sends_by()


class ServerSender(Sender):
    """Sends what a store keeps through a server; a batch is forgotten once it is on its lane."""

    _lines: Lines | None = None

    async def run(self, connected: Connect | None = None) -> None:
        """Send until it is over and nothing is left.

        Raises Ended when the task has ended or was forgotten, or when lines before those that are
        left are missing, and what the server refuses.
        """
        async with Remote(self.settings) as remote:
            task = await self._asked(partial(self._made, remote))
            if task.total is not None:  # it was sealed, and then the process was killed
                return
            self._lines = lines = Lines(remote, task.id)
            await self._asked(lines.look)
            while batches := await self._coming():
                await self._send_lines(lines, [body for one in batches for body in one.bodies])
                for batch in batches:
                    await self._on_disk(self.store.ack, batch)
                self.on_sent(batches)
            if self.store.header.is_sealed:
                seal = SealTask(task=task.id, total=self.store.published)
                await self._asked(partial(remote.do, seal))

    async def _made(self, remote: Remote) -> TaskView:
        """Return the task at the server. One that it had before is never made again."""
        task, store = self._task, self.store
        if store.header.added is Added.YES:
            try:
                return await remote.do(GetTask(task=task.id))
            except NotFound as error:
                raise Ended(
                    f"task {task.id} was forgotten: the rest is never sent; {_OPEN_AGAIN}"
                ) from error
        await self._on_disk(store.note_added, Added.BEGUN)
        wanted = CreateTask(
            id=task.id,
            key=task.key or f"producer-{task.id}",
            level=task.level,
            app=task.app,
            name=task.name,
            quota=task.quota,
            sinks=task.sinks,
            max_attempts=task.max_attempts,
            delivery=task.delivery,
            on_unknown=task.on_unknown if task.delivery is DeliveryMode.ONCE else None,
            quiet=task.quiet,
            zone=task.zone,
            stop_if_dead=task.stop_if_dead,
            ordered=task.ordered,
            deliver="at_once",
        )
        made = await remote.do(wanted)
        await self._on_disk(store.note_added, Added.YES)
        return made

    async def _send_lines(self, lines: Lines, bodies: Sequence[bytes]) -> None:
        """Send pushes that follow each other, and return once they are on their lane."""
        pushes = [decode(body) for body in bodies]
        first = pushes[0].seq
        for some in in_requests(line_of(push, self._task) for push in pushes):
            await self._asked(partial(lines.send, some, first))
            first += len(some)

    async def _wait(self) -> None:
        """Wait for news; say now and then that more may come."""
        assert self._lines is not None
        while not self.news.is_set():
            try:
                async with asyncio.timeout(TOUCH_S):
                    await self.news.wait()
            except TimeoutError:
                await self._asked(partial(self._lines.send, (), self._lines.safe + 1))

    async def _asked(self, action: Callable[[], Awaitable[T]]) -> T:
        """Do it until the server answers, and takes the token. Raises Ended, and refusals."""

        async def tried() -> T:
            try:
                return await action()
            except (LinesBusy, NotNow, Unauthorized) as error:
                # a process that died sends on for some seconds; a token may be rotated
                raise Unreachable(str(error)) from error
            except (InvalidChange, NotFound, TaskConflict) as error:
                raise Ended(f"{error}; {_OPEN_AGAIN}") from error

        try:
            return await self._retried(tried)
        except Ended:
            raise
        except UserError as error:
            raise TaskConflict(f"the server refuses pushes of this producer: {error}") from error
