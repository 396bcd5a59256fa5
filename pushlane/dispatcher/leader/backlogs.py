"""Finds out how many pushes of each task are left, and at which of its sinks.

Counts come from the registry, where all processes record. Of tasks whose total is not known, and of
pushes that wait elsewhere, the broker tells how many messages there are. Each look asks for so much
at most: of very many tasks some figures are a few looks old.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pushlane.backends.backend import Backend
from pushlane.core.names import is_pool, lane_at, later_lane, own_lane
from pushlane.core.task import State, Task
from pushlane.util.texts import paged
from pushlane.util.threads import aside

LevelAtSink = tuple[str, str]
AppAtSink = tuple[str, str]
TaskAtSink = tuple[str, str, str]
"""A task's id, its level, and its sink."""


@dataclass(frozen=True, kw_only=True)
class LeaderFigures:
    """The figures at one time. Shares are from 0 to 1, times in seconds, rates in pushes a second.

    Those of tasks and apps are of the ten largest backlogs. Once they are made nobody changes them.
    """

    target_s: float
    backlog: dict[LevelAtSink, int] = field(default_factory=dict)
    oldest_age_s: dict[LevelAtSink, float] = field(default_factory=dict)
    unsent_oldest_age_s: dict[LevelAtSink, float] = field(default_factory=dict)
    waiting_backlog: dict[LevelAtSink, int] = field(default_factory=dict)
    rate_per_s: dict[LevelAtSink, float] = field(default_factory=dict)
    entitled: dict[LevelAtSink, float] = field(default_factory=dict)
    observed: dict[LevelAtSink, float] = field(default_factory=dict)
    drain_s: dict[str, float] = field(default_factory=dict)
    drain_backlog: dict[str, int] = field(default_factory=dict)
    drain_per_s: dict[str, float] = field(default_factory=dict)
    task_backlog: dict[TaskAtSink, int] = field(default_factory=dict)
    app_backlog: dict[AppAtSink, int] = field(default_factory=dict)
    app_rate_per_s: dict[AppAtSink, float] = field(default_factory=dict)
    app_entitled: dict[AppAtSink, float] = field(default_factory=dict)
    app_observed: dict[AppAtSink, float] = field(default_factory=dict)


_COUNTED_AT_ONCE = 500
_MOST_COUNTED = 5_000
_MOST_MEASURED = 200
_AT_ONCE = 8


class TaskBacklog(NamedTuple):
    """The pushes of a task that are left at a sink, some of which wait for their time.

    Since `since_ms` (Unix ms) they could have gone, as far as it is the task's to say.
    """

    task: Task
    sink: str
    left: int
    later: int
    since_ms: int

    @property
    def may_go(self) -> int:
        """How many do not wait for their time."""
        return max(0, self.left - self.later)

    @property
    def is_refilled(self) -> bool:
        """True where more may come for as long as the task goes on: `since_ms` is a guess then."""
        return self.task.is_fed or self.sink != self.task.chain[0]


@dataclass(eq=False, repr=False)
class Backlogs:
    """Remembers what was counted last. `tasks` are those that go on, by id."""

    backend: Backend
    tasks: Mapping[str, Task]
    clock_ms: Callable[[], int]

    def __post_init__(self) -> None:
        self._finished: dict[str, int] = {}
        self._on_lane: dict[str, int] = {}
        self._of_each: dict[str, int] = {}
        self._filled_ms: dict[str, int] = {}

    async def look(self) -> list[TaskBacklog]:
        """Return what is left of each task at each of its sinks.

        Raises:
            PushlaneError: the registry or the broker does not answer.
        """
        tasks = list(self.tasks.values())
        counted, measured = await aside(lambda: self._due(tasks))
        for some in paged(counted, _COUNTED_AT_ONCE):
            for progress in await self.backend.registry.progress(some):
                _renew(self._finished, progress.task_id, progress.finished)
        for names in paged(measured, _AT_ONCE):
            asked = (self.backend.broker.backlog(name) for name in names)
            for name, messages in zip(names, await asyncio.gather(*asked), strict=True):
                _renew(self._on_lane, name, messages)
        return await aside(lambda: self._told(tasks))

    def _told(self, tasks: Sequence[Task]) -> list[TaskBacklog]:
        self._of_each = self._shared_out(tasks)
        return [one for task in tasks for one in self._of(task)]

    def _due(self, tasks: Sequence[Task]) -> tuple[list[str], list[str]]:
        """Return of which tasks to count what ended, and which lanes to ask about.

        Those of which nothing was heard for longest are first. What is gone is forgotten.
        """
        ids = [task.id for task in tasks if task.total is not None]
        lanes = list(dict.fromkeys(name for task in tasks for name in self._lanes_of(task)))
        _keep(self._finished, ids)
        _keep(self._on_lane, lanes)
        _keep(self._filled_ms, [*(task.id for task in tasks), *lanes])
        return (
            _oldest(ids, self._finished)[:_MOST_COUNTED],
            _oldest(lanes, self._on_lane)[:_MOST_MEASURED],
        )

    def _lanes_of(self, task: Task) -> Iterator[str]:
        """Yield the lanes of which the messages have to be known."""
        if task.total is None and task.state is not State.SUBMITTED:
            yield task.lane
        if task.has_later:
            yield later_lane(own_lane(task.id))
        for sink in task.reached:
            yield lane_at(task.id, sink)
            yield later_lane(lane_at(task.id, sink))

    def _of(self, task: Task) -> Iterator[TaskBacklog]:
        now = self.clock_ms()
        moved = 0
        for sink in task.reached:
            lane = lane_at(task.id, sink)
            later = self._on_lane.get(later_lane(lane), 0)
            left = self._on_lane.get(lane, 0) + later
            moved += left
            yield TaskBacklog(task, sink, left, later, self._since_ms(lane, left, now))
        later = self._on_lane.get(later_lane(own_lane(task.id)), 0) if task.has_later else 0
        left = max(0, self._left(task) - moved)
        since_ms = max(task.created_at_ms, task.not_before_ms)
        if task.is_fed:
            since_ms = self._since_ms(task.id, left, now)
        yield TaskBacklog(task, task.chain[0], left, min(later, left), since_ms)

    def _left(self, task: Task) -> int:
        """Return the pushes not finished: about so many while the task is not sealed."""
        if task.total is not None:
            return task.total - self._finished.get(task.id, 0)
        if task.state is State.SUBMITTED:
            return 0
        if is_pool(task.lane):
            return self._of_each.get(task.lane, 0)
        return self._on_lane.get(task.lane, 0) * max(1, task.bundle)

    def _shared_out(self, tasks: Sequence[Task]) -> dict[str, int]:
        """Return by lane of the pool how many pushes each task there has that is not sealed.

        They share equally, as nobody knows better, what sealed tasks do not have.
        """
        sealed: Counter[str] = Counter()
        others: Counter[str] = Counter()
        for task in tasks:
            if not is_pool(task.lane):
                continue
            if task.total is not None:
                sealed[task.lane] += self._left(task)
            elif task.state is not State.SUBMITTED:
                others[task.lane] += 1
        return {
            lane: math.ceil(max(0, self._on_lane.get(lane, 0) - sealed[lane]) / count)
            for lane, count in others.items()
        }

    def _since_ms(self, name: str, left: int, now: int) -> int:
        """Return since when something has been there whenever it was looked at."""
        if not left:
            self._filled_ms.pop(name, None)
            return now
        return self._filled_ms.setdefault(name, now)


def _renew(known: dict[str, int], name: str, value: int) -> None:
    """Set a value and make it the newest."""
    known.pop(name, None)
    known[name] = value


def _keep(known: dict[str, int], names: Sequence[str]) -> None:
    """Forget all but these."""
    for name in known.keys() - set(names):
        del known[name]


def _oldest(names: Sequence[str], known: Mapping[str, int]) -> list[str]:
    """Return them in the order in which they were renewed, first those that never were."""
    places = {name: place for place, name in enumerate(known)}
    return sorted(names, key=lambda name: places.get(name, -1))
