"""Forgets what is old: tasks with all of them, dead pushes and addresses, the audit, batches.

Run by whoever leads. The registry is asked for what is due, so that nobody has to remember what
ended: a look costs as much as there is to forget.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pushlane.backends.backend import Backend
from pushlane.backends.leases import Leader, LeaseGuard
from pushlane.backends.queries import Browser
from pushlane.core.errors import (
    MalformedPush,
    OutdatedFormat,
    TaskConflict,
    UnknownFormat,
    UnknownLane,
)
from pushlane.core.names import DEAD_LANE
from pushlane.core.ports import Taken
from pushlane.core.task import Task
from pushlane.model import audit, task_changes
from pushlane.model.batches import forget_batches
from pushlane.model.dead_letters import decode_dead
from pushlane.model.names import DEAD_LEASE
from pushlane.settings import Settings
from pushlane.util.retrying import for_each

log = logging.getLogger("pushlane.forgetting")

_TIDY_EVERY_S = 3_600.0
_TASKS_EVERY_S = 60.0
_AGAIN_S = 2.0
_DEAD_EVERY_S = 3_600.0
_AUDIT_EVERY_S = 3_600.0
_ADDRESSES_A_STEP = 1_000
_PAGE = 256
_AT_ONCE = 8


@dataclass(eq=False, repr=False)
class Forgetting:
    """`clock_ms` is a clock in Unix milliseconds, `clock_s` a monotonic one."""

    backend: Backend
    leader: Leader
    settings: Settings
    clock_ms: Callable[[], int] = task_changes.now_ms
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._tasks_ms = round(self.settings.task_retention_s * 1000)
        self._tasks_at_s = 0.0
        self._dead_at_s = 0.0
        self._addresses_at_s = 0.0
        self._audit_at_s = 0.0
        self._tidy_at_s = 0.0
        self._left = 0

    @property
    def has_more(self) -> bool:
        """True while the next step goes on where the last one stopped."""
        return self.clock_s() >= min(self._tasks_at_s, self._dead_at_s, self._addresses_at_s)

    async def step(self) -> None:
        """Some of what is due: no more than a page of each, so that others have their turn."""
        now, now_s = self.clock_ms(), self.clock_s()
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + _AGAIN_S
            await self.backend.registry.tidy()
            self._tidy_at_s = now_s + _TIDY_EVERY_S
        if now_s >= self._tasks_at_s:
            self._tasks_at_s = now_s + _AGAIN_S
            is_over = await self._forget_tasks(now)
            self._tasks_at_s = now_s + _TASKS_EVERY_S if is_over else now_s
        if now_s >= self._dead_at_s:
            self._dead_at_s = now_s + _TASKS_EVERY_S
            is_over = await self._purge_dead(now)
            self._dead_at_s = now_s + _DEAD_EVERY_S if is_over else now_s
        if now_s >= self._addresses_at_s:
            self._addresses_at_s = now_s + _TASKS_EVERY_S
            before = now - self.settings.dead_addresses_days * 86_400_000
            forgotten = await self.backend.dead_addresses.forget(before, _ADDRESSES_A_STEP)
            self._addresses_at_s = now_s if forgotten else now_s + _DEAD_EVERY_S
        if now_s >= self._audit_at_s:
            self._audit_at_s = now_s + _AUDIT_EVERY_S
            await audit.forget_oldest(self.backend.documents)
            await forget_batches(self.backend.documents, now)

    async def _forget_tasks(self, now: int) -> bool:
        """Forget a page of them; true when it was the last.

        Those that cannot go yet are passed over until the next round begins.
        """
        found = await self.backend.registry.ended(now - self._tasks_ms, _PAGE, self._left)
        seen = len(found.tasks) + len(found.unread)
        due = [task for task in found.tasks if self._is_due(task, now)]
        gone: list[str] = []

        async def forget(task: Task) -> None:
            if await self._forget(task):
                gone.append(task.id)

        await for_each(due, forget, _AT_ONCE)
        self._left = self._left + seen - len(gone) if seen == _PAGE else 0
        return seen < _PAGE

    def _is_due(self, task: Task, now: int) -> bool:
        """Its own retention may be longer than that of tasks."""
        kept_ms = max(self._tasks_ms, round(task.retention_s * 1000))
        return task.lane_dropped and now - task.finished_at_ms >= kept_ms

    async def _forget(self, task: Task) -> bool:
        fence = await self.leader.fence()
        if fence is None or not await self.backend.forget(task, fence):
            return False
        log.debug("task %s is forgotten", task.id, extra={"action": "forgotten"})
        return True

    async def _purge_dead(self, now: int) -> bool:
        """Purge some of those that share a lane, where they lie in the order of their deaths. True
        when none is left that is due, or a command looks through them.
        """
        busy = "a command looks through the dead pushes"
        alone = LeaseGuard(self.backend.lease, DEAD_LEASE, busy, asyncio.sleep, waits=False)
        before_ms = now - round(self.settings.dead_retention_s * 1000)
        with suppress(TaskConflict, UnknownLane, OutdatedFormat):
            return await alone.run(lambda: self._purge_lane(before_ms), lambda: None)
        return True

    async def _purge_lane(self, before_ms: int) -> bool:
        async with Browser(self.backend.broker, DEAD_LANE) as browser:
            return await self._purge(browser, before_ms)

    async def _purge(self, browser: Browser, before_ms: int) -> bool:
        """Purge one page in which something is due; true when there was none."""
        while page := await browser.page():
            died = [(taken, _died_at_ms(taken)) for taken in page]
            old = [taken for taken, at_ms in died if at_ms is not None and at_ms < before_ms]
            if old:
                await browser.remove(old)
                log.info("%d old dead pushes are purged", len(old), extra={"action": "dead_purged"})
                return False
            if any(at_ms is not None for _, at_ms in died):
                return True
        return True


def _died_at_ms(taken: Taken) -> int | None:
    """None for one that cannot be read: it stays."""
    try:
        return decode_dead(taken.body).died_at_ms
    except (MalformedPush, UnknownFormat):
        return None
