"""What the view of now shows: who goes how fast, what each is entitled to, and what holds it. Pure.

Rates are in pushes a second. What an app or a level gets is the sum of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from pushlane.core.task import Level, Progress, State, Task
from pushlane.diagnosis.causes import TaskStatus, TaskStatuses
from pushlane.diagnosis.fluid import forecasts
from pushlane.diagnosis.look import LaneSlots, rate_of
from pushlane.model.load import SinkLoad, Standing, entitled_rates, shared_by_lane, sink_now
from pushlane.model.presence import Process
from pushlane.now.rates import Rates

_NOTHING: Mapping[str, int] = {}


class TaskPicture(NamedTuple):
    """A task that is not finished. None is what nobody knows; `ends_at_ms` is Unix ms.

    `entitled_per_s` is 0 for one that may not go now. `left` is None while its total is not known.
    `counted_s` is over how many seconds it was counted what goes: 0 where processes say it.
    `slots` is what it holds, as processes said up to 5 s ago.
    """

    task: Task
    status: TaskStatus
    progress: Progress
    left: int | None
    observed_per_s: float | None
    entitled_per_s: float | None
    ends_at_ms: float | None
    counted_s: float
    slots: int | None = None

    @property
    def sink(self) -> str:
        return self.task.chain[0]


@dataclass(frozen=True)
class SinkPicture:
    """A sink, with the load by which it is shared, and all tasks there, paused ones too.

    `heads` are those that may go now, one of each lane, and `rates` what each lane is entitled to:
    nothing is known where `per_s`, what the sink takes, is not known either.
    """

    load: SinkLoad
    standings: Sequence[Standing]
    per_s: float | None
    heads: Sequence[Standing] = ()
    rates: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.load.sink.name


@dataclass(frozen=True)
class Picture:
    """All that is seen at one look, at `at_ms` (Unix ms)."""

    at_ms: int
    tasks: Sequence[TaskPicture] = ()
    sinks: Sequence[SinkPicture] = ()
    processes: Sequence[Process] = ()
    ends: Mapping[str, float] = field(default_factory=dict)
    unread_limits: Sequence[str] = ()

    @cached_property
    def by_id(self) -> Mapping[str, TaskPicture]:
        """The tasks by their ids."""
        return {one.task.id: one for one in self.tasks}


def picture_of(
    tasks: Sequence[Task],
    rates: Rates,
    processes: Sequence[Process],
    load_of: Callable[..., SinkLoad],
    at_ms: int,
    ends: Mapping[str, float] | None = None,
    before: Picture | None = None,
) -> Picture:
    """Put the picture of these tasks together. `load_of` makes the load of a sink and standings.

    `ends` are those that were told just now, by id, in Unix ms; without them they are told anew.
    Of the picture `before` this one what tasks are entitled to is taken where nothing has changed
    by which they share.
    """
    dispatching = [one for one in processes if one.kind == "dispatcher"]
    statuses = TaskStatuses(dispatching, at_ms)
    counts = {task.id: rates.latest.get(task.id) or Progress(task.id) for task in tasks}
    known = {one.name: one for one in before.sinks} if before else {}
    sinks: list[SinkPicture] = []
    entitled: dict[str, float] = {}
    told: dict[str, float] = {}
    for name, standings in _by_sink(tasks, counts, dispatching).items():
        load = load_of(sink=sink_now(dispatching, name), standings=())
        sink = _sink(load, standings, known.get(name))
        sinks.append(sink)
        entitled |= {one.task.id: sink.rates.get(one.task.lane, 0.0) for one in sink.heads}
        told |= _ends(sink, at_ms) if ends is None else {}
    ends = told if ends is None else ends
    flows = {one.name for one in sinks if one.per_s}
    slots = LaneSlots(dispatching)
    shown = []
    for task in tasks:
        progress = counts[task.id]
        status = statuses.of(task, progress, (), _NOTHING, is_stalled=_is_stalled(task))
        counted = rates.of(task.id)
        shown.append(
            TaskPicture(
                task,
                status,
                progress,
                None if task.total is None else max(0, task.total - progress.finished),
                rate_of(task, dispatching) if counted is None else counted.per_s,
                entitled.get(task.id, 0.0) if task.chain[0] in flows else None,
                ends.get(task.id),
                counted.over_s if counted else 0.0,
                slots.of(task),
            )
        )
    return Picture(at_ms, shown, sinks, processes, ends)


def _by_sink(
    tasks: Sequence[Task], counts: Mapping[str, Progress], dispatching: Sequence[Process]
) -> dict[str, list[Standing]]:
    """Return the tasks by their first sink, with each sink that is served."""
    names = sorted({name for process in dispatching for name in process.sink_names})
    found: dict[str, list[Standing]] = {name: [] for name in names}
    for task in tasks:
        left = None if task.total is None else task.total - counts[task.id].finished
        found.setdefault(task.chain[0], []).append(Standing(task, left))
    return found


def _ends(sink: SinkPicture, at_ms: int) -> dict[str, float]:
    """Return when tasks of a sink will be through, in Unix ms, those of which it can be told.

    Of a sink that rests nobody knows when it goes on, nor when pushes are through that went on to a
    later one.
    """
    if sink.load.sink.rests:
        return {}
    ids = [one.task.id for one in sink.load.standings if not one.task.reached]
    found = forecasts(sink.load, ids, sink.per_s)
    return {task_id: at_ms + one.ends_in_s * 1000 for task_id, one in found.items()}


def _sink(load: SinkLoad, standings: Sequence[Standing], before: SinkPicture | None) -> SinkPicture:
    active = [one for one in standings if one.is_active()]
    if load.spent:
        active = [one for one in active if not load.spent_totals(one.task)]
    load = replace(load, standings=active)
    per_s = load.per_s()
    if not per_s:
        return SinkPicture(load, standings, per_s)
    heads = [some[0] for some in shared_by_lane(load.going).values()]
    if before is not None and _is_shared_alike(before, load, heads, per_s):
        return SinkPicture(load, standings, per_s, heads, before.rates)
    return SinkPicture(load, standings, per_s, heads, entitled_rates(load, heads, per_s))


def _is_shared_alike(
    before: SinkPicture, load: SinkLoad, heads: Sequence[Standing], per_s: float
) -> bool:
    """Tell whether these tasks share a sink as they did before, by the same rules."""
    then = before.load
    return (
        (before.per_s, then.weights, then.limits) == (per_s, load.weights, load.limits)
        and then.sink == load.sink
        and [one.task for one in before.heads] == [one.task for one in heads]
    )


def _is_stalled(task: Task) -> bool:
    return bool(task.stalled_at_ms) and task.is_half_made


@dataclass(frozen=True)
class Share:
    """What a level, or an app of it, gets of a sink beside what it is entitled to now."""

    sink: str
    level: Level
    app: str | None
    tasks: int
    left: int
    observed_per_s: float | None
    entitled_per_s: float | None


def shares(tasks: Sequence[TaskPicture]) -> list[Share]:
    """Return the shares of levels and apps with these tasks, each level before its apps."""
    groups: dict[tuple[str, Level, str | None], list[TaskPicture]] = {}
    for one in tasks:
        if (task := one.task).state is State.RUNNING:
            sink = one.sink
            for app in (None, task.app):
                groups.setdefault((sink, task.level, app), []).append(one)
    order = list(Level)
    keys = sorted(groups, key=lambda key: (key[0], order.index(key[1]), key[2] or ""))
    return [
        Share(
            *key,
            len(groups[key]),
            sum(one.left or 0 for one in groups[key]),
            _sum([one.observed_per_s for one in groups[key]]),
            _sum([one.entitled_per_s for one in groups[key]]),
        )
        for key in keys
    ]


def _sum(values: Sequence[float | None]) -> float | None:
    """Return the sum of those that are known; None when none is."""
    known = [one for one in values if one is not None]
    return sum(known) if known else None
