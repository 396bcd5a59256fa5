"""Looks at a backend for all that a diagnosis needs, and puts the diagnosis together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pushlane.diagnosis.cause import Cause
from pushlane.diagnosis.causes import causes
from pushlane.diagnosis.entitlement import entitled_share
from pushlane.diagnosis.forecast import forecast
from pushlane.diagnosis.situation import Situation
from pushlane.lanes.backend import Backend
from pushlane.lanes.limits import readable_limits
from pushlane.lanes.naming import lane_at, later_lane, own_lane, submit_lease
from pushlane.lanes.presence import Process
from pushlane.lanes.search import TaskQuery, pages
from pushlane.lanes.settings import Settings
from pushlane.lanes.sink_load import Standing, spent_of, subjects_of
from pushlane.lanes.suppression import EVERYWHERE, SuppressionScope
from pushlane.lanes.task import ACTIVE_STATES, Task, settled
from pushlane.lanes.task_transitions import now_ms

Sleep = Callable[[float], Awaitable[None]]

_MOST_OTHERS = 2_000  # the newest tasks that are not finished
_BETWEEN_S = 1.0
_JUST_BEGUN_MS = 10_000


@dataclass(frozen=True)
class Diagnosis:
    """What a task waits for, most important first, and how it goes on.

    `entitled_share` is the part of its sink that is its own, None while it may not go;
    `observed_per_s` how fast it goes; `backlog` its pushes left, None while its total is not known;
    `eta_s` the seconds until it is through, None when that cannot be told.
    `unread_limits` are those that cannot be read: they are left out.
    """

    task: Task
    causes: Sequence[Cause]
    entitled_share: float | None = None
    observed_per_s: float | None = None
    backlog: int | None = None
    eta_s: float | None = None
    unread_limits: Sequence[str] = ()


def diagnose(now: Situation) -> Diagnosis:
    """Return what the task waits for. Pure."""
    return replace(_diagnosed(now), unread_limits=now.unread_limits)


def _diagnosed(now: Situation) -> Diagnosis:
    found = causes(now)
    task = now.task
    if task.state.is_terminal:
        return Diagnosis(task, found, backlog=0, eta_s=None)
    waits = any(cause.final and cause.name != "scheduled" for cause in found)
    share = None if waits else entitled_share(now)
    waits = waits or any(cause.at_later for cause in found)
    expected = None if waits else forecast(now.load, task.id, now.load.per_s())
    eta_s = expected.ends_in_s if expected else None
    if eta_s is None and not waits and now.left and now.observed_per_s:
        eta_s = now.left / now.observed_per_s
    return Diagnosis(task, found, share, now.observed_per_s, now.left, eta_s)


async def why(
    backend: Backend,
    task_id: str,
    settings: Settings | None = None,
    sleep: Sleep = asyncio.sleep,
) -> Diagnosis:
    """Say what the task waits for now; `task_id` is its id, key or name.

    With settings it says, too, which sinks those lack.

    Looks at it twice, a second apart, for how fast it goes.

    Raises:
        UnknownTask: there is none of this id, key or name.
    """
    task = await backend.registry.get(task_id)
    if task.state.is_terminal:
        return diagnose(await situation_of(backend, task, settings))
    [before] = await backend.registry.progress([task.id])
    began_s = time.monotonic()
    await sleep(_BETWEEN_S)
    now = await situation_of(backend, await backend.registry.get(task.id), settings)
    passed_s = max(_BETWEEN_S, time.monotonic() - began_s)
    observed_per_s = (now.progress.finished - before.finished) / passed_s
    return diagnose(replace(now, observed_per_s=observed_per_s))


async def situation_of(backend: Backend, task: Task, settings: Settings | None = None) -> Situation:
    """Return all that bears on when the task goes, as it is now."""
    [progress] = await backend.registry.progress([task.id])
    active = await active_at(backend, task.chain[0])
    at_ms = now_ms()
    limits, unread = await readable_limits(backend.documents)
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
        waiting=await backend.broker.backlog(task.lane),
        later=await _later(backend, task),
        settings=settings,
        is_suppressing=bool(progress.dropped) and await _is_suppressing(backend, task),
        died_of=await died_of(backend, task.id) if progress.dead else {},
        at_later={sink: await _backlog_at(backend, task, sink) for sink in task.reached},
    )


async def died_of(backend: Backend, task_id: str) -> Mapping[str, int]:
    """Return the counts of a task's dead pushes by reason."""
    [deaths] = await backend.registry.deaths([task_id])
    return deaths.by_reason


async def _is_suppressing(backend: Backend, task: Task) -> bool:
    """Return whether anything is suppressed everywhere, in the task's app or at its sinks."""
    of_sinks = (SuppressionScope("sink", name) for name in task.chain)
    scopes = {EVERYWHERE, SuppressionScope("app", task.app), *of_sinks}
    return not scopes.isdisjoint(await backend.suppressions.counts())


async def _later(backend: Backend, task: Task) -> int:
    """Return how many messages of a task wait for their time, before its first sink."""
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
    return not (await backend.broker.backlog(task.lane) or await _later(backend, task))


async def active_at(backend: Backend, sink: str) -> list[Standing]:
    """Return the tasks that are not finished and go to a sink first: of very many the newest."""
    found: list[Standing] = []
    async for page in pages(backend.registry, TaskQuery(ACTIVE_STATES)):
        tasks = [task for task in page if task.chain[0] == sink]
        progress = await backend.registry.progress([task.id for task in tasks])
        for task, counts in zip(tasks, progress, strict=True):
            left = None if task.total is None else task.total - counts.finished
            found.append(Standing(task, left, await _has_moved_on(backend, task)))
        if len(found) >= _MOST_OTHERS:
            break
    return found


async def dispatchers(backend: Backend) -> list[Process]:
    """Return the processes that dispatch now."""
    return [one for one in await backend.presence.list() if one.kind == "dispatcher"]


async def is_stalled(backend: Backend, task: Task, at_ms: int) -> bool:
    """Return whether its submit has stopped half-way, as nobody holds the submit's lease."""
    if task.total is not None or task.state.is_terminal:
        return False
    is_young = at_ms - task.created_at_ms < _JUST_BEGUN_MS
    return not is_young and not await backend.lease.is_held(submit_lease(task.id))
