"""Looks at all tasks and processes every few seconds, while this process leads.

It only reads. What it finds is shown to Prometheus, and told to the other processes with what this
one says of itself: so an autoscaler may ask any of them. Who leads no more shows nothing.

What may go now, and would go sooner with more processes, is the backlog to drain: not what is
paused, waits for its time, or has used up a total; nothing at a sink that rests; and of what a
limit holds no more than the limit lets go within the target.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from pushlane.backends.backend import Backend
from pushlane.backends.ports import Presence
from pushlane.core.errors import BadInput, PushlaneError
from pushlane.core.retrying import Backoff
from pushlane.core.task import Level, Task, Weights
from pushlane.core.turns import EVERY_APP
from pushlane.dispatcher.leader.backlogs import Backlogs, LeaderFigures, TaskBacklog
from pushlane.model.limits import Limits, Subject
from pushlane.model.load import (
    SinkLoad,
    SinkNow,
    Standing,
    entitled_rates,
    shared_by_lane,
    sink_now,
    spent_of,
)
from pushlane.model.presence import DrainFigures, Process, SinkDrain
from pushlane.util.errors import NoLeader
from pushlane.util.texts import did_you_mean
from pushlane.util.threads import aside

MOST_NAMED = 10
"""Tasks, and apps, that are named: those with the largest backlogs."""

LONGEST_S = 86_400.0
"""The most seconds to drain that are shown."""

_WINDOW_MS = 60_000
_FASTEST_PER_S = 1e9  # slots whose deliveries are said to take no time promise no more


@dataclass(frozen=True, kw_only=True)
class SurveyInput:
    """All that the leader has found out at `now_ms` (Unix ms).

    `busy_since_ms` is by sink since when there has been something to send, whenever it looked;
    `spent` is what limits on totals count.
    """

    backlogs: Sequence[TaskBacklog]
    processes: Sequence[Process]
    weights: Weights
    limits: Limits
    target_s: float
    now_ms: int
    busy_since_ms: Mapping[str, int]
    spent: Mapping[Subject, Mapping[str, float]] = field(default_factory=dict)


class Summary(NamedTuple):
    """The figures for Prometheus and for autoscalers, and the sinks at which something may go.

    `odd` are tasks of which nobody can tell when they may go, by id with the error's name: they
    count as left, and as nothing to drain.
    """

    figures: LeaderFigures
    drain: DrainFigures
    busy: frozenset[str]
    odd: Mapping[str, str]


class _AtSink:
    """One sink: what is left there, what of it may go, and who serves it."""

    def __init__(self, found: SurveyInput, name: str, backlogs: Sequence[TaskBacklog]) -> None:
        self.name = name
        self.backlogs = backlogs
        self.found = found
        self.now = sink_now(found.processes, name)
        self.odd: dict[str, str] = {}
        standings = [Standing(_at(name, one.task), one.may_go) for one in backlogs]
        self.load = SinkLoad(
            sink=self.now,
            standings=[one for one in standings if one.is_active() and self._has_start(one)],
            weights=found.weights,
            limits=found.limits,
            spent=found.spent,
            now_ms=found.now_ms,
        )
        self.going = [] if self.is_shut else _unspent(self.load)
        self.shares = _shares(self.load, self.going)
        self.rates = _rates(self.now)

    def _has_start(self, one: Standing) -> bool:
        try:
            one.starts_at_ms(self.found.now_ms)
        except (PushlaneError, ArithmeticError, ValueError, OSError) as error:
            self.odd[one.task.id] = type(error).__name__
        return one.task.id not in self.odd

    @property
    def is_shut(self) -> bool:
        """True when it rests in all processes that serve it."""
        stands = self.now.stands
        return bool(stands) and all(one.resting and one.resting.is_shut for one in stands)

    @property
    def is_eased(self) -> bool:
        """True when it gets no more pushes than it takes, in all processes that serve it."""
        stands = self.now.stands
        return bool(stands) and all(one.resting for one in stands)


def _at(sink: str, task: Task) -> Task:
    """Return the task as it is at one of its sinks: behind the first it has another lane."""
    lane = task.lane_at(sink)
    return task if lane == task.lane else with_fields(task, lane=lane)


def _unspent(load: SinkLoad) -> list[Standing]:
    """Return the tasks that may go now, and whose limits on totals are not used up."""
    if not load.spent:
        return load.going
    return [one for one in load.going if not load.spent_totals(one.task)]


def summarized(found: SurveyInput) -> Summary:
    """Return the figures of all sinks that somebody serves, or that have something left."""
    backlogs = defaultdict(list)
    for one in found.backlogs:
        backlogs[one.sink].append(one)
    served = (name for process in found.processes for name in process.sink_names)
    names = dict.fromkeys((*served, *(name for name, some in backlogs.items() if _left(some))))
    sinks = [_AtSink(found, name, backlogs[name]) for name in sorted(names)]
    drains = {sink.name: _drain(sink) for sink in sinks}
    busy = frozenset(sink.name for sink in sinks if sink.going)
    odd = {task_id: error for sink in sinks for task_id, error in sink.odd.items()}
    drain = _together(found.target_s, found.now_ms, drains)
    return Summary(_figures(found, sinks, drains), drain, busy, odd)


def _together(target_s: float, at_ms: int, drains: dict[str, SinkDrain]) -> DrainFigures:
    return DrainFigures(
        seconds=max((one.seconds for one in drains.values()), default=0.0),
        target_s=target_s,
        backlog=sum(one.backlog for one in drains.values()),
        rate_per_s=round(sum(one.rate_per_s for one in drains.values()), 3),
        by_sink=drains,
        at_ms=at_ms,
    )


def _drain(sink: _AtSink) -> SinkDrain:
    rate_per_s = _rate_per_s(sink) or 0.0
    backlog = _backlog_to_drain(sink, rate_per_s)
    seconds = min(LONGEST_S, backlog / rate_per_s) if rate_per_s > 0 else sink.found.target_s
    return SinkDrain(
        seconds=round(seconds, 3) if backlog else 0.0,
        backlog=round(backlog),
        rate_per_s=round(rate_per_s, 3),
    )


def _rate_per_s(sink: _AtSink) -> float | None:
    """Return how fast pushes end there, None if that is not known.

    A sink that has been busy for less than a minute had not enough to show what it can: then what
    its slots promise counts, if that is more. So it does where nothing has ended for a minute.
    """
    promised = sink.now.capacity_per_s
    ended_per_s = sum(one.ended_per_s for one in sink.now.stands)
    busy_ms = sink.found.now_ms - sink.found.busy_since_ms.get(sink.name, sink.found.now_ms)
    if ended_per_s and busy_ms >= _WINDOW_MS:
        return ended_per_s
    limits = (sink.load.most_per_s("sink", sink.name), _FASTEST_PER_S)
    most = max(ended_per_s, min(promised or 0.0, *limits))
    return most or None


def _backlog_to_drain(sink: _AtSink, rate_per_s: float) -> float:
    target_s, load = sink.found.target_s, sink.load
    by_app: dict[str, float] = defaultdict(float)
    for one in sink.going:
        limited = target_s * load.most_per_s("task", one.task.id)
        by_app[one.task.app] += min(one.backlog, limited)
    within = (min(left, target_s * load.most_per_s("app", app)) for app, left in by_app.items())
    backlog = min(sum(within), target_s * load.most_per_s("sink", sink.name))
    return min(backlog, target_s * rate_per_s) if sink.is_eased else backlog


def _figures(
    found: SurveyInput, sinks: Sequence[_AtSink], drains: Mapping[str, SinkDrain]
) -> LeaderFigures:
    figures = LeaderFigures(target_s=found.target_s)
    for sink in sinks:
        drain = drains[sink.name]
        figures.drain_s[sink.name] = drain.seconds
        figures.drain_backlog[sink.name] = drain.backlog
        figures.drain_per_s[sink.name] = drain.rate_per_s
        _add_levels(figures, sink)
    _add_tasks(figures, sinks)
    _add_apps(figures, sinks)
    return figures


def _add_levels(figures: LeaderFigures, sink: _AtSink) -> None:
    sent_per_s = sum(sink.rates.values())
    may_go = {one.task.id for one in sink.going}
    for level in map(str, Level):
        key = (level, sink.name)
        of_level = [one for one in sink.backlogs if one.task.level == level]
        left, per_s = _left(of_level), sink.rates.get(level, 0.0)
        figures.backlog[key] = left
        figures.rate_per_s[key] = per_s
        figures.observed[key] = per_s / sent_per_s if sent_per_s else 0.0
        figures.entitled[key] = sink.shares.by_level.get(level, 0.0)
        figures.waiting_backlog[key] = sum(min(one.later, one.left) for one in of_level)
        going = [one for one in of_level if one.task.id in may_go]
        figures.oldest_age_s[key] = _oldest_age_s(sink, going, left, per_s)
        unsent = [one for one in of_level if one.left]
        figures.unsent_oldest_age_s[key] = _oldest_age_s(sink, unsent, left, per_s)


def _oldest_age_s(
    sink: _AtSink, backlogs: Sequence[TaskBacklog], of_level: int, per_s: float
) -> float:
    """Return for how long the oldest of these could have gone.

    A lane that is filled while it is emptied may never be seen empty: what waits there is no older
    than what it takes to send all `of_level`.
    """
    now_ms, longest_s = sink.found.now_ms, of_level / per_s if per_s else math.inf
    ages_s = [(one.is_refilled, max(0, now_ms - one.since_ms) / 1000) for one in backlogs]
    return max((min(age, longest_s) if refilled else age for refilled, age in ages_s), default=0.0)


def _add_tasks(figures: LeaderFigures, sinks: Sequence[_AtSink]) -> None:
    left = (
        (one.left, (one.task.id, str(one.task.level), sink.name))
        for sink in sinks
        for one in sink.backlogs
        if one.left
    )
    for count, key in nlargest(MOST_NAMED, left):
        figures.task_backlog[key] = count


def _add_apps(figures: LeaderFigures, sinks: Sequence[_AtSink]) -> None:
    """Name the apps with most left, and where there are fewer those that send most."""
    left: dict[tuple[str, str], float] = defaultdict(float)
    rates: dict[tuple[str, str], float] = defaultdict(float)
    entitled: dict[tuple[str, str], float] = {}
    sent_per_s: dict[str, float] = {}
    for sink in sinks:
        sent_per_s[sink.name] = sum(sink.rates.values())
        for one in sink.backlogs:
            left[one.task.app, sink.name] += one.left
        for stand in sink.now.stands:
            for app, rate in stand.apps_per_s.items():
                rates[app, sink.name] += rate
        for app, share in sink.shares.by_app.items():
            entitled[app, sink.name] = share
    named = nlargest(MOST_NAMED, {*left, *rates}, key=lambda one: (left[one], rates[one], one))
    for key in named:
        if left[key] or rates[key]:
            sent = sent_per_s[key[1]]
            figures.app_backlog[key] = round(left[key])
            figures.app_rate_per_s[key] = rates[key]
            figures.app_entitled[key] = entitled.get(key, 0.0)
            figures.app_observed[key] = min(1.0, rates[key] / sent) if sent else 0.0


class _Shares(NamedTuple):
    by_level: dict[str, float]
    by_app: dict[str, float]


def _shares(load: SinkLoad, going: Sequence[Standing]) -> _Shares:
    """Return what levels and apps are entitled to of all that goes.

    What one may not take by its limits is for the others. A lane that tasks share is shared by
    their apps as they have left.
    """
    shares = _Shares(defaultdict(float), defaultdict(float))
    lanes = shared_by_lane(going)
    rates = entitled_rates(load, [tasks[0] for tasks in lanes.values()], load.per_s() or 1.0)
    total = sum(rates.values())
    for lane, tasks in lanes.items() if total > 0 else ():
        share = rates[lane] / total
        shares.by_level[str(tasks[0].task.level)] += share
        left = sum(one.backlog for one in tasks)
        for one in tasks:
            shares.by_app[one.task.app] += share * one.backlog / left
    return shares


def _rates(now: SinkNow) -> dict[str, float]:
    """Return what is sent to a sink a second, by level."""
    rates: dict[str, float] = defaultdict(float)
    for stand in now.stands:
        for level, rate in stand.sent_per_s.items():
            rates[level] += rate
    return rates


def _left(backlogs: Iterable[TaskBacklog]) -> int:
    return sum(one.left for one in backlogs)


log = logging.getLogger("pushlane.survey")

EVERY_S = 5.0
STALE_S = 30.0
"""Figures that are older are shown to nobody, unless the pause behind a long look is longer."""

_LONGEST_PAUSE_S = 60.0
_LOOK_AGAIN_S = 0.5
_MOST_OF_THE_TIME = 0.05


@dataclass(eq=False, repr=False)
class Survey:
    """Keeps the figures of all processes while `leads` says that this one leads.

    `weights` and `limits` are those in force, `target_s` is the setting drain_target_s.
    """

    backend: Backend
    backlogs: Backlogs
    leads: Callable[[], bool]
    weights: Callable[[], Weights]
    limits: Callable[[], Limits]
    target_s: float
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._busy_since_ms: dict[str, int] = {}
        self._odd: Mapping[str, str] = {}
        self._found: Summary | None = None
        self._found_at_s = 0.0
        self._pause_s = EVERY_S

    def figures(self) -> LeaderFigures | None:
        """Return the figures for Prometheus, None unless this process leads and has looked."""
        found = self._known()
        return found.figures if found else None

    def drain(self) -> DrainFigures | None:
        """Return the figures for autoscalers, None unless this process leads and has looked."""
        found = self._known()
        return found.drain if found else None

    def _known(self) -> Summary | None:
        found, at_s = self._found, self._found_at_s
        is_new = self.clock_s() < at_s + STALE_S + (self._pause_s - EVERY_S)
        return found if found is not None and is_new and self.leads() else None

    async def run(self, synced: asyncio.Event, tell: Callable[[], None]) -> None:
        """Look for ever, once all tasks are known; `tell` is called when there are new figures."""
        backoff = Backoff(log, "what the figures of all processes need")
        await synced.wait()
        while True:
            if not self.leads():
                self._found, self._busy_since_ms = None, {}
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            await backoff.until_done(self.look)
            tell()
            await asyncio.sleep(self._pause_s)

    async def look(self) -> None:
        """Look once, and find out how long to pause after it.

        Raises:
            PushlaneError: the registry or the broker does not answer.
        """
        began_s = self.clock_s()
        backlogs = await self.backlogs.look()
        processes = await self.backend.presence.list()
        limits, now_ms = self.limits(), self.backlogs.clock_ms()
        subjects = await aside(lambda: _subjects(limits, backlogs))
        found = SurveyInput(
            backlogs=backlogs,
            processes=[one for one in processes if one.kind == "dispatcher"],
            weights=self.weights(),
            limits=limits,
            target_s=self.target_s,
            now_ms=now_ms,
            busy_since_ms=self._busy_since_ms,
            spent=await spent_of(self.backend.limiter, subjects, limits, now_ms),
        )
        summary = await aside(lambda: summarized(found))
        since_ms = self._busy_since_ms
        self._busy_since_ms = {one: since_ms.get(one, found.now_ms) for one in summary.busy}
        self._tell_odd(summary.odd)
        self._found, self._found_at_s = summary, self.clock_s()
        pause_s = max(EVERY_S, (self._found_at_s - began_s) / _MOST_OF_THE_TIME)
        self._pause_s = min(_LONGEST_PAUSE_S, pause_s)

    def _tell_odd(self, odd: Mapping[str, str]) -> None:
        """Say of each task that the figures leave out why, once."""
        for task_id in odd.keys() - self._odd.keys():
            log.warning(
                "the drain figures leave out task %s, as its start is not known (%s); see "
                "`pushlane task show %s`",
                task_id,
                odd[task_id],
                task_id,
                extra={"action": "task_left_out"},
            )
        self._odd = odd


def _subjects(limits: Limits, backlogs: Sequence[TaskBacklog]) -> set[Subject]:
    """Return whom limits may concern."""
    apps = {one.task.app for one in backlogs} if limits else ()
    return {*limits, *(Subject("app", app) for app in apps)} - {Subject("app", EVERY_APP)}


_KEPT_S = 2.0


class DrainReader:
    """Reads what the newest leader says; what it has read holds for two seconds."""

    def __init__(self, presence: Presence, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._presence = presence
        self._clock_s = clock_s
        self._found: DrainFigures | None = None
        self._until_s = 0.0

    async def read(self, sinks: Sequence[str] = ()) -> DrainFigures:
        """Return the figures of these sinks, of all unless any is named.

        Raises:
            NoLeader: no live process leads and has looked at the tasks lately.
            BadInput: the leader knows no such sink.
            Unreachable: the registry does not answer.
        """
        if self._clock_s() >= self._until_s:
            said = [one.drain for one in await self._presence.list() if one.drain is not None]
            self._found = max(said, key=lambda drain: drain.at_ms, default=None)
            self._until_s = self._clock_s() + (_KEPT_S if said else 0.0)
        if self._found is None:
            raise NoLeader(
                "no dispatcher leads and has looked at the tasks yet; another takes over within "
                "10 s of the last one's end (`pushlane processes` lists those that dispatch)"
            )
        return _of_sinks(self._found, sinks) if sinks else self._found


def _of_sinks(figures: DrainFigures, sinks: Sequence[str]) -> DrainFigures:
    for name in sinks:
        if name not in figures.by_sink:
            hint = did_you_mean(name, figures.by_sink)
            known = ", ".join(figures.by_sink)
            raise BadInput(f"no dispatcher serves a sink {name[:60]!r}{hint}; there are {known}")
    by_sink = {name: figures.by_sink[name] for name in dict.fromkeys(sinks)}
    return _together(figures.target_s, figures.at_ms, by_sink)
