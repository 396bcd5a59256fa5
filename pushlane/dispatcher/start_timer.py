"""Tasks that start later: which they are, and a call for each when its time has come.

The wall clock may be set while we wait, so it is looked at once a second at least.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable

from pushlane.core.task import Task

_LOOK_EVERY_S = 1.0


class StartTimer:
    """Remembers each task once, until its time has come: also one that has ended meanwhile."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._starts: list[tuple[int, str]] = []
        self._known: set[str] = set()
        self._added = asyncio.Event()

    def waits(self, task: Task) -> bool:
        """Tell whether its start is still to come; then remember it."""
        if not task.is_scheduled(self._clock_ms()):
            return False
        if task.id not in self._known:
            self._known.add(task.id)
            heapq.heappush(self._starts, (task.not_before_ms, task.id))
            self._added.set()
        return True

    async def run(self, start: Callable[[str], None]) -> None:
        """Call `start` with the id of each task whose time has come, for ever."""
        while True:
            self._added.clear()
            for task_id in self._due():
                start(task_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._added.wait()

    def _due(self) -> list[str]:
        due = []
        now = self._clock_ms()
        while self._starts and self._starts[0][0] <= now:
            _, task_id = heapq.heappop(self._starts)
            self._known.discard(task_id)
            due.append(task_id)
        return due

    def _wait_s(self) -> float | None:
        """Return the time to the next start, at most to the next look; None without a start."""
        if not self._starts:
            return None
        left_s = (self._starts[0][0] - self._clock_ms()) / 1000
        return min(_LOOK_EVERY_S, max(0.0, left_s))
