"""Takes batches out of the buffer as they become due, and puts them into a store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

from pushlane.producers.outbox.buffer import Buffer
from pushlane.producers.outbox.folder import SpoolFolder
from pushlane.producers.outbox.options import ProducerOptions
from pushlane.producers.outbox.store import Batch, BatchStore

_AGAIN_S = 0.5


class Spooler:
    """Puts the buffer's batches into a store, by the thread of `disk`.

    What is in `folder` besides takes of the store's room. `woken` is set when there may be
    something to do; it sets `news` when something was kept.
    """

    def __init__(
        self,
        buffer: Buffer,
        store: BatchStore,
        folder: SpoolFolder | None,
        options: ProducerOptions,
        disk: Executor,
        woken: asyncio.Event,
        news: asyncio.Event,
    ) -> None:
        self._buffer = buffer
        self._store = store
        self._options = options
        self._folder = folder
        self._disk = disk
        self._woken = woken
        self._news = news
        self._batches: list[Batch] = []
        self._unsynced_since: float | None = None

    async def run(self, is_closing: Callable[[], bool], gave_up: Callable[[], bool]) -> None:
        """Work until it is closing and all is kept, or, once it gave up, all that fits."""
        while not (is_closing() and self._is_empty) and not gave_up():
            await self._wait()
            await self._keep()
            await self._sync_in_time()
        await self._keep()

    @property
    def _is_empty(self) -> bool:
        return not self._batches and self._buffer.due_in_s() is None

    async def _keep(self) -> None:
        """Put all that is due into the store, as far as it fits."""
        self._batches += self._buffer.cut()
        if not self._batches:
            return
        kept, self._buffer.trouble = await self._append()
        if kept:
            self._kept(kept)

    async def _append(self) -> tuple[int, str]:
        """Append to the store; return how many batches fitted, and why not all did."""
        most = self._options.max_spool_bytes
        free = most - (self._folder.bytes_without(self._store) if self._folder else 0)
        loop = asyncio.get_running_loop()
        try:
            kept = await loop.run_in_executor(self._disk, self._store.append, self._batches, free)
        except OSError as error:
            return 0, f"its spool cannot be written ({error.strerror}); free space on that disk"
        if kept == len(self._batches):
            return kept, ""
        return kept, f"its spool is full too (max_spool_bytes={most:,}), as the broker takes less"

    def _kept(self, count: int) -> None:
        batches = self._batches[:count]
        del self._batches[:count]
        if not self._store.holds_room:
            self._buffer.release(batches)
        if self._unsynced_since is None:
            self._unsynced_since = time.monotonic()
        self._news.set()

    async def _sync_in_time(self) -> None:
        if self._sync_in_s() == 0.0:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._store.sync)
            self._unsynced_since = None

    def _sync_in_s(self) -> float | None:
        if self._unsynced_since is None:
            return None
        return max(0.0, self._unsynced_since + self._options.fsync_every_s - time.monotonic())

    async def _wait(self) -> None:
        """Wait until it is woken, or a batch or a sync is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._due_in_s()):
                await self._woken.wait()
        self._woken.clear()

    def _due_in_s(self) -> float | None:
        if self._batches:  # there was no room: what else is due has to wait too
            return _AGAIN_S
        waits = (self._buffer.due_in_s(), self._sync_in_s())
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)
