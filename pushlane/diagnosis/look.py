"""Looks at a backend for all that a diagnosis needs, and puts it together.

It also predicts how a task would fare that is not there yet, from how its sinks stand now.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from weakref import WeakKeyDictionary

from msgspec.structs import replace as with_fields

from pushlane.backends.backend import Backend
from pushlane.backends.leases import are_lines_awaited, is_awaited
from pushlane.backends.ports import Delayed, Registry
from pushlane.backends.queries import pool_size
from pushlane.core.names import lane_at, later_lane, own_lane, pool_lanes
from pushlane.core.task import Progress, State, Task, now_ms
from pushlane.diagnosis.causes import TaskStatus, TaskStatuses, causes
from pushlane.diagnosis.fluid import Expected, Flow, forecast
from pushlane.diagnosis.index import index_of
from pushlane.diagnosis.situation import (
    Cause,
    Situation,
    due_text,
    ends_in_s,
    not_before,
    share_in,
    unforeseen,
)
from pushlane.diagnosis.slowing import expiring
from pushlane.model.due import PutOff, Waiting
from pushlane.model.limits import Limit, Subject, readable_limits
from pushlane.model.load import SinkLoad, Standing, spent_of, subjects_of
from pushlane.model.presence import MOST_LANES, MOST_TASKS, Process
from pushlane.model.reasons import Reasons
from pushlane.model.task_changes import settled, settled_reasons
from pushlane.settings import Settings
from pushlane.util.texts import paged

_UNKNOWN = TaskStatus("")

_MOST_OTHERS = 50_000  # the newest tasks that are not finished
_MANY = 1_000  # from so many on a look is kept for others who ask
_AT_ONCE = 1_000
_LOOK_S = 2.0
_BETWEEN_S = 1.0
_JUST_BEGUN_MS = 10_000


@dataclass(frozen=True)
class Diagnosis:
    """What a task waits for, most important first, and how it goes on.

    `entitled_share` is the part of its sink that is its own, None while it may not go;
    `observed_per_s` how fast it goes; `backlog` its pushes left, None while its total is not known;
    `eta_s` the seconds until it is through, None when that cannot be told: then `eta_note` may say
    why. `waits` is what pushes of it wait for on a later lane, `later` how many do in all. `status`
    is how it stands, for people.
    `unread_limits` are those that cannot be read: they are left out.
    """

    task: Task
    causes: Sequence[Cause]
    entitled_share: float | None = None
    observed_per_s: float | None = None
    backlog: int | None = None
    eta_s: float | None = None
    eta_note: str = ""
    waits: Sequence[Waiting] = ()
    later: int = 0
    status: TaskStatus = _UNKNOWN
    is_stalled: bool = False
    unread_limits: Sequence[str] = ()


def diagnose(now: Situation) -> Diagnosis:
    """Return what the task waits for. Pure."""
    found, task, unread = causes(now), now.task, now.unread_limits
    status = TaskStatuses(now.processes, now.now_ms).of(
        task,
        now.progress,
        now.put_off,
        now.reasons.dead,
        is_stalled=now.is_stalled,
        is_receiving=now.is_receiving,
        moved_to=now.sinks_here if now.has_moved_on else (),
    )
    if task.state.is_terminal:
        return Diagnosis(task, found, backlog=0, status=status, unread_limits=unread)
    waits = any(cause.final and cause.name != "scheduled" for cause in found)
    share = None if waits else now.entitled_share
    eta_s, eta_note = _end(now, found)
    if late := expiring(now, found, eta_s):
        found = [late, *found]
    return Diagnosis(
        task,
        found,
        share,
        now.observed_per_s,
        now.left,
        eta_s,
        eta_note,
        now.waits,
        now.later,
        status=status,
        is_stalled=now.is_stalled,
        unread_limits=unread,
    )


def _end(now: Situation, found: Sequence[Cause]) -> tuple[float | None, str]:
    """Return in how many seconds the task is through; None when that cannot be told, and why."""
    expected = expected_end(now, found, now.load.per_s())
    not_before_ms = not_before(now)
    no_earlier = f"not before {due_text(not_before_ms, now.now_ms)}" if not_before_ms else ""
    if expected is None:
        return None, no_earlier
    why_not = unforeseen(now, expected.ends_in_s)
    return (None, why_not or no_earlier) if why_not else (expected.ends_in_s, "")


def expected_end(now: Situation, found: Sequence[Cause], per_s: float | None) -> Expected | None:
    """Return when the task begins and is through, with what waits for its time; None if not known.

    The sink takes `per_s` pushes a second in all, None when nobody knows.
    """
    holds = (cause for cause in found if cause.final and cause.name != "scheduled")
    is_held = any(not cause.name.startswith("later") for cause in holds)
    if is_held or any(cause.at_later for cause in found):
        return None
    goes = None if now.all_wait else forecast(now.load, now.task.id, per_s)
    share = now.entitled_share
    return end_of(now, goes, per_s if per_s is None or share is None else share * per_s)


def end_of(now: Situation, goes: Expected | None, own_per_s: float | None) -> Expected | None:
    """Return the same of a task that nothing holds: what may go now `goes`, as far as is known.

    What waits for its time goes at `own_per_s` from then on.
    """
    if goes is None and not now.all_wait and now.may_go and now.observed_per_s:
        goes = Expected(0.0, now.may_go / now.observed_per_s)
    ends_s = ends_in_s(now, goes.ends_in_s if goes else None, own_per_s or now.observed_per_s)
    if ends_s is None:
        return None
    first_s = (min((one.first_ms for one in now.waits), default=now.now_ms) - now.now_ms) / 1000
    return Expected(goes.starts_in_s if goes else max(0.0, first_s), ends_s)


async def why(
    backend: Backend,
    task_id: str,
    settings: Settings | None = None,
    *,
    shows_targets: bool = False,
) -> Diagnosis:
    """Say what the task waits for now; `task_id` is its id, key or name.

    With settings it says, too, which sinks those lack. With `shows_targets` it names the host of a
    sink that rests.

    It looks twice, a second apart, for how fast it goes; beside very many others it takes what
    processes say of that, where none may have left it out.

    Raises:
        UnknownTask: there is none of this id, key or name.
    """
    task = await backend.registry.get(task_id)
    now = await situation_of(backend, task, settings)
    if task.state.is_terminal:
        return diagnose(now)
    is_dear = len(now.others) >= _MANY
    observed_per_s = rate_of(task, now.processes) if is_dear else None
    if observed_per_s is None:
        [before] = await backend.registry.progress([task.id])
        began_s = time.monotonic()
        await asyncio.sleep(_BETWEEN_S)
        now = await situation_of(backend, await backend.registry.get(task.id), settings)
        passed_s = max(_BETWEEN_S, time.monotonic() - began_s)
        observed_per_s = (now.progress.finished - before.finished) / passed_s
    now = replace(now, observed_per_s=observed_per_s, shows_targets=shows_targets)
    if len(now.others) < _MANY:
        return diagnose(now)
    return await asyncio.to_thread(diagnose, now)  # it takes a while, in which others are answered


def rate_of(task: Task, processes: Sequence[Process]) -> float | None:
    """Return how fast a task goes; None where a process may have left it out, or none says it."""
    stands = [one for process in processes for one in process.served if one.name in task.chain]
    said = [one.tasks_per_s for one in stands if one.tasks_per_s is not None]
    rates = [per_s[task.id] for per_s in said if task.id in per_s]
    names_all = len(said) == len(stands) and all(len(per_s) < MOST_TASKS for per_s in said)
    return sum(rates) if rates or (said and names_all) else None


class LaneSlots:
    """The slots that lanes hold, as dispatchers say, each of the lanes that hold most there."""

    def __init__(self, dispatching: Sequence[Process]) -> None:
        held: Counter[str] = Counter()
        self._served: set[str] = set()
        self._cut: set[str] = set()  # sinks at which more lanes may hold some
        for one in (one for process in dispatching for one in process.served):
            self._served.add(one.name)
            if one.lane_slots is None or len(one.lane_slots) >= MOST_LANES:
                self._cut.add(one.name)
            held.update(one.lane_slots or {})
        self._held = dict(held)

    def of(self, task: Task) -> int | None:
        """Return how many a task holds; None where a process may have left it out, or none says.

        Tasks of the pool share a lane, so nobody knows it of one of them.
        """
        chain = task.chain
        held = self._held.get(task.lane, 0)
        if len(chain) > 1:
            held += sum(self._held.get(task.lane_at(sink), 0) for sink in chain[1:])
        is_known = held or (chain[0] in self._served and self._cut.isdisjoint(chain))
        return held if is_known and not task.pooled else None


async def situation_of(backend: Backend, task: Task, settings: Settings | None = None) -> Situation:
    """Return all that bears on when the task goes, as it is now."""
    [progress] = await backend.registry.progress([task.id])
    active = await active_at(backend, task.chain[0])
    at_ms = now_ms()
    limits, unread = await readable_limits(backend.documents)
    [put_off] = await backend.registry.put_offs([task.id])
    lane = later_lane(own_lane(task.id))
    delayed = await backend.broker.delayed(lane) if task.has_later else None
    on_later = await _on_later(backend, task)
    subjects = [each for one in (task, *(one.task for one in active)) for each in subjects_of(one)]
    return Situation(
        task=task,
        progress=settled(task, progress),
        others=[one for one in active if one.task.id != task.id],
        weights=await backend.registry.weights(),
        processes=await dispatchers(backend),
        now_ms=at_ms,
        limits=limits,
        unread_limits=[*unread],
        spent=await spent_of(backend.limiter, subjects, limits, at_ms),
        is_stalled=await is_stalled(backend, task, at_ms),
        is_receiving=await is_receiving(backend, task),
        waiting=await backend.broker.backlog(task.lane),
        later=_later(task, put_off, delayed, on_later, at_ms),
        put_off=put_off,
        delayed=delayed,
        settings=settings,
        reasons=settled_reasons(task, progress, (await reasons_of(backend, [progress]))[task.id]),
        at_later={sink: await _backlog_at(backend, task, sink) for sink in task.reached},
    )


async def reasons_of(backend: Backend, progress: Sequence[Progress]) -> dict[str, Reasons]:
    """Return by task why pushes were not delivered; those that have none are not asked about."""
    asked = [counts.task_id for counts in progress if counts.finished > counts.delivered]
    found = await backend.registry.reasons(asked) if asked else []
    return {counts.task_id: Reasons(counts.task_id) for counts in progress} | {
        one.task_id: one for one in found
    }


def _later(
    task: Task, put_off: Sequence[PutOff], delayed: Delayed | None, on_later: int, at_ms: int
) -> int:
    """Return how many pushes of a task wait for their time.

    On a lane that tasks share it is known only of those that were noted.
    """
    if delayed is not None:
        return delayed.messages
    if task.pooled:
        return sum(one.pushes for one in put_off if one.waits(at_ms))
    return on_later


async def _on_later(backend: Backend, task: Task) -> int:
    """Return how many messages of a task are on its own later lane."""
    return await backend.broker.backlog(later_lane(own_lane(task.id))) if task.has_later else 0


async def _backlog_at(backend: Backend, task: Task, sink: str) -> int:
    """Return how many messages of a task are at a sink behind its first, for now or later."""
    lane = lane_at(task.id, sink)
    later = await backend.broker.backlog(later_lane(lane))
    return later + await backend.broker.backlog(lane)


async def _has_moved_on(backend: Backend, task: Task) -> bool:
    """Return whether all that is left of a task waits at sinks behind its first."""
    if not task.reached or task.pooled or task.total is None:
        return False
    return not (await backend.broker.backlog(task.lane) or await _on_later(backend, task))


async def moved_to(backend: Backend, task: Task) -> list[str]:
    """Return the sinks behind its first where all that is left of a task waits; none if not all."""
    if not await _has_moved_on(backend, task):
        return []
    return [sink for sink in task.reached if await _backlog_at(backend, task, sink)]


async def active_at(backend: Backend, sink: str) -> list[Standing]:
    """Return the tasks that are not finished and go to a sink first: of very many the newest."""
    return [
        with_fields(one, has_moved_on=await _has_moved_on(backend, one.task))
        for one in await active(backend, {sink})
    ]


@dataclass(frozen=True)
class Backlog:
    """The tasks that are not finished, as they were at a moment (Unix ms), for all who ask.

    `flows` has how each sink flows as things are, with what it was told by: once for all who ask.
    """

    at_ms: int
    standings: Sequence[Standing]
    flows: dict[str, tuple[SinkLoad, Flow]] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[str, Standing]:
        return {one.task.id: one for one in self.standings}

    @cached_property
    def by_sink(self) -> Mapping[str, Sequence[Standing]]:
        """The same by the sink that a task goes to first."""
        found: dict[str, list[Standing]] = {}
        for one in self.standings:
            found.setdefault(one.task.chain[0], []).append(one)
        return found

    def has(self, task: Task) -> bool:
        """Tell whether it has a task no older than this."""
        found = self.by_id.get(task.id)
        return found is not None and found.task.version >= task.version


class _Looks:
    """The looks of a process at the tasks of a registry: one at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._last = Backlog(0, ())
        self._began_s = -math.inf
        self._next: asyncio.Task[Backlog] | None = None

    async def backlog(self, backend: Backend, task: Task | None) -> Backlog:
        """Return a new look. Of many tasks it may be two seconds old: who asks on and on waits
        for none, as the next is begun before that.
        """
        age_s = time.monotonic() - self._began_s
        if task is not None and not self._last.has(task):
            return await self._look(backend, 0.0)
        if age_s < _LOOK_S and len(self._last.standings) >= _MANY:
            if age_s > _LOOK_S / 2 and (self._next is None or self._next.done()):
                self._next = asyncio.create_task(self._look(backend, _LOOK_S / 2), name="look")
                self._next.add_done_callback(_forgiven)
            return self._last
        return await self._look(backend, _LOOK_S)

    async def _look(self, backend: Backend, most_s: float) -> Backlog:
        """Return a new look, or that of who looked meanwhile."""
        async with self._lock:
            is_old = time.monotonic() - self._began_s >= most_s
            if is_old or len(self._last.standings) < _MANY:
                began_s, at_ms = time.monotonic(), now_ms()
                self._last = Backlog(at_ms, await _unfinished(backend, self._last))
                self._began_s = began_s
            return self._last


def _forgiven(look: asyncio.Task[Backlog]) -> None:
    """Leave an error of a look that was made ahead to the next who asks."""
    if not look.cancelled():
        look.exception()


_looks: WeakKeyDictionary[Registry, _Looks] = WeakKeyDictionary()


async def backlog(backend: Backend, task: Task | None = None) -> Backlog:
    """Return all tasks that are not finished: of very many the newest, two seconds old at most.

    Where one is named, they are looked at anew if that one has changed since.
    """
    return await _looks.setdefault(backend.registry, _Looks()).backlog(backend, task)


async def active(backend: Backend, sinks: Container[str]) -> list[Standing]:
    """Return the same of several sinks; the broker is not asked which of them have moved on.

    Of many tasks the answer may be two seconds old.
    """
    found = await backlog(backend)
    return [one for sink, some in found.by_sink.items() if sink in sinks for one in some]


async def _unfinished(backend: Backend, last: Backlog) -> list[Standing]:
    """Return how each task stands, the newest first; one that stands as in the last look is kept.

    The tasks are those of the process's index, which reads only what has changed.
    """
    index = index_of(backend.registry)
    await index.follow_unfinished(backend.registry)
    tasks = sorted(index.unfinished.values(), key=_age, reverse=True)[:_MOST_OTHERS]
    known, found = last.by_id, []
    for some in paged(tasks, _AT_ONCE):
        progress = await backend.registry.progress([task.id for task in some])
        later = await later_of(backend, some)
        for task, counts in zip(some, progress, strict=True):
            left = None if task.total is None else task.total - counts.finished
            waits, one = later.get(task.id, 0), known.get(task.id)
            if one is None or one.task is not task or (one.left, one.later) != (left, waits):
                one = Standing(task, left, later=waits)
            found.append(one)
    return found


def _age(task: Task) -> tuple[int, str]:
    return task.created_at_ms, task.id


async def loads(
    backend: Backend, tasks: Iterable[Task], at_ms: int
) -> tuple[Callable[..., SinkLoad], Sequence[str]]:
    """Return what makes the load of a sink of `sink` and `standings`, and limits left out.

    The standings are of these tasks.
    """
    limits, unread = await readable_limits(backend.documents)
    apps = {one.app for one in tasks} if limits else set()
    subjects = {*limits, *(Subject("app", app) for app in apps)}
    load_of = partial(
        SinkLoad,
        weights=await backend.registry.weights(),
        limits=limits,
        spent=await spent_of(backend.limiter, subjects, limits, at_ms),
        now_ms=at_ms,
    )
    return load_of, [*unread]


async def later_of(backend: Backend, tasks: Sequence[Task]) -> dict[str, int]:
    """Return by task how many pushes are noted to wait for their time now."""
    at_ms = now_ms()
    found = await put_offs_of(backend, tasks)
    return {
        task_id: sum(one.pushes for one in some if one.waits(at_ms))
        for task_id, some in found.items()
    }


async def put_offs_of(backend: Backend, tasks: Sequence[Task]) -> dict[str, Sequence[PutOff]]:
    """Return what is noted of pushes that wait, by task: only of tasks that may have any."""
    asked = [
        task.id for task in tasks if task.state is State.RUNNING and (task.has_later or task.pooled)
    ]
    noted = await backend.registry.put_offs(asked) if asked else []
    return dict(zip(asked, noted, strict=True))


async def dispatchers(backend: Backend) -> list[Process]:
    """Return the processes that dispatch now."""
    return [one for one in await backend.presence.list() if one.kind == "dispatcher"]


async def is_stalled(backend: Backend, task: Task, at_ms: int) -> bool:
    """Return whether its submit has stopped half-way, as nobody holds the submit's lease."""
    if not task.is_half_made:
        return False
    is_young = at_ms - task.created_at_ms < _JUST_BEGUN_MS
    return not is_young and not await is_awaited(backend.lease, task.id)


async def is_receiving(backend: Backend, task: Task) -> bool:
    """Return whether more of its pushes are to come, as lines."""
    return task.is_half_made and await are_lines_awaited(backend.lease, task.id)


@dataclass(frozen=True)
class SinkPrediction:
    """How the pushes of a task would fare at one sink; None for what cannot be told.

    `sink_per_s` is what the sink takes in all, `entitled_share` the part of it that is the task's
    at the start. `waits` is what of them waits for its time. `unread_limits` are left out, as they
    cannot be read.
    """

    sink: str
    pushes: int
    causes: Sequence[Cause]
    entitled_share: float | None
    sink_per_s: float | None
    expected: Expected | None
    waits: Sequence[Waiting] = ()
    unread_limits: Sequence[str] = ()


async def predict(
    backend: Backend,
    settings: Settings,
    task: Task,
    by_sink: Mapping[str, int],
    put_off: Mapping[str, Sequence[PutOff]] | None = None,
    limit: Limit | None = None,
    *,
    shows_targets: bool = False,
) -> list[SinkPrediction]:
    """Return for each sink how so many pushes of the task would fare, from now on.

    `put_off` are those of them that would wait for their time, by sink; `limit` is the task's.
    With `shows_targets` causes name the host of a sink that rests.
    """
    own = {Subject("task", task.id): limit} if limit else {}
    lane = await _pool_lane(backend, settings, task) if task.pooled else task.lane
    made = with_fields(task, state=State.RUNNING, lane=lane)
    predicted = []
    for sink, pushes in by_sink.items():
        if pushes:
            notes = (put_off or {}).get(sink, ())
            later = sum(one.pushes for one in notes)
            alone = with_fields(made, total=pushes, lane=made.lane_at(sink), sinks=(sink,))
            now = await situation_of(backend, alone, settings)
            here = replace(
                now,
                waiting=pushes - later,
                later=later,
                put_off=notes,
                knows_rows=True,
                limits={**now.limits, **own},
                shows_targets=shows_targets,
            )
            predicted.append(_predicted(here))
    return predicted


def _predicted(now: Situation) -> SinkPrediction:
    """Return how the task would fare. Pure."""
    load, task = now.load, now.task
    per_s = load.per_s(but=task.id, settled=True)
    found = causes(now)
    expected = expected_end(now, found, per_s)
    begins = replace(now, now_ms=max(now.now_ms, task.not_before_ms))
    share = share_in(begins.load, task, per_s)
    return SinkPrediction(
        task.chain[0], task.total or 0, found, share, per_s, expected, now.waits, now.unread_limits
    )


async def _pool_lane(backend: Backend, settings: Settings, task: Task) -> str:
    """Return the lane of the pool with the least left on it, as a submit chooses about."""
    sink = task.chain[0]
    left = dict.fromkeys(
        pool_lanes(await pool_size(backend.documents, settings.pool_lanes), sink), 0.0
    )
    for one in await active_at(backend, sink):
        if one.task.lane in left:
            left[one.task.lane] += one.backlog
    return min(left, key=lambda lane: left[lane])
