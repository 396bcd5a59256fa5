"""Says when a task will start and end, by letting all tasks of its sink flow off.

A fluid simulation: between two events (a task is through, or one starts) each lane flows at its
rate of `entitled_rates`; so the shares of those that are left grow while others drain. Tasks of a
lane of the pool go one after the other. With very many tasks several may be through in one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pushlane.lanes.sink_shares import entitled_rates
from pushlane.model.load import SinkLoad, Standing, shared_by_lane

_MOST_EVENTS = 500
_EXACT_EVENTS = 100
_COARSE = 0.02
_NOTHING = 1e-9


class Expected(NamedTuple):
    """Seconds from now until a task's first push goes, and until its last has."""

    starts_in_s: float
    ends_in_s: float


def forecast(load: SinkLoad, task_id: str, per_s: float | None) -> Expected | None:
    """Return when a task of the load will be through, if the sink takes so many pushes a second.

    None when it cannot be told: nothing is known of the sink, or nothing of the task ever goes.
    """
    mine = next((one for one in load.standings if one.task.id == task_id), None)
    if per_s is None or mine is None or mine.backlog == math.inf:
        return None
    return _Flow(load, per_s, task_id).run()


class _Flow:
    """The state of a simulation: how much is left of each task, after `time_s`."""

    def __init__(self, load: SinkLoad, per_s: float, task_id: str) -> None:
        self._load = load
        self._per_s = per_s
        self._task_id = task_id
        self._left = {one.task.id: one.backlog for one in load.standings}
        self._starts_s = {
            one.task.id: (one.starts_at_ms(load.now_ms) - load.now_ms) / 1000
            for one in load.standings
        }
        self._time_s = 0.0
        self._began_s: float | None = None

    def run(self) -> Expected | None:
        for event in range(_MOST_EVENTS):
            heads = self._heads()
            rates = entitled_rates(self._load, heads, self._per_s)
            self._note_start(heads, rates)
            step_s = self._next_event_s(heads, rates, is_coarse=event >= _EXACT_EVENTS)
            if step_s is None:
                return None
            self._pass(step_s, heads, rates)
            if self._left[self._task_id] <= _NOTHING:
                began_s = self._time_s if self._began_s is None else self._began_s
                return Expected(began_s, self._time_s)
        return self._extrapolated()

    def _heads(self) -> list[Standing]:
        """The tasks that flow now: of each lane the oldest that is left and has started."""
        flowing = [
            one
            for one in self._load.standings
            if self._left[one.task.id] > _NOTHING
            and self._starts_s[one.task.id] <= self._time_s + _NOTHING
        ]
        return [tasks[0] for tasks in shared_by_lane(flowing).values()]

    def _note_start(self, heads: Sequence[Standing], rates: dict[str, float]) -> None:
        if self._began_s is None:
            for one in heads:
                if one.task.id == self._task_id and rates[one.task.lane] > 0:
                    self._began_s = self._time_s

    def _next_event_s(
        self, heads: Sequence[Standing], rates: dict[str, float], *, is_coarse: bool
    ) -> float | None:
        """Return after how long a task is through or starts; None when nothing will happen.

        A coarse step is at least a part of the time in which all would be through, unless the task
        that is asked about is through before that, or another starts.
        """
        ends_s = {
            one.task.id: self._left[one.task.id] / rates[one.task.lane]
            for one in heads
            if rates[one.task.lane] > _NOTHING
        }
        starts_s = [
            start_s - self._time_s
            for start_s in self._starts_s.values()
            if start_s > self._time_s + _NOTHING
        ]
        end_s = min(ends_s.values(), default=math.inf)
        if is_coarse and end_s < math.inf:
            left = sum(left for left in self._left.values() if left < math.inf)
            least_s = min(_COARSE * left / self._per_s, ends_s.get(self._task_id, math.inf))
            end_s = max(end_s, least_s)
        step_s = min((end_s, *starts_s))
        return None if step_s == math.inf else step_s

    def _pass(self, step_s: float, heads: Sequence[Standing], rates: dict[str, float]) -> None:
        self._time_s += step_s
        for one in heads:
            gone = rates[one.task.lane] * step_s
            left = self._left[one.task.id] - gone
            self._left[one.task.id] = 0.0 if left <= _NOTHING * max(1.0, gone) else left

    def _extrapolated(self) -> Expected | None:
        """Return the end as if from now on nothing changed any more."""
        heads = self._heads()
        rates = entitled_rates(self._load, heads, self._per_s)
        lane = next(o.task.lane for o in self._load.standings if o.task.id == self._task_id)
        if not rates.get(lane):
            return None
        left = sum(self._left[o.task.id] for o in self._load.standings if o.task.lane == lane)
        end_s = self._time_s + left / rates[lane]
        return Expected(self._time_s if self._began_s is None else self._began_s, end_s)
