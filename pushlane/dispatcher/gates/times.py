"""Keeps pushes whose time has not come: for a start, their own or their task's, a retry, or quiet
hours.

Notes what waits on later lanes, so that people can be told what for, and until when.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pushlane.backends.ports import ProgressStore
from pushlane.core.endings import Ending
from pushlane.core.errors import PushlaneError
from pushlane.core.lane import Job
from pushlane.core.push import EXPIRED, Outcome, Push
from pushlane.core.settle import Settler
from pushlane.core.task import Finished, Progress, Task, now_ms
from pushlane.dispatcher.gates import BaseOption
from pushlane.dispatcher.stats import Stats
from pushlane.model.due import PutOffTally, due_ms, eligible_ms, hop_s, wait_of


class Times(BaseOption):
    """The gate of pushes that have a time. `clock_ms` tells it, as Unix milliseconds."""

    def __init__(self, settler: Settler, stats: Stats, clock_ms: Callable[[], int]) -> None:
        self._settler = settler
        self._stats = stats
        self._clock_ms = clock_ms

    def concerns(self, task: Task) -> bool:
        return bool(task.not_before_ms or task.quiet)

    def concerns_push(self, push: Push) -> bool:
        return push.not_before_ms != 0 or push.due_at_ms != 0

    def lets(self, job: Job, end: Outcome | None) -> bool:
        """Tell whether the push may go now; if not, it waits on its later lane."""
        if end is EXPIRED:
            return True
        task, push, now = job.task, job.push, self._clock_ms()
        if (due := due_ms(task, push, now)) <= now:
            return True
        self._stats.deferred += 1
        if eligible_ms(task, push) < now:  # quiet hours began while it waited for its turn
            job.set_aside("quiet")
        self._settler.put_off(job, hop_s(due, now), wait_of(task, push, due, now))
        return False


log = logging.getLogger("pushlane.settle")


class PutOffNotes:
    """Hears of pushes that are put off. For people alone: left out when the registry is away."""

    def __init__(self, registry: ProgressStore) -> None:
        self._registry = registry

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        tally, now = PutOffTally(), now_ms()
        for ending in endings:
            if ending.wait is not None:
                task_id, delay_ms = ending.job.push.task_id, round(ending.delay_s * 1000)
                tally.add(task_id, ending.wait, now + delay_ms)
        if put_off := tally.take():
            try:
                await self._registry.put_off(put_off)
            except PushlaneError as error:
                log.debug("the new times of delayed pushes are not recorded: %s", error)
