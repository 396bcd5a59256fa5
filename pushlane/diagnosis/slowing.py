"""What lets a task go more slowly than its sink could, and when it will be through. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from pushlane.core.task import Level, Task
from pushlane.diagnosis.situation import Cause, Situation
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import (
    SinkLoad,
    Standing,
    entitled_rates,
    entitled_shares,
    shared_by_lane,
    subjects_of,
)

_ENDLESS = 10**9


def entitled_share(now: Situation) -> float | None:
    """Return the part of its sink that the task, or its lane of the pool, is entitled to now.

    What others may not take by their limits is shared by those that may. None while it has nothing
    to send, or may not.
    """
    return _share_in(now.load, now.task)


def share_without_own_limits(now: Situation) -> float | None:
    """Return what `entitled_share` would be if the task and its app had no rate or places set."""
    load, unlimited = now.load, {"rate_per_s": math.inf, "in_flight": _ENDLESS}
    own = (Subject("task", now.task.id), Subject("app", now.task.app))
    freed = {one: with_fields(load.limits.get(one, Limit()), **unlimited) for one in own}
    return _share_in(replace(load, limits={**load.limits, **freed}), now.task)


def _share_in(load: SinkLoad, task: Task) -> float | None:
    going = load.going
    if task.id not in {one.task.id for one in going}:
        return None
    per_s = load.sink.capacity_per_s
    if not per_s:
        return entitled_shares(load, going).get(task.lane)
    return entitled_rates(load, going, per_s)[task.lane] / per_s


_MOST_EVENTS = 500
_MOST_EXACT = 100
_PARTS = 40
_PARTS_FOR_ALL = 12
_NOTHING = 1e-9


class Expected(NamedTuple):
    """Seconds from now until a task's first push goes, and until its last has."""

    starts_in_s: float
    ends_in_s: float


def forecast(load: SinkLoad, task_id: str, per_s: float | None) -> Expected | None:
    """Return when a task of the load will be through, if the sink takes so many pushes a second.

    None when it cannot be told: nothing is known of the sink, or nothing of the task ever goes.
    """
    return forecasts(load, {task_id}, per_s).get(task_id)


def forecasts(
    load: SinkLoad, task_ids: Collection[str], per_s: float | None
) -> dict[str, Expected]:
    """Return the same by id of those of which it can be told.

    In a load of very many tasks their ends are a few percent off.
    """
    asked = {one.task.id for one in load.standings if one.backlog < math.inf}.intersection(task_ids)
    return {} if per_s is None or not asked else _Flow(load, per_s, asked).run()


class _Flow:
    """A fluid simulation of all tasks of a sink: how much is left of each, after `time_s`.

    Between two events (a task is through, or one starts) each lane flows at its rate of
    `entitled_rates`; so the shares of those that are left grow while others drain. Tasks of a lane
    of the pool go one after the other. With very many tasks a step lasts until a part of the lanes
    is empty; it is shortened by what these leave to others.
    """

    def __init__(self, load: SinkLoad, per_s: float, asked: AbstractSet[str]) -> None:
        self._load = load
        self._per_s = per_s
        self._asked = asked
        self._is_rough = len(load.standings) > _MOST_EXACT
        self._parts = _PARTS if len(asked) == 1 else _PARTS_FOR_ALL
        self._left = {one.task.id: one.backlog for one in load.standings}
        self._starts_s = {
            one.task.id: (one.starts_at_ms(load.now_ms) - load.now_ms) / 1000
            for one in load.standings
        }
        self._time_s = 0.0
        self._began_s: dict[str, float] = {}
        self._found: dict[str, Expected] = {}

    def run(self) -> dict[str, Expected]:
        for _ in range(_MOST_EVENTS):
            lanes = self._flowing()
            rates = self._rates(lanes)
            step_s = self._next_event_s(lanes, rates)
            if step_s is None:
                return self._found
            takes = self._takes(step_s, lanes, rates) if self._is_rough else 1.0
            for name, tasks in lanes.items():
                self._pass(step_s, takes, tasks, rates[name])
            self._time_s += takes * step_s
            if len(self._found) == len(self._asked):
                return self._found
        return self._extrapolated()

    def _flowing(self) -> Mapping[str, list[Standing]]:
        """The tasks by lane that are left and have started: of each lane the oldest flows."""
        return shared_by_lane(
            [
                one
                for one in self._load.standings
                if self._left[one.task.id] > _NOTHING
                and self._starts_s[one.task.id] <= self._time_s + _NOTHING
            ]
        )

    def _rates(self, lanes: Mapping[str, list[Standing]]) -> Mapping[str, float]:
        heads = [tasks[0] for tasks in lanes.values()]
        return entitled_rates(self._load, heads, self._per_s)

    def _next_event_s(
        self, lanes: Mapping[str, list[Standing]], rates: Mapping[str, float]
    ) -> float | None:
        """Return after how long a task is through or starts; None when nothing will happen."""
        starts_s = [
            start_s - self._time_s
            for start_s in self._starts_s.values()
            if start_s > self._time_s + _NOTHING
        ]
        ends_s = [
            sum(self._left[one.task.id] for one in (tasks if self._is_rough else tasks[:1])) / per_s
            for name, tasks in lanes.items()
            if (per_s := rates[name]) > _NOTHING
        ]
        known_s = sorted(end_s for end_s in ends_s if end_s < math.inf)
        next_s = known_s[len(known_s) // self._parts if self._is_rough else 0 :][:1]
        return min((*next_s, *starts_s), default=None)

    def _takes(
        self, step_s: float, lanes: Mapping[str, list[Standing]], rates: Mapping[str, float]
    ) -> float:
        """Return the part of a step that it takes: others get what lanes leave that are empty."""
        most = sum(rates.values()) * step_s
        left = {name: sum(self._left[one.task.id] for one in of) for name, of in lanes.items()}
        return sum(min(left[name], per_s * step_s) for name, per_s in rates.items()) / (most or 1.0)

    def _pass(self, step_s: float, takes: float, tasks: Sequence[Standing], per_s: float) -> None:
        """Let a lane flow for a step, which `takes` a part of it, and note what is through."""
        gone = 0.0
        for one in tasks:
            if per_s <= _NOTHING or gone >= per_s * step_s:
                return
            task_id, left = one.task.id, self._left[one.task.id]
            began_s = self._began_s.setdefault(task_id, self._time_s + takes * gone / per_s)
            gone += left
            over = gone - per_s * step_s
            self._left[task_id] = 0.0 if over <= _NOTHING * max(1.0, gone) else over
            if not self._left[task_id] and task_id in self._asked:
                end_s = self._time_s + takes * min(step_s, gone / per_s)
                self._found[task_id] = Expected(began_s, end_s)

    def _extrapolated(self) -> dict[str, Expected]:
        """Return the ends, those to come as if from now on nothing changed any more."""
        lanes = self._flowing()
        for name, per_s in self._rates(lanes).items():
            left = 0.0
            for one in lanes[name] if per_s > 0 else ():
                task_id = one.task.id
                left += self._left[task_id]
                if task_id in self._asked:
                    began_s = self._began_s.get(task_id, self._time_s)
                    self._found[task_id] = Expected(began_s, self._time_s + left / per_s)
        return self._found


_MOST_MORE = 64
_MORE_SLOTS = "more --slots, or more processes"


def _limited(now: Situation) -> Iterator[Cause]:
    """Tell the limits that let less go than the task would get without them, at each sink."""
    for sink in now.sinks_here:
        is_later = now.is_later(sink)
        for subject in subjects_of(now.task, sink):
            if not is_later or subject.kind == "sink" or now.has_moved_on:
                yield from _limited_at(now, sink, subject)


def _limited_at(now: Situation, sink: str, subject: Subject) -> Iterator[Cause]:
    load, is_later = now.load_at(sink), now.is_later(sink)
    most_per_s = load.most_per_s(*subject)
    is_alone = is_later or subject.kind == "sink"
    takes = load.sink.capacity_per_s
    if not is_alone:  # what it would get without limits of its own
        share, capacity = share_without_own_limits(now), now.load.sink.capacity_per_s
        takes = None if share is None or capacity is None else share * capacity
    if most_per_s < math.inf and (takes is None or most_per_s <= takes):
        rate, places = load.rate_limits(*subject)
        by_rate = rate is not None and rate / load.sink.cost == most_per_s
        what = "" if by_rate else f"{places:,} in flight, so about "
        detail = f"the limit of {subject} is {what}{most_per_s:.4g} pushes/s"
        do = f"pushlane limit {subject} {'--rate N/s' if by_rate else '--in-flight N'}, or none"
        yield Cause("limit", detail, do, at_later=is_later)


_LANE_WAITS = {
    "format": (
        "a message on its lane can be read by a newer version only",
        "upgrade the dispatchers",
    ),
    "doubt": (
        "the registry does not have a task now that a push on its lane names",
        "wait: it is asked again; if it lasts, look at the dispatchers' log and at Redis",
    ),
    "crowded": (
        "many of its outcomes are not durable yet, so it waits for them",
        "look at the registry and the receipts log: one of them is slow",
    ),
    "delay-full": (
        "as many of its pushes wait for their time as may (later_max); only those come due go",
        "wait, or raise later_max",
    ),
    "keys": ("its pushes wait for earlier ones of their key", "wait: each key goes in order"),
    "look-up": (
        "the registry is asked for tasks that so many pushes on its lane name",
        "wait: if it lasts, the registry is slow",
    ),
    "refused": (
        "the sink has refused so many of its pushes that no more of them are taken",
        "wait: they are tried again; pushlane sinks says how the sink stands",
    ),
    "budget": (
        "a limit of it, its app or its sink has no room now",
        "pushlane limits: what is set and used; pushlane limit changes it",
    ),
    "breaker": ("where its pushes go is resting", "wait: it is tried again by itself"),
}


def _lane_waits(now: Situation) -> Iterator[Cause]:
    """Tell what processes say that the task's lane waits for, each thing once."""
    for why in now.lane_waits:
        detail, do = _LANE_WAITS.get(why, (f"its lane waits: {why}", ""))
        yield Cause(f"lane_{why.replace('-', '_')}", detail, do)


def _slots(now: Situation) -> Iterator[Cause]:
    sink = now.load.sink
    if now.has_moved_on or not sink.is_full or not sink.capacity_per_s:
        return
    lacking = _processes_lacking(now)
    more = "1 more process" if lacking == 1 else f"{lacking} more processes"
    do = f"{more}, to be through before it expires" if lacking else _MORE_SLOTS
    detail = (
        f"{sink.in_flight:,} of {sink.slots:,} slots of sink {sink.name} are busy: {sink.slots:,} "
        f"slots x 1/{sink.delivery_s:.3g} s a delivery = {sink.capacity_per_s:,.0f} pushes/s"
    )
    yield Cause("slots_full", detail, do)


def _processes_lacking(now: Situation) -> int:
    """Return how many more processes let the task be through before it expires.

    0 when it will be, when it does not expire, and when very many would not do.
    """
    load, task = now.load, now.task
    here, per_s = len(load.sink.stands), load.per_s()
    if task.expires_at_ms <= now.now_ms or per_s is None:
        return 0
    in_s = (task.expires_at_ms - now.now_ms) / 1000

    def is_enough(more: int) -> bool:
        expected = forecast(load, task.id, per_s * (here + more) / here)
        return expected is not None and expected.ends_in_s <= in_s

    lacking = bisect_left(range(_MOST_MORE), True, key=is_enough)
    return lacking if lacking < _MOST_MORE else 0


def _pool_lane(now: Situation) -> Iterator[Cause]:
    task = now.task
    older = [
        one
        for one in now.load.standings
        if one.task.lane == task.lane
        and (one.task.created_at_ms, one.task.id) < (task.created_at_ms, task.id)
    ]
    if task.pooled and older:
        ahead = sum(one.left or 0 for one in older)
        tasks = "1 older task" if len(older) == 1 else f"{len(older)} older tasks"
        detail = f"{tasks} with {ahead:,} pushes are ahead on its lane {task.lane}"
        do = f"pushlane promote {task.id}: it gets a lane of its own"
        yield Cause("pool_lane", detail, do)


def _moved_on(now: Situation) -> Iterator[Cause]:
    if now.has_moved_on:
        sinks = ", ".join(now.sinks_here)
        detail = f"all that is left of it has gone on: {sum(now.at_later.values()):,} messages at "
        yield Cause("moved_on", f"{detail}{sinks}", "pushlane sinks list: how that sink stands")


def _sharing(now: Situation) -> Iterator[Cause]:
    share, sink = entitled_share(now), now.load.sink.name
    if share is None:
        return
    task = now.task
    going = [one.task for one in now.load.going]
    others = len(going) - 1
    if not others:
        yield Cause("going", f"it has sink {sink} to itself", _MORE_SLOTS if now.left else "")
        return
    tasks = "1 other task" if others == 1 else f"{others:,} other tasks"
    by_level = now.weights.by_level()
    levels = [level for level in by_level if any(other.level is level for other in going)]
    weights = " to ".join(str(by_level[level]) for level in levels)
    between = f", {weights} for {', '.join(levels)}" if len(levels) > 1 else ""
    whose = "its lane of the pool" if task.pooled else f"its quota of {task.quota}"
    detail = f"it shares sink {sink} with {tasks}{between}: {100 * share:.3g} % of it for {whose}"
    yield Cause("sharing", detail, _more_share(now))


def _more_share(now: Situation) -> str:
    """Return what would give the task a larger share, as far as it would.

    A quota takes from others only what they get, not what limits of theirs leave anyway.
    """
    task, load = now.task, now.load
    others = (one.task for one in load.going if one.task.id != task.id)
    beside = [other for other in others if not load.is_limited(other)]
    level = [other for other in beside if other.level is task.level]
    ways = ["more slots"]
    if task.level is not Level.HIGH:
        ways.insert(0, f"pushlane promote {task.id}")
    if not task.pooled and any(other.app != task.app or other.pooled for other in level):
        quota = (load.limit("app", task.app, "quota") or 1) * 2
        ways.insert(0, f"pushlane quota --app {task.app} {quota}")
    if not task.pooled and any(other.app == task.app and not other.pooled for other in level):
        ways.insert(0, f"pushlane quota {task.id} {2 * task.quota}")
    return ", or ".join(ways)


SLOWER: tuple[Callable[[Situation], Iterator[Cause]], ...] = (
    _limited,
    _lane_waits,
    _slots,
    _pool_lane,
    _moved_on,
    _sharing,
)
"""These functions, the most important first."""
