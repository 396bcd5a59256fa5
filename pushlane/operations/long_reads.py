"""Bounds what reads through the whole log of receipts, or the store of reports, may take.

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

_POLITELY = 10  # of the 19 steps that a thread may let others go before


class LongReads:
    """The reads of one process, each within the same bounds."""

    def __init__(self, bounds: ReadBounds = NO_BOUNDS) -> None:
        self.bounds = bounds
        self._running = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Make a read inside. Raises NotNow while there are enough, BadInput for one too long."""
        if self.bounds.at_once is not None and self._running >= self.bounds.at_once:
            raise NotNow(
                f"{self._running} reports are made by this server now, the most it makes at once: "
                "ask again in some seconds"
            )
        self._running += 1
        try:
            async with asyncio.timeout(self.bounds.most_s):
                yield
        except TimeoutError:
            raise BadInput(
                f"this report takes longer than {self.bounds.most_s:g} s, the most that this "
                "server gives one: ask of a task, of a shorter time, or beside the backend"
            ) from None
        finally:
            self._running -= 1

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
