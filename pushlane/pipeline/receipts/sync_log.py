"""The log of receipts for code outside of an event loop, like Spark's workers.

A thread of its own runs an event loop, so that every thread of the caller may use the log. Nothing
else of the backend is opened.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, TypeVar

from pushlane.backends.backend import connect_receipts
from pushlane.backends.ports import ReceiptLog
from pushlane.settings import Settings

T = TypeVar("T")


class SyncReceiptLog:
    """A context manager that opens the log on entry and closes it on exit.

    Its methods are those of the port `ReceiptLog`, and block.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="receipts-log", daemon=True)
        self._stack = AsyncExitStack()
        self._log: ReceiptLog | None = None

    def __enter__(self) -> SyncReceiptLog:
        self._thread.start()
        try:
            connection = connect_receipts(self._settings)
            self._log = self._wait_for(self._stack.enter_async_context(connection))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait_for(self._stack.aclose())
        finally:
            self._end()

    def first(self) -> list[str]:
        return self._call(lambda log: log.first())

    def since(self, at_ms: int) -> list[str]:
        return self._call(lambda log: log.since(at_ms))

    def committed(self) -> list[str] | None:
        return self._call(lambda log: log.committed())

    def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        return self._call(lambda log: log.advance(start, most))

    def kept(self, positions: Sequence[str]) -> list[str]:
        return self._call(lambda log: log.kept(positions))

    def commit(self, positions: Sequence[str]) -> None:
        self._call(lambda log: log.commit(positions))

    def lag(self, positions: Sequence[str]) -> int:
        return self._call(lambda log: log.lag(positions))

    def append(self, bodies: Sequence[bytes]) -> None:
        self._call(lambda log: log.append(bodies))

    def run_beside(self, work: Callable[[ReceiptLog], Coroutine[Any, Any, None]]) -> None:
        """Run this work with the log in its event loop, until the log is closed."""

        async def start(log: ReceiptLog) -> None:
            task = asyncio.create_task(work(log))
            self._stack.push_async_callback(_ended, task)

        self._call(start)

    def read(self, partition: int, start: str, end: str) -> Iterator[list[bytes]]:
        """Yield the bodies page by page, as the port does; a caller may stop in the middle."""
        assert self._log is not None
        pages = self._log.read(partition, start, end)
        try:
            while (page := self._wait_for(_next(pages))) is not None:
                yield page
        finally:
            # Without waiting, since this may run in the loop's own thread.
            if isinstance(pages, AsyncGenerator) and not self._loop.is_closed():
                asyncio.run_coroutine_threadsafe(_closed(pages), self._loop)

    def _call(self, work: Callable[[ReceiptLog], Awaitable[T]]) -> T:
        assert self._log is not None
        return self._wait_for(work(self._log))

    def _wait_for(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next(pages: AsyncIterator[list[bytes]]) -> list[bytes] | None:
    return await anext(pages, None)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _closed(pages: AsyncGenerator[list[bytes], None]) -> None:
    await pages.aclose()


def log_of_process(settings: Settings) -> SyncReceiptLog:
    """Return the log for a Spark worker process with these settings: opened once, never closed.

    A worker begins as a fork, and what was opened before that cannot be used after it. To open and
    close the broker's client for every range that is read has crashed workers; at its end a worker
    leaves without running down anything.
    """
    return _opened(os.getpid(), settings)


@cache
def _opened(process_id: int, settings: Settings) -> SyncReceiptLog:
    return SyncReceiptLog(settings).__enter__()
