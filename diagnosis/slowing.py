"""What lets a task go more slowly than its sink could: limits, full slots, others ahead or beside.

Pure: each function here looks at one such cause in a `Situation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from pushlane.diagnosis.cause import Cause
from pushlane.diagnosis.entitlement import entitled_share
from pushlane.diagnosis.situation import Situation, subjects_of
from pushlane.lanes.task import Level


def _limited(now: Situation) -> Iterator[Cause]:
    """Tell the limits that let less go than the task would get without them."""
    load, fair = now.load, _fair_rate(now)
    for subject in subjects_of(now.task):
        most_per_s = load.most_per_s(*subject)
        takes = load.sink.capacity_per_s if subject.kind == "sink" else fair
        if most_per_s < math.inf and (takes is None or most_per_s <= takes):
            rate, places = load.rate_limits(*subject)
            by_rate = rate is not None and rate / load.sink.cost == most_per_s
            what = "" if by_rate else f"{places:,} in flight, so about "
            detail = f"the limit of {subject} is {what}{most_per_s:.4g} pushes/s"
            yield Cause("limit", detail, f"pushlane limit {subject} {_CHANGED[by_rate]}")


_CHANGED = {True: "--rate N/s, or none", False: "--in-flight N, or none"}


def _fair_rate(now: Situation) -> float | None:
    """Return the pushes a second that its entitled share is worth; None when not known."""
    share, capacity = entitled_share(now), now.load.sink.capacity_per_s
    return None if share is None or capacity is None else share * capacity


_LANE_WAITS = {
    "format": (
        "a message on its lane can be read by a newer version only",
        "upgrade the dispatchers",
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
    "budget": (
        "a limit of it, its app or its sink has no room now",
        "pushlane limits: what is set and used; pushlane limit changes it",
    ),
    "breaker": ("where its pushes go is resting", "wait: it is tried again by itself"),
}


def _lane_waits(now: Situation) -> Iterator[Cause]:
    """Tell what processes say that the task's lane waits for, each thing once."""
    waits = dict.fromkeys(
        one.why
        for process in now.processes
        for one in process.waiting
        if one.lane == now.task.lane or one.lane in now.task.own_lanes()
    )
    for why in waits:
        detail, do = _LANE_WAITS.get(why, (f"its lane waits: {why}", ""))
        yield Cause(f"lane_{why.replace('-', '_')}", detail, do)


def _slots(now: Situation) -> Iterator[Cause]:
    sink = now.load.sink
    if not sink.is_full or not sink.capacity_per_s:
        return
    detail = (
        f"{sink.in_flight:,} of {sink.slots:,} slots of sink {sink.name} are busy: {sink.slots:,} "
        f"slots x 1/{sink.delivery_s:.3g} s a delivery = {sink.capacity_per_s:,.0f} pushes/s"
    )
    more = _more_processes(now)
    do = f"{more} more processes reach its expiry" if more else "more --slots, or more processes"
    yield Cause("slots_full", detail, do)


def _more_processes(now: Situation) -> int:
    """Return how many processes are lacking for the task to be through before it expires."""
    sink, share, expires_ms = now.load.sink, entitled_share(now), now.task.expires_at_ms
    if not (expires_ms > now.now_ms and share and now.left and sink.capacity_per_s):
        return 0
    needed_per_s = now.left / ((expires_ms - now.now_ms) / 1000) / share
    each = sink.capacity_per_s / len(sink.stands)
    return max(0, math.ceil(needed_per_s / each) - len(sink.stands))


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


def _later(now: Situation) -> Iterator[Cause]:
    if now.later and not now.waiting:
        detail = f"what is left of it waits for its time: {now.later:,} messages on its later lane"
        yield Cause("later", detail, "wait: retries and starts of their own come due by themselves")


def _sharing(now: Situation) -> Iterator[Cause]:
    share, sink = entitled_share(now), now.load.sink.name
    if share is None:
        return
    task, others = now.task, len({one.task.id for one in now.load.standings} - {now.task.id})
    if not others:
        do = "more --slots, or more processes" if now.left else ""
        yield Cause("going", f"it has sink {sink} to itself", do)
        return
    tasks = "1 other task" if others == 1 else f"{others:,} other tasks"
    active = [level for level in now.weights.by_level() if _has_active(now, level)]
    weights = now.weights.by_level()
    detail = (
        f"it shares sink {sink} with {tasks}: {' to '.join(str(weights[one]) for one in active)} "
        f"for {', '.join(active)}, and {100 * share:.3g} % of the sink for "
        f"{'its lane of the pool' if task.pooled else f'its quota of {task.quota}'}"
    )
    yield Cause("sharing", detail, _more_share(now))


def _more_share(now: Situation) -> str:
    """Return what would give the task a larger share, as far as it would."""
    task = now.task
    beside = [one.task for one in now.load.standings if one.task.id != task.id]
    level = [other for other in beside if other.level is task.level]
    ways = ["more slots"]
    if task.level is not Level.HIGH:
        ways.insert(0, f"pushlane promote {task.id}")
    if not task.pooled and any(other.app != task.app or other.pooled for other in level):
        quota = (now.load.limit("app", task.app, "quota") or 1) * 2
        ways.insert(0, f"pushlane quota --app {task.app} {quota}")
    if not task.pooled and any(other.app == task.app and not other.pooled for other in level):
        ways.insert(0, f"pushlane quota {task.id} {2 * task.quota}")
    return ", or ".join(ways)


def _has_active(now: Situation, level: str) -> bool:
    return any(one.task.level == level for one in now.load.standings)


SLOWER: tuple[Callable[[Situation], Iterator[Cause]], ...] = (
    _limited,
    _lane_waits,
    _slots,
    _pool_lane,
    _later,
    _sharing,
)
"""These functions, the most important first."""
