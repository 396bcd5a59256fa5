"""Keeps the last hour, a point every five seconds while somebody looks; lost with the process.

Of tasks it keeps the fifty that get or are entitled to most, and those that somebody asks for.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from pushlane.model.times import HOUR_MS
from pushlane.now.picture import Picture, TaskPicture

_POINTS = 720
_POINT_MS = HOUR_MS // _POINTS
_LARGEST = 50
_MOST_ASKED = 50
_ASKED_S = 60.0


class TaskRates:
    """The rates of some tasks, and the entitled ones, in pushes a second; 8 bytes a task."""

    def __init__(self, tasks: Sequence[TaskPicture], before: TaskRates | None) -> None:
        ids = tuple(one.task.id for one in tasks)
        self._ids: tuple[str, ...] = (
            before._ids if before is not None and before._ids == ids else ids
        )
        self._rates = array("f")
        for one in tasks:
            self._rates.extend(
                math.nan if rate is None else rate
                for rate in (one.observed_per_s, one.entitled_per_s)
            )

    def get(self, task_id: str) -> tuple[float | None, float | None] | None:
        """Return the rates of a task, each None where nobody knew; None if they are not kept."""
        if task_id not in self._ids:
            return None
        place = 2 * self._ids.index(task_id)
        observed, entitled = (_known(rate) for rate in self._rates[place : place + 2])
        return observed, entitled


class Point(NamedTuple):
    """The pushes a second at a moment (Unix ms): by sink, level and app, and of tasks."""

    at_ms: int
    per_s: Mapping[tuple[str, str, str], float]
    tasks: TaskRates


class Ring:
    """The points of the last hour."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=_POINTS)
        self._asked_s: dict[str, float] = {}

    def ask(self, task_id: str) -> None:
        """Have a task kept from now on, for a minute; the last fifty that are asked for are."""
        self._asked_s.pop(task_id, None)
        self._asked_s[task_id] = time.monotonic()
        if len(self._asked_s) > _MOST_ASKED:
            del self._asked_s[next(iter(self._asked_s))]

    def note(self, picture: Picture) -> None:
        """Keep a point, if it is time for one."""
        last = self._points[-1] if self._points else None
        if last is not None and picture.at_ms - last.at_ms < _POINT_MS:
            return
        per_s = {
            (one.sink, one.level.value, one.app): one.observed_per_s
            for one in picture.shares
            if one.app is not None and one.observed_per_s
        }
        kept = largest_of(picture.tasks, _LARGEST)
        largest = {one.task.id for one in kept}
        since_s = time.monotonic() - _ASKED_S
        asked = [task_id for task_id, asked_s in self._asked_s.items() if asked_s >= since_s]
        kept += [
            picture.by_id[task_id]
            for task_id in asked
            if task_id in picture.by_id and task_id not in largest
        ]
        kept.sort(key=lambda one: one.task.id)
        rates = TaskRates(kept, last.tasks if last else None)
        self._points.append(Point(picture.at_ms, per_s, rates))

    def since(self, at_ms: int) -> list[Point]:
        """Return the points of the hour before a time (Unix ms), the oldest first."""
        return [one for one in self._points if one.at_ms > at_ms - HOUR_MS]


def largest_of(tasks: Sequence[TaskPicture], most: int) -> list[TaskPicture]:
    """Return so many of the tasks that get or are entitled to most, the first of them first."""
    ranks = [
        (-(one.observed_per_s or 0.0), -(one.entitled_per_s or 0.0), -(one.left or 0), place)
        for place, one in enumerate(tasks)
    ]
    return [tasks[place] for *_, place in nsmallest(most, ranks)]


def _known(rate: float) -> float | None:
    return None if math.isnan(rate) else round(rate, 2)
