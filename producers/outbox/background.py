"""Spools and sends in a thread what an application pushes, so that no caller waits for it.

It has an event loop of its own, and one more thread for the disk. If a part of it dies, the
producer says so at the next push.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from pushlane.lanes.errors import PushlaneError, TaskConflict, UnknownFormat
from pushlane.lanes.settings import Settings
from pushlane.producers.outbox.buffer import Buffer
from pushlane.producers.outbox.folder import SpooledStream, SpoolFolder, Stream
from pushlane.producers.outbox.options import ProducerOptions
from pushlane.producers.outbox.sender import Sender
from pushlane.producers.outbox.spooler import Spooler
from pushlane.producers.outbox.store import Batch
from pushlane.producers.publish import Ended

log = logging.getLogger("pushlane.producer")

_GRACE_S = 15.0
"""Longest wait for connections to close, once it gave up sending."""

P = ParamSpec("P")
T = TypeVar("T")


class OutboxThread:
    """Sends what `folder` has of earlier tasks, then `stream` from the buffer until it is closed.

    Counts what it sends. Its methods are for any thread.
    """

    def __init__(
        self,
        settings: Settings,
        options: ProducerOptions,
        stream: Stream,
        folder: SpoolFolder | None,
    ) -> None:
        self._settings = settings
        self._options = options
        self._stream = stream
        self._folder = folder
        self.buffer = Buffer(options, stream.header.batch, stream.store.next_seq, self._wake)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="pushlane-spool")
        self._thread = threading.Thread(target=self._run, name="pushlane-producer", daemon=True)
        self._moved = threading.Condition()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._woken = asyncio.Event()
        self._news = asyncio.Event()
        self._is_closing = False
        self._gave_up = False
        self._is_spooled = False
        self._failure: BaseException | None = None
        self._sending: asyncio.Task[None] | None = None
        self.sent = 0
        self.failed_sends = 0
        self.trouble = ""

    def start(self) -> None:
        self._thread.start()

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

    def on_sent(self, batches: Sequence[Batch]) -> None:
        self.sent += sum(len(batch.bodies) for batch in batches)
        if self._stream.store.holds_room:
            self.buffer.release(batches)
        self._woken.set()  # there may be room again
        self.on_idle()

    def on_idle(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def on_trouble(self, trouble: str) -> None:
        self.trouble = trouble
        self.failed_sends += bool(trouble)

    def _is_sent(self, seq: int) -> bool:
        return self._stream.store.acked_seq >= seq

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
            if self._folder:
                self._folder.close()

    def _fail(self, error: BaseException) -> None:
        unexpected = None if isinstance(error, PushlaneError) else error
        log.error(
            "the producer has failed: %s",
            error,
            exc_info=unexpected,
            extra={"action": "producer_failed"},
        )
        self._failure = error
        self.buffer.refuse(_told(error))
        self.on_idle()

    async def _main(self) -> None:
        spooler = self._spooler()
        self._sending = asyncio.create_task(self._send_all(), name="the sender")
        spooling = asyncio.create_task(self._spool(spooler), name="the spooler")
        try:
            await asyncio.wait({self._sending, spooling}, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._give_up()
            ends = await asyncio.gather(self._sending, spooling, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _spooler(self) -> Spooler:
        store, folder = self._stream.store, self._folder

        def most_bytes() -> int:
            others = folder.bytes_without(store) if folder else 0
            return self._options.max_spool_bytes - others

        return Spooler(
            self.buffer, store, self._options, self._work, most_bytes, self._woken, self._news
        )

    async def _spool(self, spooler: Spooler) -> None:
        await spooler.run(lambda: self._is_closing, lambda: self._gave_up)
        self._is_spooled = True
        self._news.set()

    async def _send_all(self) -> None:
        if self._folder:
            for stream in list(self._folder.streams):
                if stream is not self._stream:
                    await self._send_other(self._folder, stream)
        await self._send(self._stream, lambda: self._is_spooled)

    async def _send(self, stream: Stream, is_over: Callable[[], bool]) -> None:
        """Send the stream, and remove it if it is sealed."""
        sender = Sender(self._settings, stream, self._work, self, is_over, self._news)
        try:
            await sender.run()
        except Ended:
            if self._folder:  # so that the next producer begins a new task
                await self._work(self._folder.seal, stream)
            raise
        if self._folder and stream.header.is_sealed:
            await self._work(self._folder.remove, stream)

    async def _send_other(self, folder: SpoolFolder, stream: SpooledStream) -> None:
        """Send an earlier task; an error of one task does not stop the others."""
        try:
            await self._send(stream, lambda: True)
        except (TaskConflict, UnknownFormat) as error:
            log.error("%s", error, extra={"action": "producer_task_refused"})
            if isinstance(error, Ended):
                await self._work(folder.remove, stream)

    def _give_up(self) -> None:
        """Send no more, but spool what was pushed, as far as it fits."""
        self._is_closing = self._gave_up = True
        self._woken.set()
        if self._sending:
            self._sending.cancel()

    def _work(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._loop.run_in_executor(self._disk, lambda: call(*args, **kwargs))


def _told(error: BaseException) -> PushlaneError:
    if isinstance(error, PushlaneError):
        return error
    return PushlaneError(f"the producer's thread has died of {type(error).__name__}: {error}")
