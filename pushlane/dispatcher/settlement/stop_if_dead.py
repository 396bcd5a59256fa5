"""Pauses a task of which too many pushes die, where they are counted.

The counts are those of all processes, so whoever counts past the limit sees it, and of several that
do one pauses the task. What is in flight then still lands.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pushlane.backends.backend import Backend
from pushlane.core.endings import Ending
from pushlane.core.errors import UnknownFormat, UnknownTask
from pushlane.core.retrying import Backoff, for_each, whenever
from pushlane.core.task import Finished, Progress, State
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.lanes.death_reasons import DEAD_ADDRESS, Deaths
from pushlane.model.stop_rule import StopRule, read_stop_rule

log = logging.getLogger("pushlane.pauses")

_AT_ONCE = 8


class _Passed(NamedTuple):
    """A task that is to be paused: `failed` of `ended` pushes, since its limit was set `anew`."""

    task_id: str
    failed: int
    ended: int
    anew: bool


class StopIfDead:
    """Keeps to the tasks' `stop_if_dead`."""

    def __init__(self, backend: Backend, tasks: KnownTasks) -> None:
        self._backend = backend
        self._tasks = tasks
        self._passed: dict[str, _Passed] = {}
        self._due = asyncio.Event()

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        """Hear of what is counted now."""
        self.on_counted(progress, finished)

    def on_counted(self, progress: Sequence[Progress], finished: Sequence[Finished]) -> None:
        """Hear how far tasks are, now that these seqs are counted."""
        ruled = [(one, found) for one in progress if one.failed and (found := self._rule(one))]
        if not ruled:
            return
        added: Counter[str] = Counter()
        for group in finished:
            added[group.task_id] += len(group.seqs)
        for one, (rule, since) in ruled:
            if rule.is_passed(one, added[one.task_id], since):
                ended, failed = one.finished - since[0], one.failed - since[1]
                passed = _Passed(one.task_id, failed, ended, anew=any(since))
                self._passed.setdefault(one.task_id, passed)
                self._due.set()

    async def run(self) -> None:
        """Pause what has passed its limit, until cancelled."""
        await whenever(self._due, self._stop_all, Backoff(log, "the registry"))

    def _rule(self, progress: Progress) -> tuple[StopRule, tuple[int, int]] | None:
        """Return the rule that may stop a task now, and what it does not count."""
        task = self._tasks.find(progress.task_id)
        if task is None or task.stopped or task.state is not State.RUNNING:
            return None
        if task.total is not None and progress.finished >= task.total:
            return None
        rule = read_stop_rule(task.stop_if_dead)
        return rule and (rule, task.stop_since)

    async def _stop_all(self) -> None:
        await for_each(list(self._passed.values()), self._stop, _AT_ONCE)

    async def _stop(self, passed: _Passed) -> None:
        await self._pause(passed)
        del self._passed[passed.task_id]

    async def _pause(self, passed: _Passed) -> None:
        task_id = passed.task_id
        [deaths] = await self._backend.registry.deaths([task_id])
        reason = _reason(passed, deaths)
        try:
            task = await self._backend.stop(task_id, reason)
        except (UnknownTask, UnknownFormat):  # it is forgotten, or is a newer version's
            return
        self._tasks.apply(task)
        if task.reason == reason:
            log.warning("task %s is paused: %s", task_id, reason, extra={"action": "task_paused"})


def _reason(passed: _Passed, deaths: Deaths) -> str:
    commonest = next((one for one in deaths.by_reason if one != DEAD_ADDRESS), "")
    most = f", most often {commonest}" if commonest else ""
    since = " since the limit was set" if passed.anew else ""
    task_id = passed.task_id
    return (
        f"stopped: {passed.failed:,} of {passed.ended:,} died{since}{most}; mend it, then pushlane "
        f"resume {task_id} (dead ones: pushlane dead retry --task {task_id})"
    )
