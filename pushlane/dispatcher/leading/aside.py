"""Does what takes long beside the event loop, so that pushes go on meanwhile."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Do the work on another thread and return what it returns.

    The garbage collector waits for it. Else it would look, again and again and with all threads
    stopped, at what the work makes of 100,000 tasks; nothing of that is garbage.
    """

    def run() -> T:
        with _uncollected():
            return work()

    return await asyncio.to_thread(run)


@contextmanager
def _uncollected() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
