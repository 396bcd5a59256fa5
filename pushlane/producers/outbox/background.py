"""Spools and sends in a thread what an application pushes, so that no caller waits for it.

The thread has an event loop of its own, and one more thread for the disk. If a part of it dies, the
producer says so at the next push.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from pushlane.backends.backend import Connect
from pushlane.backends.formats import KEYED
from pushlane.core.errors import PushlaneError, TaskConflict, UnknownFormat
from pushlane.core.publish import Ended
from pushlane.producers.outbox.buffer import Buffer
from pushlane.producers.outbox.sender import Sender
from pushlane.producers.outbox.spool import SpoolFolder
from pushlane.producers.outbox.store import Batch, BatchStore, ProducerOptions
from pushlane.settings import Settings
from pushlane.util.texts import traceback_of

_AGAIN_S = 0.5


@dataclass(eq=False, repr=False)
class Spooler:
    """Puts the buffer's batches into a store, by the thread of `disk`.

    What is in `folder` besides takes of the store's room. `woken` is set when there may be
    something to do; it sets `news` when something was kept.
    """

    buffer: Buffer
    store: BatchStore
    folder: SpoolFolder | None
    options: ProducerOptions
    disk: Executor
    woken: asyncio.Event
    news: asyncio.Event
    _batches: list[Batch] = field(default_factory=list, init=False)
    _unsynced_since: float | None = field(default=None, init=False)

    async def run(self, is_closing: Callable[[], bool], gave_up: Callable[[], bool]) -> None:
        """Work until it is closing and all is kept, or, once it gave up, all that fits."""
        while not gave_up():
            if is_closing() and not self._batches and self.buffer.due_in_s() is None:
                break
            await self._wait()
            await self._keep()
            if self._sync_in_s() == 0.0:
                await asyncio.get_running_loop().run_in_executor(self.disk, self.store.sync)
                self._unsynced_since = None
        await self._keep()

    async def _keep(self) -> None:
        """Put all that is due into the store, as far as it fits."""
        self._batches += self.buffer.cut()
        if not self._batches:
            return
        kept, self.buffer.trouble = await self._append()
        if kept:
            self._kept(kept)

    async def _append(self) -> tuple[int, str]:
        """Append to the store; return how many batches fitted, and why not all did."""
        most = self.options.max_spool_bytes
        free = most - (self.folder.bytes_without(self.store) if self.folder else 0)
        loop = asyncio.get_running_loop()
        try:
            if self.buffer.collapses and not self.store.header.collapses:
                await loop.run_in_executor(self.disk, self.store.note_collapses)
            kept = await loop.run_in_executor(self.disk, self.store.append, self._batches, free)
        except OSError as error:
            return 0, f"its spool cannot be written ({error.strerror}); free space on that disk"
        if kept == len(self._batches):
            return kept, ""
        return kept, (
            f"its spool is full too (max_spool_bytes={most:,}), as the broker takes pushes more "
            "slowly than they come"
        )

    def _kept(self, count: int) -> None:
        batches = self._batches[:count]
        del self._batches[:count]
        if not self.store.holds_room:
            self.buffer.release(batches)
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()
        self.news.set()

    def _sync_in_s(self) -> float | None:
        if self._unsynced_since is None:
            return None
        return max(0.0, self._unsynced_since + self.options.fsync_every_s - time.monotonic())

    async def _wait(self) -> None:
        """Wait until it is woken, or a batch or a sync is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._due_in_s()):
                await self.woken.wait()
        self.woken.clear()

    def _due_in_s(self) -> float | None:
        if self._batches:  # there was no room: what else is due has to wait too
            return _AGAIN_S
        waits = (self.buffer.due_in_s(), self._sync_in_s())
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)


log = logging.getLogger("pushlane.producer")

_GRACE_S = 15.0
"""Longest wait for connections to close, once it gave up sending."""


@dataclass(eq=False, repr=False)
class OutboxThread:
    """Sends what `folder` has of earlier tasks, then `store` from the buffer until it is closed.

    Counts what it sends. Its methods are for any thread.
    """

    settings: Settings
    options: ProducerOptions
    store: BatchStore
    folder: SpoolFolder | None
    connect: Connect | None
    sends_by: type[Sender] = Sender

    def __post_init__(self) -> None:
        store = self.store
        self.buffer = Buffer(
            self.options,
            store.header.batch,
            store.next_seq,
            self._wake,
            store.acked_seq,
            predecessors=store.predecessors.copy(),
        )
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="pushlane-spool")
        self._thread = threading.Thread(target=self._run, name="pushlane-producer", daemon=True)
        self._moved = threading.Condition()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._woken = asyncio.Event()
        self._news = asyncio.Event()
        self._is_closing = self._gave_up = self._is_spooled = False
        self._failure: BaseException | None = None
        self._sending: asyncio.Task[None] | None = None
        self._sender: Sender | None = None
        self.sent = 0
        self.failed_sends = 0
        self.trouble = ""

    def start(self) -> None:
        self._thread.start()

    @property
    def refuses_keys(self) -> bool:
        """True when it is known that an older dispatcher may read what is sent."""
        return self._sender is not None and 0 < self._sender.format < KEYED

    def flush(self, timeout_s: float) -> bool:
        """Return whether all that was pushed before is on its lane, after at most that time."""
        last_seq = self.buffer.flush()
        with self._moved:
            self._moved.wait_for(lambda: self._failure or self._is_sent(last_seq), timeout_s)
        self.raise_failure()
        return self._is_sent(last_seq)

    def close(self, timeout_s: float) -> None:
        """Send all there is in this time, then end; the rest is kept as far as it fits."""
        self._is_closing = True
        self.buffer.flush()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._call(self._give_up)
            self._thread.join(_GRACE_S)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises PushlaneError when the thread has died."""
        if self._failure:
            raise _told(self._failure) from self._failure

    def _on_sent(self, batches: Sequence[Batch]) -> None:
        self.sent += sum(len(batch.bodies) for batch in batches)
        self.buffer.landed(self.store.acked_seq)
        if self.store.holds_room:
            self.buffer.release(batches)
        self._woken.set()  # there may be room again
        self._move()

    def _move(self) -> None:
        """Wake whoever waits in `flush`."""
        with self._moved:
            self._moved.notify_all()

    def _on_trouble(self, trouble: str) -> None:
        self.trouble = trouble
        self.failed_sends += bool(trouble)

    def _is_sent(self, seq: int) -> bool:
        return self.store.acked_seq >= seq

    def _wake(self) -> None:
        self._call(self._woken.set)

    def _call(self, callback: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        try:
            with self._runner:
                self._runner.run(self._main())
        except BaseException as error:  # noqa: BLE001  whatever it is, callers are to hear of it
            self._fail(error)
        finally:
            self._disk.shutdown()
            if self.folder:
                self.folder.close()

    def _fail(self, error: BaseException) -> None:
        told = str(error) if isinstance(error, PushlaneError) else traceback_of(error)
        log.error("the producer has failed: %s", told, extra={"action": "producer_failed"})
        self._failure = error
        self.buffer.refuse(_told(error))
        self._move()

    async def _main(self) -> None:
        self._sending = asyncio.create_task(self._send_all(), name="the sender")
        spooling = asyncio.create_task(self._spool(), name="the spooler")
        try:
            await asyncio.wait({self._sending, spooling}, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._give_up()
            ends = await asyncio.gather(self._sending, spooling, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _spool(self) -> None:
        spooler = Spooler(
            self.buffer, self.store, self.folder, self.options, self._disk, self._woken, self._news
        )
        await spooler.run(lambda: self._is_closing, lambda: self._gave_up)
        self._is_spooled = True
        self._news.set()

    async def _send_all(self) -> None:
        if self.folder:
            for spool in list(self.folder.spools):
                if spool is not self.store:
                    await self._send_other(self.folder, spool)
        await self._send(self.store, lambda: self._is_spooled)

    async def _send(self, store: BatchStore, is_over: Callable[[], bool]) -> None:
        """Send what the store keeps, and remove it if it is sealed."""
        sender = self.sends_by(
            self.settings, store, self._disk, self._on_sent, self._on_trouble, is_over, self._news
        )
        if store is self.store:
            self._sender = sender
        try:
            await sender.run(self.connect)
        except Ended:  # sealed, so that the next producer begins a new task
            await self._loop.run_in_executor(self._disk, store.seal)
            raise
        if self.folder and store.header.is_sealed:
            await self._loop.run_in_executor(self._disk, self.folder.remove, store)

    async def _send_other(self, folder: SpoolFolder, store: BatchStore) -> None:
        """Send an earlier task; an error of one task does not stop the others."""
        try:
            await self._send(store, lambda: True)
        except (TaskConflict, UnknownFormat) as error:
            log.error("%s", error, extra={"action": "producer_task_refused"})
            if isinstance(error, Ended):
                await self._loop.run_in_executor(self._disk, folder.remove, store)

    def _give_up(self) -> None:
        """Send no more, but spool what was pushed, as far as it fits."""
        self._is_closing = self._gave_up = True
        self._woken.set()
        if self._sending:
            self._sending.cancel()


def _told(error: BaseException) -> PushlaneError:
    if isinstance(error, PushlaneError):
        return error
    return PushlaneError(f"the producer's thread died with {type(error).__name__}")
