"""Says of all tasks together why anything waits: by sink and level, with the worst tasks.

Each task is read once. What they share a sink by is what `why` goes by for one of them, but that
what went on to a later sink of a chain counts at the first.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest

from pushlane.backends.backend import Backend
from pushlane.backends.ports import TaskQuery, pages
from pushlane.core.task import ACTIVE_STATES, Level, State, Task, now_ms
from pushlane.diagnosis.causes import TaskStatus, TaskStatuses
from pushlane.diagnosis.look import is_receiving, loads, put_offs_of, reasons_of
from pushlane.diagnosis.situation import resting_since
from pushlane.model.limits import Subject
from pushlane.model.load import (
    SinkLoad,
    Standing,
    entitled_rates,
    shared_by_lane,
    sink_now,
)
from pushlane.model.presence import Process
from pushlane.model.states import FAILING, RECEIVING, RESTING, SCHEDULED, STALLED, WAITING

MOST_NAMED = 10
"""Tasks, and limits, that are named."""

_MOST_TASKS = 20_000  # the newest
_WORST_FIRST = (
    STALLED,
    FAILING,
    WAITING,
    State.RUNNING,
    State.PAUSED,
    RESTING,
    RECEIVING,
    State.SUBMITTED,
)
_BINDS = 0.99


@dataclass(frozen=True)
class TaskNow:
    """A task and how it stands. `left` is None while its total is not known; `later` of them wait
    for their time. Its pushes could have gone since `since_ms` (Unix ms).
    """

    task: Task
    status: TaskStatus
    left: int | None
    later: int
    since_ms: int


@dataclass(frozen=True)
class LevelNow:
    """A level at a sink: its tasks, their pushes, and its part of the sink, from 0 to 1.

    `entitled` is the part that it has a right to now, `observed` that of what went in a minute.
    """

    level: str
    tasks: int
    left: int
    later: int
    entitled: float
    observed: float


@dataclass(frozen=True)
class SinkOverview:
    """How a sink stands over all processes: `resting` says why it gets nothing, or less.

    `in_doubt` counts tasks that pushes named just now and the registry did not have.
    """

    name: str
    served_by: int
    slots: int
    in_flight: int
    per_s: float
    resting: str
    rests: bool
    left: int
    later: int
    levels: Sequence[LevelNow]
    in_doubt: int = 0


@dataclass(frozen=True)
class Overview:
    """All that waits. `states` counts tasks by how they stand; `worst` are those to look at first.

    `limits` says which of them bind now. `is_cut` tells that there are more tasks than were read.
    """

    sinks: Sequence[SinkOverview]
    limits: Sequence[str]
    worst: Sequence[TaskNow]
    states: Mapping[str, int]
    unread_limits: Sequence[str] = ()
    is_cut: bool = False


async def overview(backend: Backend) -> Overview:
    """Look at all tasks that are not finished, at the processes and at the limits."""
    processes = [one for one in await backend.presence.list() if one.kind == "dispatcher"]
    at_ms = now_ms()
    tasks, is_cut = await _tasks(backend, processes, at_ms)
    load_of, unread = await loads(backend, (one.task for one in tasks), at_ms)
    found = _overview_of(tasks, processes, load_of)
    return replace(found, unread_limits=unread, is_cut=is_cut)


async def _tasks(
    backend: Backend, processes: Sequence[Process], at_ms: int
) -> tuple[list[TaskNow], bool]:
    """Return the tasks that are not finished, and whether there are more."""
    statuses = TaskStatuses(processes, at_ms)
    found: list[TaskNow] = []
    async for page in pages(backend.registry, TaskQuery(ACTIVE_STATES)):
        progress = await backend.registry.progress([task.id for task in page])
        put_off = await put_offs_of(backend, page)
        reasons = await reasons_of(backend, progress)
        for task, counts in zip(page, progress, strict=True):
            notes = put_off.get(task.id, ())
            is_stalled = bool(task.stalled_at_ms) and task.is_half_made
            died = reasons[task.id].dead
            receives = not is_stalled and await is_receiving(backend, task)
            status = statuses.of(
                task, counts, notes, died, is_stalled=is_stalled, is_receiving=receives
            )
            left = None if task.total is None else task.total - counts.finished
            later = sum(one.pushes for one in notes if one.waits(at_ms))
            since_ms = max(task.created_at_ms, task.not_before_ms)
            found.append(TaskNow(task, status, left, min(later, left or later), since_ms))
        if len(found) >= _MOST_TASKS:
            return found, True
    return found, False


def _overview_of(
    all_tasks: Sequence[TaskNow], processes: Sequence[Process], load_of: Callable[..., SinkLoad]
) -> Overview:
    """Put the overview together. `load_of` makes a `SinkLoad` of a sink and its standings. Pure."""
    by_sink: dict[str, list[TaskNow]] = defaultdict(list)
    for one in all_tasks:
        by_sink[one.task.chain[0]].append(one)
    served = (name for process in processes for name in process.sink_names)
    sinks: list[SinkOverview] = []
    limits: list[str] = []
    for name in sorted({*by_sink, *served}):
        standings = (Standing(one.task, one.left, later=one.later) for one in by_sink[name])
        active = [one for one in standings if one.is_active()]
        load = load_of(sink=sink_now(processes, name), standings=active)
        going = [one for one in load.going if not (load.spent and load.spent_totals(one.task))]
        heads = [tasks[0] for tasks in shared_by_lane(going).values()]
        rates = entitled_rates(load, heads, load.per_s() or 1.0)
        sinks.append(_sink(load, by_sink[name], heads, rates))
        limits += _limits(load, heads, rates)
    named = [one for one in all_tasks if one.status.state != SCHEDULED]
    return Overview(
        sinks,
        list(dict.fromkeys(limits))[:MOST_NAMED],
        nsmallest(MOST_NAMED, named, key=_rank),
        Counter(str(one.status.state) for one in all_tasks),
    )


def _rank(one: TaskNow) -> tuple[int, int]:
    """Return a number that is lower the more a task is to be looked at."""
    state = one.status.state
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else 0, one.since_ms


def _sink(
    load: SinkLoad, tasks: Sequence[TaskNow], heads: Sequence[Standing], rates: Mapping[str, float]
) -> SinkOverview:
    stands = load.sink.stands
    resting = [one.resting for one in stands if one.resting is not None]
    text = ""
    if resting:
        where = f" in {len(resting)} of {len(stands)}" if len(resting) < len(stands) else ""
        text = f"{resting_since(min(resting, key=lambda one: one.since_ms))}{where}"
    return SinkOverview(
        name=load.sink.name,
        served_by=len(stands),
        slots=load.sink.slots,
        in_flight=load.sink.in_flight,
        per_s=load.sink.per_s,
        resting=text,
        rests=load.sink.rests,
        left=sum(one.left or 0 for one in tasks),
        later=sum(one.later for one in tasks),
        levels=list(_levels(load, tasks, heads, rates)),
        in_doubt=max((one.in_doubt for one in stands), default=0),
    )


def _levels(
    load: SinkLoad, tasks: Sequence[TaskNow], heads: Sequence[Standing], rates: Mapping[str, float]
) -> Iterator[LevelNow]:
    """Yield the levels that have tasks, or have sent something lately."""
    entitled: defaultdict[str, float] = defaultdict(float)
    sent: defaultdict[str, float] = defaultdict(float)
    for one in heads:
        entitled[one.task.level] += rates[one.task.lane]
    for stand in load.sink.stands:
        for name, per_s in stand.sent_per_s.items():
            sent[name] += per_s
    for level in Level:
        mine = [one for one in tasks if one.task.level is level]
        if mine or sent[level]:
            yield LevelNow(
                str(level),
                len(mine),
                sum(one.left or 0 for one in mine),
                sum(one.later for one in mine),
                entitled[level] / (sum(entitled.values()) or 1.0),
                sent[level] / (sum(sent.values()) or 1.0),
            )


def _limits(load: SinkLoad, heads: Sequence[Standing], rates: Mapping[str, float]) -> Iterator[str]:
    """Yield the limits that let less go at the sink than there is to send."""
    for one in load.standings if load.spent else ():
        for spent in load.spent_totals(one.task):
            yield f"{spent.subject}: its {spent.name.replace('_', ' ')} of {spent.most:,g} is spent"
    if load.sink.rests:  # and no limit is in the way
        return
    for subject, most_per_s in binding_limits(load, heads, rates):
        yield f"{subject}: {most_per_s:,.4g} pushes/s, all of it used"


def binding_limits(
    load: SinkLoad, heads: Sequence[Standing], rates: Mapping[str, float]
) -> Iterator[tuple[Subject, float]]:
    """Yield whose rate is all used at a sink, and what it is, by the rates of its lanes."""
    gets: defaultdict[Subject, float] = defaultdict(float)
    gets[Subject("sink", load.sink.name)] = sum(rates[one.task.lane] for one in heads)
    for one in heads if load.limits else ():
        for subject in (Subject("task", one.task.id), Subject("app", one.task.app)):
            gets[subject] += rates[one.task.lane]
    for subject, per_s in gets.items():
        most_per_s = load.most_per_s(*subject)
        if most_per_s < math.inf and per_s >= _BINDS * most_per_s:
            yield subject, most_per_s
