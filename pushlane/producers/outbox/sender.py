"""Sends the batches of a task: registers it, opens its lane, publishes, and seals.

They are of a running producer, or of a spool that a submit or a producer left behind and does not
come back to. A service that is away is waited for. A batch is forgotten only once the broker has
it, and one that is sent again is the same one, so that it is kept once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from pushlane.backends.backend import Backend, Connect, connect
from pushlane.backends.formats import KEYED, min_format
from pushlane.backends.leases import LeaseGuard
from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat, UnknownLane, Unreachable
from pushlane.core.publish import Ended, Publication, refuse_ended
from pushlane.core.push import decode
from pushlane.core.task import Task, now_ms
from pushlane.model.names import submit_lease
from pushlane.model.task_changes import left_open
from pushlane.producers.outbox.spool import Spool, SpoolFolder
from pushlane.producers.outbox.store import Added, Batch, BatchStore
from pushlane.producers.published import announce, refuse_outdated
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from pushlane.util.retrying import until_reachable
from pushlane.wire import Packed, packed

log = logging.getLogger("pushlane.producer")

T = TypeVar("T")
Args = TypeVarTuple("Args")

KEYS_WAIT = (
    "a push has a key, and dispatchers of an older version may be running, which would send "
    f"every copy of it: upgrade them, then run `pushlane formats --min {KEYED}`"
)
_LOOK_S = 5.0
_LATE_MS = 60_000
"""After so long without a push it is asked whether the leader has sealed the task meanwhile."""

_OPEN_AGAIN = "open the producer again to go on with a new task"


@dataclass(eq=False, repr=False)
class Sender:
    """Sends what a store keeps; `is_over` tells that no more comes, and `news` that a batch came.

    A task whose header is sealed then is sealed in the registry; any other is left open. The store
    is used by the threads of `disk` alone (None for any). `on_sent` is told of batches that are on
    their lane, and of none when nothing is left; `on_trouble` why a try failed, and "" when one
    succeeded.
    """

    settings: Settings
    store: BatchStore
    disk: Executor | None
    on_sent: Callable[[Sequence[Batch]], None]
    on_trouble: Callable[[str], None]
    is_over: Callable[[], bool]
    news: asyncio.Event

    def __post_init__(self) -> None:
        self.settings = self.settings.but(**{"batch": self.store.header.batch})
        self._task = self.store.header.task
        self._holds_keys = False
        self._seen_ms = now_ms()
        self.format = 0
        """The format that may be written, 0 while that is not known."""

    async def run(self, connected: Connect | None = None) -> None:
        """Send until it is over and nothing is left.

        `connected` opens another backend than that of the settings.

        Raises TaskConflict when another process feeds the task, a version before 0.2.0 has begun
        it, or, as Ended, when it has ended.
        """
        async with AsyncExitStack() as exits:
            backend = await self._retried(
                lambda: exits.enter_async_context((connected or connect)(self.settings))
            )
            busy = (
                f"another process sends pushes of task {self._task.id}, perhaps from a copy of "
                "this spool; stop one of the two"
            )
            lease, holder = submit_lease(self._task.id), self.store.holder

            async def send() -> None:
                guard = LeaseGuard(backend.lease, lease, busy, asyncio.sleep, holder)
                await guard.run(lambda: self._send(backend), lambda: None)

            await self._retried(send)

    async def _send(self, backend: Backend) -> None:
        task = await self._retried(partial(self._open, backend))
        if task.total is not None and await self._has_sealed():
            return
        self._refuse_sealed(task)
        publication = self._publication(backend, task)
        refuse_outdated(task)
        await self._look_at_format(backend)
        looks = asyncio.create_task(self._follow_format(backend), name="the format")
        try:
            while batches := await self._coming():
                if self.format < KEYED and _have_keys(batches):
                    self._holds_keys = True
                    self.on_trouble(KEYS_WAIT)
                    await looks
                bundles = [one for batch in batches for one in packed(batch.bodies, task.bundle)]
                is_late = now_ms() - self._seen_ms >= _LATE_MS
                if is_late:
                    await self._refuse_if_sealed(backend)
                await self._retried(partial(self._publish, publication, bundles))
                if is_late:  # it may have been sealed without these
                    await self._refuse_if_sealed(backend)
                self._seen_ms = now_ms()
                if self.store.header.collapses:
                    bodies = [body for batch in batches for body in batch.bodies]
                    await self._retried(partial(announce, backend, task, bodies))
                for batch in batches:
                    await self._on_disk(self.store.ack, batch)
                self.on_sent(batches)
        finally:
            looks.cancel()
        if self.store.header.is_sealed:
            await self._retried(partial(publication.seal, self.store.published))
        else:
            leave = left_open(self.store.published)
            await self._retried(lambda: backend.change_known(task.id, leave))

    async def _has_sealed(self) -> bool:
        """Tell whether the task was sealed by us, and then the process or its link was cut."""
        return self.store.header.is_sealed and not await self._on_disk(self.store.next)

    async def _refuse_if_sealed(self, backend: Backend) -> None:
        self._refuse_sealed(await self._retried(partial(backend.known, self._task.id)))

    def _refuse_sealed(self, task: Task) -> None:
        """Raise Ended for a task that the leader has sealed, as it missed this process."""
        if task.total is not None:
            raise Ended(
                f"task {task.id} was closed with {task.total:,} pushes, as its producer was not "
                f"seen for too long; later pushes are not sent; {_OPEN_AGAIN}"
            )

    async def _look_at_format(self, backend: Backend) -> None:
        self.format = await self._retried(partial(min_format, backend.documents))

    async def _follow_format(self, backend: Backend) -> None:
        """Look until a push may have a key."""
        while self.format < KEYED:
            await asyncio.sleep(_LOOK_S)
            await self._look_at_format(backend)
            if self._holds_keys and self.format < KEYED:
                self.on_trouble(KEYS_WAIT)

    async def _coming(self) -> list[Batch]:
        """Return the next batches as soon as there are any; none when it is over."""
        while True:
            self.news.clear()
            is_over = self.is_over()  # asked first: what was kept before it is then found
            batches = await self._on_disk(self.store.next)
            if batches:
                return batches
            self.on_sent([])
            if is_over:
                return []
            await self._wait()

    async def _wait(self) -> None:
        """Wait until a batch came, or it is over."""
        await self.news.wait()

    async def _open(self, backend: Backend) -> Task:
        known = await self._found_or_added(backend)
        self._refuse_other(known)
        refuse_ended(known, _OPEN_AGAIN)
        if known.total is not None:
            return known
        return await self._publication(backend, known).open()

    async def _found_or_added(self, backend: Backend) -> Task:
        """Return the task as the registry has it. One that it had before is never added again.

        It may have ended and been forgotten, and would go out once more.
        """
        task, store = self._task, self.store
        added = store.header.added
        known = await self._found(backend)
        if known is None:
            if added is Added.YES or store.acked_seq:
                raise Ended(f"task {task.id} was forgotten: the rest is never sent; {_OPEN_AGAIN}")
            await self._on_disk(store.note_added, Added.BEGUN)
            known = await backend.add(task, self.settings)
        if added is not Added.YES:
            await self._on_disk(store.note_added, Added.YES)
        return known

    async def _found(self, backend: Backend) -> Task | None:
        """Return the task, None if it was forgotten, or never added."""
        task_id = self._task.id
        if self.store.header.added is not Added.NO:
            return await backend.find(task_id)
        with suppress(UnknownTask):
            return await backend.registry.get(task_id)
        return None

    def _publication(self, backend: Backend, task: Task) -> Publication:
        return Publication(backend, task, advice=_OPEN_AGAIN)

    async def _publish(self, publication: Publication, bundles: list[Packed]) -> None:
        try:
            await publication.publish_packed(bundles, f"producer-{self._task.id}")
        except UnknownLane as error:
            await publication.open_lane()
            raise Unreachable(f"{error}; it is opened again") from error
        except Ended:
            raise
        except TaskConflict as error:  # the broker has not seen yet that an earlier process died
            raise Unreachable(str(error)) from error

    def _refuse_other(self, known: Task) -> None:
        """Refuse a task whose key was used by another one while it was in the spool."""
        task = self._task
        if known.id == task.id:
            return
        if known.fingerprint == task.fingerprint:
            raise Ended(
                f"task {task.id} was submitted as task {known.id} meanwhile (key {task.key!r}); "
                f"what the spool holds of task {task.id} is dropped"
            )
        raise TaskConflict(
            f"key {task.key!r} of task {task.id} in the spool is used by task {known.id} with "
            f"other rows or options; remove the folder {task.id} from the spool, and submit those "
            "rows under another key"
        )

    async def _retried(self, action: Callable[[], Awaitable[T]]) -> T:
        return await until_reachable(
            action, self._tell, asyncio.sleep, on_try=self.on_trouble, waits_for_space=True
        )

    async def _on_disk(self, work: Callable[[*Args], T], *args: *Args) -> T:
        """Have a thread do it that may use the store."""
        return await asyncio.get_running_loop().run_in_executor(self.disk, work, *args)

    def _tell(self, note: str) -> None:
        task = self._task
        extra = {"action": "producer_waits"}
        log.warning("producer %s, task %s: %s", task.name, task.id, note, extra=extra)


def _have_keys(batches: Sequence[Batch]) -> bool:
    return any(decode(body).key for batch in batches for body in batch.bodies)


Tell = Callable[[str], None]


@dataclass(frozen=True)
class Spooled:
    """The state of one task in a spool; if `is_sealed`, no more than the `waiting` pushes come."""

    task: Task
    waiting: int
    bytes: int
    is_sealed: bool


@dataclass(frozen=True)
class SpoolSent:
    """The result of sending one task from a spool.

    `ended` says why the rest is dropped, if it is, and `refused` why it is left in the spool.
    """

    task: Task
    sent: int
    lost: int
    is_sealed: bool
    ended: str = ""
    refused: str = ""


def look(path: Path) -> list[Spooled]:
    """Return what is in the spool, oldest task first. Raises BadInput when there is no spool."""
    with _opened(path) as folder:
        return [
            Spooled(spool.header.task, spool.waiting, spool.bytes, spool.header.is_sealed)
            for spool in folder.spools
        ]


async def send(settings: Settings, path: Path, *, seal: bool, tell: Tell) -> list[SpoolSent]:
    """Send all of the spool, and seal the tasks that are complete; with `seal`, all of them.

    A service that is lost on the way is waited for.

    Raises:
        BadInput: there is no spool.
        TaskConflict: a producer has it open.
        Unreachable: a service does not answer at the start.
    """
    with _opened(path) as folder:
        async with connect(settings):
            tell(f"sending {path}")
        return [await _send(settings, folder, spool, seal, tell) for spool in list(folder.spools)]


async def _send(
    settings: Settings, folder: SpoolFolder, spool: Spool, seal: bool, tell: Tell
) -> SpoolSent:
    is_waiting, sent_before = False, spool.published

    def on_trouble(trouble: str) -> None:
        nonlocal is_waiting
        if trouble and not is_waiting:
            tell(f"waiting: {trouble}")
        is_waiting = bool(trouble)

    if seal:
        spool.seal()
    no_news = asyncio.Event()
    sender = Sender(settings, spool, None, lambda sent: None, on_trouble, lambda: True, no_news)
    ended = refused = ""
    try:
        await sender.run()
    except Ended as error:
        ended = str(error)
    except (TaskConflict, UnknownFormat) as error:
        refused = str(error)
    is_sealed = spool.header.is_sealed and not (ended or refused)
    if ended or is_sealed:
        folder.remove(spool)
    sent = spool.published - sent_before
    return SpoolSent(spool.header.task, sent, spool.lost, is_sealed, ended, refused)


def _opened(path: Path) -> closing[SpoolFolder]:
    if not (path / "lock").exists():
        raise BadInput(f"{path} is not a spool; name the folder that the producer was given")
    return closing(SpoolFolder(path))
