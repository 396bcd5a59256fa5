"""Follows the registry, and looks up the tasks that pushes name before it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from pushlane.dispatcher.backoff import Backoff, for_each, raise_first, whenever
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_manager import LaneManager
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.scheduler import Scheduler
from pushlane.lanes.backend import Backend
from pushlane.lanes.contact import REGISTRY, Contact
from pushlane.lanes.errors import UnknownFormat
from pushlane.lanes.paging import paged
from pushlane.lanes.ports import Changes

log = logging.getLogger("pushlane.registry_follower")

_LOOKUPS = 16
_APPLIED_AT_ONCE = 100


class FollowingLine(Protocol):
    """A sink's part of the dispatcher, as far as changes in the registry concern it."""

    scheduler: Scheduler[OpenLane]
    manager: LaneManager

    def wake(self) -> None:
        """Look at once at what may go."""


class RegistryFollower:
    """Applies what changes in the registry: tasks, level weights, what is forgotten there."""

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
        lines: Sequence[FollowingLine],
        contact: Contact,
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._lines = lines
        self._contact = contact
        self._version = 0

    async def run(self) -> None:
        """Apply changes, for ever."""
        self._contact[REGISTRY].asked()
        self._version = 0
        broker = self._backend.broker
        for line in self._lines:
            await Backoff(log, "the broker").until_done(partial(line.manager.open_old_pool, broker))
        backoff = Backoff(log, "the registry")
        while True:
            changes = await backoff.until_done(self._changes)
            self._contact[REGISTRY].heard()
            await self._apply(changes)
            self._version = changes.version
            self._tasks.synced.set()
            self._contact.started()

    async def _changes(self) -> Changes:
        return await self._backend.registry.changes(self._version, timeout_s=1.0)

    async def _apply(self, changes: Changes) -> None:
        for line in self._lines:
            if changes.weights.by_level() != line.scheduler.weights():
                line.scheduler.set_weights(changes.weights)
        for some in paged(changes.tasks, _APPLIED_AT_ONCE):
            for task in some:
                self._tasks.apply(task)
            await asyncio.sleep(0)
        for task_id in changes.unread:
            self._tasks.leave(task_id)
        for task_id in changes.forgotten:
            self._tasks.forget(task_id)
        for line in self._lines:
            line.manager.read_again()
            line.wake()


class TaskLookups:
    """Parks pushes of tasks not heard of until the registry has said what it knows of them."""

    def __init__(self, tasks: KnownTasks, ring: LaneRing, wake: Callable[[], None]) -> None:
        self._tasks = tasks
        self._ring = ring
        self._wake = wake
        self._waiting: dict[str, list[tuple[OpenLane, Held]]] = {}
        self._asked = asyncio.Event()

    def ask(self, task_id: str, lane: OpenLane, taken: Held) -> None:
        """Look up the task of a push that surfaced, then offer the push again.

        It is parked meanwhile, so that a lane holds no more of these than it has room for.
        """
        lane.park()
        self._waiting.setdefault(task_id, []).append((lane, taken))
        self._asked.set()

    async def run(self) -> None:
        """Look up the tasks that were asked for, several at once, for ever."""
        await whenever(self._asked, self._look_all_up, Backoff(log, "the registry"))

    async def _look_all_up(self) -> None:
        task_ids = list(self._waiting)
        groups = [task_ids[at : at + _LOOKUPS] for at in range(0, len(task_ids), _LOOKUPS)]
        await for_each(groups, self._look_up_some)

    async def _look_up_some(self, task_ids: Sequence[str]) -> None:
        looks = (self._look_up(task_id) for task_id in task_ids)
        raise_first(await asyncio.gather(*looks, return_exceptions=True))

    async def _look_up(self, task_id: str) -> None:
        try:
            await self._tasks.has_ended(task_id)
        except UnknownFormat as error:
            for lane, _ in self._waiting.pop(task_id, ()):
                lane.unpark()
                self._ring.leave(lane, error)
            return
        for lane, taken in self._waiting.pop(task_id, ()):
            lane.unpark()
            lane.give_back(taken)
            self._ring.released(lane)
        self._wake()
