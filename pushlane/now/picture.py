"""What the view of now shows: who goes how fast, what each is entitled to, and what holds it. Pure.

Rates are in pushes a second. What an app or a level gets is the sum of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from pushlane.core.task import Level, Progress, State, Task
from pushlane.diagnosis.causes import TaskStatus, TaskStatuses
from pushlane.diagnosis.fluid import forecasts
from pushlane.diagnosis.look import LaneSlots, rate_of
from pushlane.model.load import SinkLoad, Standing, entitled_rates, shared_by_lane, sink_now
from pushlane.model.presence import Process
from pushlane.now.rates import Counted, Rates

_NOTHING: Mapping[str, int] = {}
_PLACES = {level: place for place, level in enumerate(Level)}


class TaskPicture(msgspec.Struct, frozen=True, gc=False):
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
    nothing is known where `per_s`, what the sink takes, is not known either, as while it rests.
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

    @cached_property
    def shares(self) -> Sequence[Share]:
        """The shares of all tasks."""
        return shares(self.tasks)


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
    counts = [rates.latest.get(task.id) or _uncounted(task) for task in tasks]
    left = list(map(_left, tasks, counts))
    known = {one.name: one for one in before.sinks} if before else {}
    sinks = [
        _sink(load_of(sink=sink_now(dispatching, name), standings=()), standings, known.get(name))
        for name, standings in _by_sink(tasks, left, dispatching).items()
    ]
    entitled = {
        one.task.id: sink.rates.get(one.task.lane, 0.0) for sink in sinks for one in sink.heads
    }
    if ends is None:
        ends = {task_id: end_ms for one in sinks for task_id, end_ms in _ends(one, at_ms).items()}
    unknown = {one.name for one in sinks if not one.per_s}
    statuses, slots = TaskStatuses(dispatching, at_ms), LaneSlots(dispatching)
    shown = []
    for task, counted, backlog in zip(tasks, counts, left, strict=True):
        is_stalled = bool(task.stalled_at_ms) and task.is_half_made
        status = statuses.of(task, counted.progress, (), _NOTHING, is_stalled=is_stalled)
        per_s = counted.per_s
        shown.append(
            TaskPicture(
                task,
                status,
                counted.progress,
                backlog,
                rate_of(task, dispatching) if per_s is None else per_s,
                None if unknown and task.chain[0] in unknown else entitled.get(task.id, 0.0),
                ends.get(task.id),
                counted.over_s,
                slots.of(task),
            )
        )
    return Picture(at_ms, shown, sinks, processes, ends)


def _uncounted(task: Task) -> Counted:
    return Counted(Progress(task.id), 0, None, 0.0)


def _left(task: Task, counted: Counted) -> int | None:
    return None if task.total is None else max(0, task.total - counted.finished)


def _by_sink(
    tasks: Sequence[Task], left: Sequence[int | None], dispatching: Sequence[Process]
) -> dict[str, list[Standing]]:
    """Return the tasks by their first sink, with each sink that is served."""
    names = sorted({name for process in dispatching for name in process.sink_names})
    found: dict[str, list[Standing]] = {name: [] for name in names}
    for task, pushes in zip(tasks, left, strict=True):
        found.setdefault(task.chain[0], []).append(Standing(task, pushes))
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
    per_s = None if load.sink.rests else load.per_s()
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


def shares(tasks: Iterable[TaskPicture]) -> list[Share]:
    """Return the shares of levels and apps with these tasks, each level before its apps."""
    groups: dict[tuple[str, Level, str], list[TaskPicture]] = {}
    for one in tasks:
        if (task := one.task).state is State.RUNNING:
            groups.setdefault((task.chain[0], task.level, task.app), []).append(one)
    levels: dict[tuple[str, Level], list[Share]] = {}
    for sink, level, app in sorted(groups, key=lambda key: (key[0], _PLACES[key[1]], key[2])):
        some = groups[sink, level, app]
        share = _summed(sink, level, app, len(some), some)
        levels.setdefault((sink, level), []).append(share)
    found: list[Share] = []
    for (sink, level), apps in levels.items():
        found.append(_summed(sink, level, None, sum([one.tasks for one in apps]), apps))
        found += apps
    return found


def _summed(
    sink: str, level: Level, app: str | None, tasks: int, some: Sequence[TaskPicture | Share]
) -> Share:
    """Return the share of so many tasks, the sum of some: of rates of those that are known."""
    observed = [per_s for one in some if (per_s := one.observed_per_s) is not None]
    entitled = [per_s for one in some if (per_s := one.entitled_per_s) is not None]
    return Share(
        sink,
        level,
        app,
        tasks,
        sum([one.left or 0 for one in some]),
        sum(observed) if observed else None,
        sum(entitled) if entitled else None,
    )
