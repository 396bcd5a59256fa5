"""Side tasks of the embedded adapter: named, supervised, and patient.

A step that finds the store unreachable is tried again, and logged once. When a task dies of any
other error, the next call that checks raises and names it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pushlane.core.errors import PushlaneError, Unreachable

RETRY_S = 1.0

logger = logging.getLogger(__name__)


class SideTasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: PushlaneError | None = None

    def repeat(self, step: Callable[[], Awaitable[None]], name: str) -> None:
        """Run `step` over and over until closed; it paces itself."""
        task = asyncio.create_task(_repeat(step, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def check(self) -> None:
        """Raise PushlaneError when a side task has died."""
        if self._failure:
            raise self._failure

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._failure = PushlaneError(f"{task.get_name()} has died of {type(error).__name__}")
        self._failure.__cause__ = error
        task.get_loop().call_exception_handler(
            {"message": str(self._failure), "exception": error, "task": task}
        )


async def _repeat(step: Callable[[], Awaitable[None]], name: str) -> None:
    failing = False
    while True:
        try:
            await step()
        except Unreachable as error:
            if not failing:
                logger.warning("%s waits: %s", name, error)
            failing = True
            await asyncio.sleep(RETRY_S)
        else:
            if failing:
                logger.warning("%s goes on", name)
            failing = False
