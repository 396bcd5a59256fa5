"""Finds why a task goes more slowly than its sink could. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from pushlane.core.task import Level
from pushlane.diagnosis.expiring import expiring_text
from pushlane.diagnosis.fluid import forecast
from pushlane.diagnosis.situation import Cause, Situation, share_in
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import (
    subjects_of,
)

_ENDLESS = 10**9


def share_without_own_limits(now: Situation) -> float | None:
    """Return what its entitled share would be if the task and its app had no rate or places set."""
    load, unlimited = now.load, {"rate_per_s": math.inf, "in_flight": _ENDLESS}
    capacity = load.sink.capacity_per_s
    own = (Subject("task", now.task.id), Subject("app", now.task.app))
    freed = {one: with_fields(load.limits.get(one, Limit()), **unlimited) for one in own}
    return share_in(replace(load, limits={**load.limits, **freed}), now.task, capacity)


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
    if most_per_s == math.inf:
        return
    is_alone = is_later or subject.kind == "sink"
    takes = load.sink.capacity_per_s
    if not is_alone:  # what it would get without limits of its own
        share, capacity = share_without_own_limits(now), now.load.sink.capacity_per_s
        takes = None if share is None or capacity is None else share * capacity
    if takes is None or most_per_s <= takes:
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
    more = f"{_more_processes(lacking)}, to be through before it expires"
    do = more if lacking else _MORE_SLOTS
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


def expiring(now: Situation, found: Sequence[Cause], ends_in_s: float | None) -> Cause | None:
    """Return that the task expires before it is through, with what would let more of it go.

    `found` are the causes without it; None where it is through in time, or nobody can tell.
    """
    task = now.task
    ends_ms = None if ends_in_s is None else now.now_ms + 1000 * ends_in_s
    detail = expiring_text(task, now.left, ends_ms, now.now_ms)
    if detail is None:
        return None
    ways = [cause.do for cause in found if cause.name == "limit"]
    if not ways:
        lacking = _processes_lacking(now)
        more = f"{_more_processes(lacking)}, or " if lacking else ""
        ways = [more + _more_share(now)]
    do = f"{ways[0]}; or a later expiry: pushlane reschedule {task.id} --expires TIME"
    return Cause("expiry", detail, do)


def _more_processes(count: int) -> str:
    return "1 more process" if count == 1 else f"{count} more processes"


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
    share, sink = now.entitled_share, now.load.sink.name
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
