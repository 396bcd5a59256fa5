"""Knows of lanes that tasks share when nothing of an ended task can come off them any more.

Such a lane is never dropped, so that is known by where its end once was: when all up to there is
acked, whatever ended before that look has nothing left on it. One end is remembered a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dispatcher.backoff import for_each
from lanes.naming import is_pool, later_lane
from lanes.ports import Broker
from lanes.task import Task

_AT_ONCE = 8


class Passed:
    """`clock_ms` is a clock in Unix milliseconds, the one by which `since_ms` is told."""

    def __init__(self, broker: Broker, clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._clock_ms = clock_ms
        self._ends: dict[str, tuple[int, Any]] = {}
        self._past_ms: dict[str, int] = {}

    async def look(self, asked: Iterable[tuple[Task, int]]) -> None:
        """Look at the lanes of these tasks, each known to have ended at a time."""
        since_ms: dict[str, int] = {}
        for task, ended_ms in asked:
            for lane in shared_lanes(task):
                since_ms[lane] = max(since_ms.get(lane, 0), ended_ms)
        wanted = [(lane, at) for lane, at in since_ms.items() if self._past_ms.get(lane, 0) < at]
        await for_each(wanted, self._look, _AT_ONCE)

    async def _look(self, wanted: tuple[str, int]) -> None:
        """An end from before the task's is of no use to it once that is past: take another."""
        lane, since_ms = wanted
        while self._past_ms.get(lane, 0) < since_ms:
            if lane not in self._ends:
                self._ends[lane] = (self._clock_ms(), await self._broker.end_of(lane))
            at_ms, end = self._ends[lane]
            if not await self._broker.is_past(lane, end):
                return
            self._past_ms[lane] = at_ms
            del self._ends[lane]

    def is_past(self, task: Task, ended_ms: int) -> bool:
        """Whether nothing of a task that has ended by then is left on lanes that it shares."""
        return all(self._past_ms.get(lane, 0) >= ended_ms for lane in shared_lanes(task))


def shared_lanes(task: Task) -> list[str]:
    homes = {lane for lane in (task.first_lane, task.lane) if is_pool(lane)}
    return [lane for home in sorted(homes) for lane in (home, later_lane(home))]
