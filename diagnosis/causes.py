"""What a task waits for, most important first, each with what to do about it.

Pure: each function here looks at one kind of wait in a `Situation`. A cause that is `final` keeps
all of the task, so that what would otherwise slow it down is not worth telling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pushlane.diagnosis.entitlement import entitled_shares
from pushlane.diagnosis.situation import Situation, quiet_until, unserved_sinks
from pushlane.lanes.limits import Subject
from pushlane.lanes.presence import Resting
from pushlane.lanes.task import State, Task

_RESTS = ("open", "probing")


@dataclass(frozen=True)
class Cause:
    """One thing that a task waits for. `name` is for programs, `since_ms` 0 where not known."""

    name: str
    detail: str
    do: str = ""
    since_ms: int = 0
    final: bool = False


def causes(situation: Situation) -> list[Cause]:
    """Return what the task waits for, most important first: at least one cause."""
    found: list[Cause] = []
    for look in _LOOKS:
        found += look(situation)
        if any(cause.name in _ENDS for cause in found):
            return found
    if not any(cause.final for cause in found):
        for look in _SLOWER:
            found += look(situation)
    return found


def _ended(now: Situation) -> Iterator[Cause]:
    task, total = now.task, now.task.total
    if not task.state.is_terminal:
        return
    counts = now.progress
    what = f"{counts.delivered:,} delivered, {counts.dead:,} dead"
    if task.state is State.DONE:
        do = f"pushlane dead list --task {task.id}" if counts.dead else ""
    else:
        what += f" of {'unknown' if total is None else f'{total:,}'}"
        do = f"pushlane clone {task.id}"
    why = f": {task.reason}" if task.reason else ""
    yield Cause(str(task.state), f"it is {task.state}{why}; {what}", do, task.finished_at_ms)


def _scheduled(now: Situation) -> Iterator[Cause]:
    task = now.task
    if task.is_scheduled(now.now_ms):
        detail = f"it starts {clock(task.not_before_ms)}"
        yield Cause("scheduled", detail, "wait, or submit it again without a start", final=True)


def _paused(now: Situation) -> Iterator[Cause]:
    task = now.task
    if task.state is State.PAUSED:
        why = f": {task.reason}" if task.reason else ""
        yield Cause("paused", f"it is paused{why}", f"pushlane resume {task.id}", final=True)


def _half_made(now: Situation) -> Iterator[Cause]:
    task = now.task
    if task.is_half_made and now.is_stalled:
        detail, do = stalled_advice(task)
        yield Cause("stalled", detail, do, task.stalled_at_ms)
    elif task.state is State.SUBMITTED:
        detail = "its submit has only begun: its lane is not open yet"
        yield Cause("submitting", detail, "wait for the submit", task.created_at_ms, final=True)


def stalled_advice(task: Task) -> tuple[str, str]:
    """Return what is wrong with a half-made task that nobody makes any more, and what to do."""
    if task.is_fed:
        detail = "its producer is not running"
        return detail, "start that, `pushlane spool send` its spool, or cancel the task"
    if task.key:
        detail = "its submit stopped half-way"
        return detail, "run it again with the same --key, or cancel the task"
    return "its submit stopped half-way, and cannot go on without a --key", "cancel the task"


def _unserved(now: Situation) -> Iterator[Cause]:
    if not now.processes:
        detail = "no dispatcher runs at all"
        yield Cause("no_dispatcher", detail, "pushlane dispatch", final=True)
        return
    for name in unserved_sinks(now.task, now.processes):
        is_first = name == now.task.chain[0]
        what = "it goes" if is_first else "pushes that went on go"
        detail, do = f"{what} to sink {name}, which nobody serves", f"{serve_command(name)}"
        yield Cause("sink_unserved", detail, do, final=is_first)


def serve_command(sink: str) -> str:
    """Return the command that starts a process for a sink."""
    return f"pushlane dispatch --serve {sink}"


def _resting(now: Situation) -> Iterator[Cause]:
    stands = now.load.sink.stands
    resting = [one.resting for one in stands if one.resting is not None]
    if not resting:
        return
    first = min(resting, key=lambda one: one.since_ms)
    again = [one.again_at_ms for one in resting if one.again_at_ms]
    where = f" in {len(resting)} of {len(stands)} processes" if len(resting) < len(stands) else ""
    next_try = f"; next try {clock(min(again))}" if again else ""
    is_final = len(resting) == len(stands) and all(map(_is_open, resting))
    yield Cause(
        "sink_rests" if any(map(_is_open, resting)) else "sink_recovers",
        f"{first.what}{where}: {first.why}, since {clock(first.since_ms)}{next_try}",
        "mend the sink: it is tried again by itself, and nothing is lost",
        first.since_ms,
        final=is_final,
    )


def _is_open(one: Resting) -> bool:
    return any(f"({state})" in one.what for state in _RESTS)


def _quiet(now: Situation) -> Iterator[Cause]:
    until_ms = quiet_until(now.task, now.now_ms)
    if until_ms:
        zone = now.task.zone or "UTC"
        detail = (
            f"quiet hours {now.task.quiet} in {zone} end {clock(until_ms)}; recipients with a zone "
            "of their own have theirs"
        )
        yield Cause("quiet_hours", detail, "wait, or submit it without --quiet")


def _spent(now: Situation) -> Iterator[Cause]:
    """Tell a total that is reached: nothing more goes."""
    task, most = now.task, now.load.limit("task", now.task.id, "total")
    if most is not None and now.progress.delivered >= most:
        detail = f"its limit of {most:,} pushes in total is reached"
        yield Cause("limit", detail, f"pushlane limit task/{task.id}", final=True)


def _limited(now: Situation) -> Iterator[Cause]:
    """Tell the rates that are below what the task would get without them."""
    task, load = now.task, now.load
    fair = fair_rate(now)
    for subject in (
        Subject("task", task.id),
        Subject("app", task.app),
        Subject("sink", load.sink.name),
    ):
        most_per_s = load.most_per_s(*subject)
        takes = load.sink.capacity_per_s if subject.kind == "sink" else fair
        if most_per_s < math.inf and (takes is None or most_per_s <= takes):
            detail = f"the limit of {subject} is {most_per_s:g} pushes/s"
            yield Cause("limit", detail, f"pushlane limit {subject}")


def fair_rate(now: Situation) -> float | None:
    """Return the pushes a second that its entitled share is worth; None when not known."""
    share, capacity = entitled_share(now), now.load.sink.capacity_per_s
    return None if share is None or capacity is None else share * capacity


def entitled_share(now: Situation) -> float | None:
    """Return the part of its sink that the task, or its lane of the pool, is entitled to now.

    None while it has nothing to send, or may not.
    """
    load = now.load
    going = [one for one in load.standings if one.starts_at_ms(now.now_ms) <= now.now_ms]
    if now.task.id not in {one.task.id for one in going}:
        return None
    return entitled_shares(load, going).get(now.task.lane)


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
    "budget": ("its budget is used up for now", "pushlane limit"),
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
    promote = f"pushlane promote {task.id}"
    do = promote if task.pooled else f"pushlane quota {task.id} {2 * task.quota}, or {promote}"
    yield Cause("sharing", detail, f"{do}, or more slots")


def _has_active(now: Situation, level: str) -> bool:
    return any(one.task.level == level for one in now.load.standings)


def clock(at_ms: int) -> str:
    """Return a time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


_ENDS = ("done", "cancelled", "expired")
_LOOKS: tuple[Callable[[Situation], Iterator[Cause]], ...] = (
    _ended,
    _scheduled,
    _paused,
    _half_made,
    _unserved,
    _resting,
    _quiet,
    _spent,
)
_SLOWER: tuple[Callable[[Situation], Iterator[Cause]], ...] = (
    _limited,
    _lane_waits,
    _slots,
    _pool_lane,
    _later,
    _sharing,
)
