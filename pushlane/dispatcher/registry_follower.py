"""Makes known here what changes in the registry: tasks, level weights, what is forgotten there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from pushlane.backends.backend import Backend
from pushlane.backends.contact import REGISTRY, Contact
from pushlane.backends.ports import Changes
from pushlane.core.retrying import Backoff
from pushlane.dispatcher.line import Line
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.util.texts import paged

log = logging.getLogger("pushlane.registry_follower")

_APPLIED_AT_ONCE = 100


class RegistryFollower:
    """Applies what changes in the registry: tasks, level weights, what is forgotten there."""

    def __init__(
        self, backend: Backend, tasks: KnownTasks, lines: Sequence[Line], contact: Contact
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._lines = lines
        self._contact = contact
        self._version = 0

    async def run(self) -> None:
        self._contact[REGISTRY].asked()
        self._version = 0
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
        read_limits = partial(self._tasks.limit_first, changes.tasks)
        await Backoff(log, "the limits").until_done(read_limits)
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
