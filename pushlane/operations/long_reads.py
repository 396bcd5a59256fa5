"""Bounds what reads through the whole log of receipts, or the store of reports, may take.

Who asks while there are enough of them waits for some seconds.

A command has a process of its own, and no bounds but its own. A server answers others meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TypeVar

from pushlane.core.errors import BadInput
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.util.errors import NotNow

T = TypeVar("T")

WAIT_S = 5.0
_POLITELY = 10  # of the 19 steps that a thread may let others go before


class LongReads:
    """The reads of one process, each within the same bounds."""

    def __init__(self, bounds: ReadBounds = NO_BOUNDS) -> None:
        self.bounds = bounds
        self._room = None if bounds.at_once is None else asyncio.Semaphore(bounds.at_once)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Make a read inside. Raises NotNow while there are enough, BadInput for one too long."""
        async with self._place():
            try:
                async with asyncio.timeout(self.bounds.most_s):
                    yield
            except TimeoutError:
                raise BadInput(
                    f"reading the receipts takes longer than {self.bounds.most_s:g} s, the most "
                    "that this server allows: ask about one task or a shorter time, or run the "
                    "command beside the backend"
                ) from None

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Have one of the places for reads inside; wait for one, but not for long."""
        if self._room is None:
            yield
            return
        try:
            async with asyncio.timeout(WAIT_S):
                await self._room.acquire()
        except TimeoutError:
            raise NotNow(
                f"this server reads receipts for at most {self.bounds.at_once} at once, and is "
                "busy: try again in a few seconds"
            ) from None
        try:
            yield
        finally:
            self._room.release()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what blocking work returns, from a thread that lets others go first.

        It is waited for whatever happens: a read that goes on is one that runs.
        """
        if not self.bounds.gives_way:
            return await asyncio.to_thread(work)
        asked = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asyncio.wait([asked])
            asked.exception()  # which nobody asks for any longer
            raise

    def close(self) -> None:
        """Begin no more."""
        if "_threads" in self.__dict__:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.bounds.at_once, "pushlane-report", _give_way)


def _give_way() -> None:
    """Let others of this machine go first; elsewhere than on Linux that is of a whole process."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _POLITELY)
