"""Sends the batches of one stream: registers the task, opens its lane, publishes, and seals.

A service that is away is waited for. A batch is forgotten only once the broker has it, and one
that is sent again is the same one, so that it is kept once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from pushlane.lanes.backend import Backend, connect
from pushlane.lanes.bundle import Packed, packed
from pushlane.lanes.errors import TaskConflict, UnknownLane, UnknownTask, Unreachable
from pushlane.lanes.naming import submit_lease
from pushlane.lanes.settings import Settings
from pushlane.lanes.task import Task
from pushlane.producers.lease_guard import LeaseGuard
from pushlane.producers.outbox.folder import Stream
from pushlane.producers.outbox.store import Batch
from pushlane.producers.publish import Ended, Publication, announce, refuse_ended
from pushlane.producers.reconcile import reached
from pushlane.producers.retry import until_reachable

log = logging.getLogger("pushlane.producer")

P = ParamSpec("P")
T = TypeVar("T")

_OPEN_AGAIN = "open the producer again to go on with a new task"


class Watcher(Protocol):
    """Follows a sender's work; the sender calls its methods."""

    def on_sent(self, batches: Sequence[Batch]) -> None: ...

    def on_idle(self) -> None:
        """Take note that all that is kept is sent."""

    def on_trouble(self, trouble: str) -> None:
        """Take note that a try failed, with the reason; empty when one succeeded."""


class SendWorker(Protocol):
    """Calls a store's method on the one thread that may."""

    def __call__(
        self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]: ...


class Sender:
    """Sends one stream; `is_over` tells that no more batches come, and `news` that one came.

    A stream whose header is sealed then is sealed in the registry.
    """

    def __init__(
        self,
        settings: Settings,
        stream: Stream,
        work: SendWorker,
        watcher: Watcher,
        is_over: Callable[[], bool],
        news: asyncio.Event,
    ) -> None:
        self._settings = settings.but(**{"batch": stream.header.batch})
        self._stream = stream
        self._work = work
        self._watcher = watcher
        self._is_over = is_over
        self._news = news

    async def run(self) -> None:
        """Send until it is over and nothing is left.

        Raises:
            Ended: the task has ended.
            TaskConflict: another process feeds it.
        """
        async with AsyncExitStack() as exits:
            backend = await self._retried(
                lambda: exits.enter_async_context(connect(self._settings))
            )
            await self._retried(
                lambda: self._lease_guard(backend).run(lambda: self._send(backend), lambda: None)
            )

    async def _send(self, backend: Backend) -> None:
        task = await self._retried(partial(self._open, backend))
        if task.total is not None:  # it was sealed, and then the process was killed
            return
        publication = self._publication(backend, task)
        sent = 0 if task.bundle else await self._retried(partial(self._reached, backend, task))
        while batches := await self._coming():
            bundles = [one for batch in batches for one in _bundles(batch, task.bundle, sent)]
            await self._retried(partial(self._publish, publication, bundles))
            if self._stream.header.collapses:  # it was killed, maybe, before it announced these
                known = [body for batch in batches for body in batch.bodies[: _known(batch, sent)]]
                await self._retried(partial(announce, backend, task, known))
            for batch in batches:
                await self._work(self._stream.store.ack, batch)
            self._watcher.on_sent(batches)
        if self._stream.header.is_sealed:
            await self._retried(partial(publication.seal, self._stream.store.published))

    async def _coming(self) -> list[Batch]:
        """Return the next batches as soon as there are any; none when it is over."""
        while True:
            self._news.clear()
            is_over = self._is_over()  # asked first: what was kept before it is then found
            batches = await self._work(self._stream.store.next)
            if batches:
                return batches
            self._watcher.on_idle()
            if is_over:
                return []
            await self._news.wait()

    async def _open(self, backend: Backend) -> Task:
        task = self._stream.task
        try:
            known = await backend.registry.get(task.id)
        except UnknownTask:
            known = await backend.add(task, self._settings)
        self._refuse_other(known)
        refuse_ended(known, _OPEN_AGAIN)
        if known.total is not None:
            return known
        return await self._publication(backend, known).open()

    def _publication(self, backend: Backend, task: Task) -> Publication:
        collapses = self._stream.header.collapses
        return Publication(backend, task, collapses=collapses, advice=_OPEN_AGAIN)

    async def _reached(self, backend: Backend, task: Task) -> int:
        """Return the last seq of the spool that an older version has published already."""
        store = self._stream.store
        stretch = range(store.acked_seq + 1, store.next_seq)
        if self._settings.capabilities.remembers_sources or not stretch:
            return 0
        [last] = await reached(backend, task, [stretch])
        return last

    async def _publish(self, publication: Publication, bundles: list[Packed]) -> None:
        try:
            await publication.publish_packed(bundles, f"producer-{self._stream.task.id}")
        except UnknownLane as error:
            await publication.open_lane()
            raise Unreachable(f"{error}; it is opened anew") from error
        except Ended:
            raise
        except TaskConflict as error:  # the broker has not seen yet that an earlier process died
            raise Unreachable(str(error)) from error

    def _refuse_other(self, known: Task) -> None:
        """Refuse a task whose key was used by another one while it was in the spool."""
        task = self._stream.task
        if known.id == task.id:
            return
        if known.fingerprint == task.fingerprint:
            raise Ended(
                f"task {task.id} was submitted as task {known.id} meanwhile (key {task.key!r}); "
                "what the spool has of it is dropped"
            )
        raise TaskConflict(
            f"key {task.key!r} of task {task.id} in the spool is used by task {known.id} with "
            f"other rows or options; remove the folder {task.id} from the spool, and submit those "
            "rows under another key"
        )

    def _lease_guard(self, backend: Backend) -> LeaseGuard:
        task_id = self._stream.task.id
        busy = (
            f"task {task_id} is fed by another process, which may have a copy of this spool; end "
            "one of the two"
        )
        lease = submit_lease(task_id)
        return LeaseGuard(backend.lease, lease, busy, asyncio.sleep, self._stream.holder)

    async def _retried(self, action: Callable[[], Awaitable[T]]) -> T:
        return await until_reachable(
            action,
            self._tell,
            asyncio.sleep,
            on_try=self._watcher.on_trouble,
            waits_for_space=True,
        )

    def _tell(self, note: str) -> None:
        task = self._stream.task
        log.warning(
            "producer %s, task %s: %s",
            task.name,
            task.id,
            note,
            extra={"action": "producer_waits"},
        )


def _bundles(batch: Batch, most: int, sent: int) -> list[Packed]:
    """Return the bundles of a batch, always the same ones, without pushes up to the seq `sent`."""
    return list(packed(batch.bodies[_known(batch, sent) :], max(1, most)))


def _known(batch: Batch, sent: int) -> int:
    """Return how many of the batch's pushes are on the lane already."""
    return max(0, sent - batch.first_seq + 1)
