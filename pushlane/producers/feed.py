"""Feeds a stream in one process: single pushes that come at once go on the lane together.

A push is told as taken once its broker has it, since nothing else here outlives the process. While
the broker is away what came is kept and tried again, and nothing new is taken. A process that is
killed leaves its task to the leader, which seals it with what is on the lane
(`dispatcher/leader/janitor.py`); so a task is fed only while its lease is held.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.formats import KEYED, format_to_write
from pushlane.core.errors import PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.core.publish import Ended, Publication, chunk_size
from pushlane.core.task import Task, now_ms
from pushlane.model.names import submit_lease
from pushlane.model.streams import Stream, find_stream, source_of
from pushlane.model.times import given_start_ms
from pushlane.producers.outbox.sender import KEYS_WAIT
from pushlane.producers.producer import Content, encoder
from pushlane.producers.published import announce
from pushlane.producers.stream_tasks import as_stream, share_limits
from pushlane.producers.task_builder import new_task, refuse_unknown_sinks
from pushlane.producers.task_options import TaskOptions
from pushlane.settings import Settings
from pushlane.settings.payload_limits import payload_limits
from pushlane.util.errors import NotNow, UnknownTask
from pushlane.util.retrying import until_reachable

log = logging.getLogger("pushlane.streams")

T = TypeVar("T")

HELD_S = 15.0
"""How long a task is left alone whose process was killed."""

LONGEST_S = 86_400.0
MOST_PUSHES = 2**31 - 1
_RENEW_S = HELD_S / 3
_TRIES = 3


class Lost(PushlaneError):
    """The task takes no more of this process: it has ended, or was sealed by the leader."""


class _Waiting(NamedTuple):
    seq: int
    body: bytes
    collapses: bool
    on_lane: asyncio.Future[str]


@dataclass(eq=False, repr=False)
class FedTask:
    """A task of a stream, and the pushes that wait to be on its lane."""

    backend: Backend
    settings: Settings
    stream: Stream
    clock_s: Callable[[], float] = time.monotonic
    trouble: str = ""
    """Why the last try failed; empty when it did not."""

    _waiting: list[_Waiting] = field(default_factory=list)
    _ended: Exception | None = None

    def __post_init__(self) -> None:
        made = task_of(self.stream, self.settings)
        self.task = replace(made, key=self.stream.key + made.id)
        self.opened_at_s = self.clock_s()
        self._limits = payload_limits(self.settings, self.task.chain)
        self._news = asyncio.Event()
        self._is_closed = False
        self._next_seq = 1
        self._held_until_s = 0.0
        self._holder = secrets.token_hex(8)
        self._running = asyncio.create_task(self._run(), name=f"stream {self.stream.place}")

    @property
    def takes_more(self) -> bool:
        """False once it is closed, lost, a day old or full: then another task follows it."""
        is_young = self.clock_s() - self.opened_at_s < LONGEST_S
        return not self._is_closed and is_young and self._next_seq <= MOST_PUSHES

    @property
    def has_ended(self) -> bool:
        """True once nothing of it is left to do."""
        return self._running.done()

    async def put(self, content: Content) -> str:
        """Return the id of a push once it is on the lane.

        Raises BadInput for one that cannot be, and Lost when the push has to go to another task.
        """
        if self._ended is not None:
            raise self._ended
        seq = self._next_seq
        body = encoder(self.task, self._limits, content, now_ms())(seq, 0)
        self._next_seq += 1
        on_lane: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(seq, body, content.collapse is not None, on_lane))
        self._news.set()
        return await on_lane

    def close(self) -> None:
        """Take no more, and seal it once all that waits is on the lane."""
        self._is_closed = True
        self._news.set()

    async def ended(self, within_s: float) -> None:
        """Wait for the end of it for so long. What is left then is the leader's."""
        await asyncio.wait({self._running}, timeout=within_s)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        publication: Publication | None = None
        renewing: asyncio.Task[None] | None = None
        try:
            while some := await self._coming():
                if publication is None:
                    publication = await self._retried(self._begin)
                    renewing = asyncio.create_task(self._renew(), name=f"lease of {self.task.id}")
                await self._retried(partial(self._publish, publication, some))
                del self._waiting[: len(some)]
                for one in some:
                    if not one.on_lane.done():
                        one.on_lane.set_result(f"{self.task.id}-{one.seq}")
            if publication is not None:
                await self._retried(partial(self._seal, publication))
            self._end(Lost(f"task {self.task.id} is closed"))
        except (Ended, TaskConflict, UnknownTask) as error:
            self._end(Lost(str(error)))
        except PushlaneError as error:
            self._end(error)
        except Exception as error:
            log.exception("stream %s has ended", self.stream.place, extra={"action": "stream_lost"})
            self._end(Lost(f"task {self.task.id}: an unexpected {type(error).__name__}"))
        finally:
            if renewing is not None:
                renewing.cancel()
            self._end(Lost("this process stops"))

    def _end(self, error: PushlaneError) -> None:
        """Refuse what waits, and whatever comes."""
        self._is_closed = True
        self._ended = self._ended or error
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.on_lane.done():
                one.on_lane.set_exception(self._ended)

    async def _begin(self) -> Publication:
        """Add the task and open its lane, as the stream is now. Can be repeated."""
        backend, stream = self.backend, self.stream
        if await format_to_write(backend.documents, backend.registry, backend.presence) < KEYED:
            raise NotNow(KEYS_WAIT)
        await refuse_unknown_sinks(backend, self.settings, self.task)
        self.task = await backend.add(self.task, self.settings)
        await self._hold()
        # Changes go to all tasks that are there: one that came before is in what is read now.
        now = await find_stream(backend.documents, stream.app, stream.name) or stream
        self.task = await backend.registry.change(self.task.id, as_stream(now))
        await share_limits(backend, now)
        publication = Publication(backend, self.task)
        await publication.open()
        return publication

    async def _coming(self) -> list[_Waiting]:
        """Return what waits, as soon as there is any; nothing once it is closed and empty."""
        while not self._waiting and not self._is_closed:
            self._news.clear()
            await self._news.wait()
        return self._waiting[: chunk_size(max(1, self.task.bundle))]

    async def _publish(self, publication: Publication, some: list[_Waiting]) -> None:
        """Put pushes on the lane. Can be repeated. Raises Lost where the leader has sealed it."""
        await self._hold_if_late()
        bodies = [one.body for one in some]
        try:
            await publication.publish(bodies, source_of(self.task))
        except UnknownLane as error:
            await publication.open_lane()
            raise Unreachable(f"{error}; it is opened again") from error
        if any(one.collapses for one in some):
            await announce(self.backend, self.task, bodies)
        await self._hold_if_late()  # the leader may have sealed it without these

    async def _hold_if_late(self) -> None:
        if self._is_late():
            await self._hold()

    def _is_late(self) -> bool:
        """Tell whether the lease may have run out, and the leader may have sealed the task."""
        return self.clock_s() >= self._held_until_s

    async def _hold(self) -> None:
        """Hold the lease of the task for a while. Raises Lost when the leader has sealed it."""
        asked_at_s, was_late = self.clock_s(), self._is_late()
        lease = submit_lease(self.task.id)
        if await self.backend.lease.acquire(lease, self._holder, HELD_S) is None:
            raise Lost(f"task {self.task.id} is being closed by another process")
        if was_late and (await self.backend.known(self.task.id)).total is not None:
            raise Lost(f"task {self.task.id} was closed by another process")
        self._held_until_s = asked_at_s + HELD_S

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            try:
                await self._hold()
            except Unreachable:  # asked for again; a publish that takes too long asks, too
                continue
            except PushlaneError as error:
                self._end(Lost(str(error)))
                self._running.cancel()
                return

    async def _seal(self, publication: Publication) -> None:
        await publication.seal(self._next_seq - 1)
        with suppress(Unreachable):  # it ends by itself
            await self.backend.lease.release(submit_lease(self.task.id), self._holder)

    async def _retried(self, action: Callable[[], Awaitable[T]]) -> T:
        def tell(note: str) -> None:
            told = "stream %s, task %s: %s"
            extra = {"action": "stream_waits"}
            log.warning(told, self.stream.place, self.task.id, note, extra=extra)

        def on_try(trouble: str) -> None:
            self.trouble = trouble

        return await until_reachable(
            action, tell, asyncio.sleep, on_try=on_try, waits_for_space=True
        )


class Feed:
    """A stream in this process. It feeds one task at a time; the ones before it are being ended."""

    def __init__(
        self, backend: Backend, settings: Settings, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._backend = backend
        self._settings = settings
        self._clock_s = clock_s
        self._fed: FedTask | None = None
        self._ending: list[FedTask] = []
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """True when it feeds no task, and ends none."""
        return self._fed is None and all(one.has_ended for one in self._ending)

    @property
    def trouble(self) -> str:
        """Why nothing new is taken now; empty while it is."""
        return "" if self._fed is None else self._fed.trouble

    async def put(self, stream: Stream, content: Content) -> str:
        """Return the id of a push once it is on a lane. Raises BadInput, Lost and NotNow."""
        content = with_expiry(stream.expires_after_s, content)
        for tries_left in reversed(range(_TRIES)):
            fed = self._open(stream)
            try:
                return await fed.put(content)
            except Lost:
                if not tries_left:
                    raise
        raise AssertionError

    def _open(self, stream: Stream) -> FedTask:
        if self._is_over:
            raise Lost("this process stops")
        fed = self._fed
        if fed is not None and fed.takes_more and fed.stream.fixed == stream.fixed:
            return fed
        self.close()
        self._fed = FedTask(self._backend, self._settings, stream, self._clock_s)
        return self._fed

    def close(self) -> None:
        """Take nothing more, and seal the task once what waits is on its lane."""
        if self._fed is not None:
            self._fed.close()
            self._ending = [*(one for one in self._ending if not one.has_ended), self._fed]
            self._fed = None

    async def ended(self, within_s: float) -> None:
        """Feed nothing more, and wait for so long until all that was fed is sealed."""
        self._is_over = True
        self.close()
        await asyncio.gather(*(one.ended(within_s) for one in self._ending))


def with_expiry(after_s: float | None, content: Content, came_ms: int = 0) -> Content:
    """Return a push that expires so long after it came, or after it may go; if it has no expiry.

    It came at `came_ms` (Unix ms), now unless given.
    """
    if after_s is None or content.expires_at_ms:
        return content
    now, start = came_ms or now_ms(), content.not_before_ms
    start_ms = given_start_ms("not_before_ms", start, now) if start else 0
    expires_at_ms = max(now, start_ms) + round(after_s * 1000)
    return content._replace(not_before_ms=start_ms, expires_at_ms=expires_at_ms)


def task_of(stream: Stream, settings: Settings) -> Task:
    """Return a task of a stream, not stored yet, and without its key. Raises BadInput."""
    options = TaskOptions(
        level=stream.level,
        app=stream.app,
        name=stream.name,
        quota=stream.quota,
        sink=stream.sinks,
        max_attempts=stream.max_attempts,
        stop_if_dead="off",
    )
    return replace(new_task(options, settings, on_own_lane=True), is_fed=True)


async def check_stream(backend: Backend, settings: Settings, stream: Stream) -> None:
    """Raise BadInput for a stream that no task could be made of."""
    await refuse_unknown_sinks(backend, settings, task_of(stream, settings))
