"""Tells a dispatcher that drains when it may end: nothing can move to its sinks any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from pushlane.backends.backend import Backend
from pushlane.core.errors import UnknownLane
from pushlane.core.names import later_lane
from pushlane.core.retrying import Backoff
from pushlane.core.task import State, Task
from pushlane.dispatcher.known_tasks import KnownTasks

log = logging.getLogger("pushlane.dispatcher")

_AGAIN_S = 1.0


class DrainWatch:
    """Tells when no task is left that could move now to one of these sinks.

    Of a task with pushes at a later sink of its chain that is not among them, only what is left on
    its lanes at these counts: the others may wait for ever for somebody who serves that sink.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
        sinks: set[str],
        clock_ms: Callable[[], int],
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._sinks = sinks
        self._clock_ms = clock_ms
        self._given_up: frozenset[str] = frozenset()
        self._changed = asyncio.Event()

    def give_up(self, sinks: frozenset[str]) -> None:
        """Wait for these sinks no longer, and for all others of its own again."""
        if sinks != self._given_up:
            self._given_up = sinks
            self._changed.set()

    def on_task(self, task: Task) -> None:
        self._changed.set()

    def on_unread(self, task_id: str) -> None:
        self._changed.set()

    async def wait(self) -> frozenset[str]:
        """Return the sinks that were given up, once nothing is left to move to the others."""
        backoff = Backoff(log, "the broker")
        await self._tasks.synced.wait()
        while True:
            given_up = self._given_up
            moving = [task for task in self._tasks.active.values() if self._can_move(task)]
            if not moving:
                return given_up
            elsewhere = all(self._is_elsewhere(task) for task in moving)
            if elsewhere and not await backoff.until_done(partial(self._is_left, moving)):
                if given_up == self._given_up:
                    return given_up
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S if elsewhere else None):
                    await self._changed.wait()
            self._changed.clear()

    def _can_move(self, task: Task) -> bool:
        if task.state is State.PAUSED or task.is_scheduled(self._clock_ms()):
            return False
        return not self._waited_for().isdisjoint((task.chain[0], *task.reached))

    def _waited_for(self) -> set[str]:
        return self._sinks - self._given_up

    def _is_elsewhere(self, task: Task) -> bool:
        """Tell whether some of its pushes have gone on to a sink that is not served here."""
        return task.total is not None and not self._waited_for().issuperset(task.reached)

    async def _is_left(self, tasks: list[Task]) -> bool:
        """Tell whether anything is left on a lane of these at the sinks that are served here."""
        lanes = {
            name
            for task in tasks
            for sink in self._waited_for().intersection((task.chain[0], *task.reached))
            for lane in (task.lane_at(sink), task.first_lane or task.lane)
            for name in (lane, later_lane(lane))
        }
        for lane in lanes:
            with suppress(UnknownLane):
                if await self._backend.broker.backlog(lane):
                    return True
        return False
