"""What is known of a task and of all that it shares its sink with, at one time. Pure.

Says of what its pushes died, too, and how many wait for their time, which moves its end. `died_of`
are the counts by reason of `model.stop_rule.Deaths`: what an older version has counted has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from pushlane.backends.ports import Delayed
from pushlane.core.endings import WaitReason
from pushlane.core.task import Progress, State, Task, Weights
from pushlane.model.due import PutOff, Waiting, waiting_of
from pushlane.model.limits import Limits, Subject
from pushlane.model.load import (
    SinkLoad,
    Standing,
    entitled_rates,
    entitled_shares,
    quiet_until,
    sink_now,
)
from pushlane.model.presence import Process, Resting, continued
from pushlane.model.reasons import DEAD_ADDRESS, Reasons
from pushlane.model.times import zone_or_utc
from pushlane.settings import Settings
from pushlane.util.texts import clock


@dataclass(frozen=True)
class Cause:
    """One thing that a task waits for. `name` is for programs, `since_ms` 0 where not known.

    One that is `final` holds all of the task. One `at_later` holds pushes that went on to a sink
    behind the first: when those will be through is not known.
    """

    name: str
    detail: str
    do: str = ""
    since_ms: int = 0
    final: bool = False
    at_later: bool = False


def due_text(at_ms: int, now_ms: int, zone: str = "") -> str:
    """Return a time to come, without its date within a day; with a zone by its clock, too.

    One that is an hour away or more is rounded up to a minute.
    """
    is_near = at_ms - now_ms < _HOUR_MS
    seconds = ":%S" if at_ms % _MINUTE_MS and is_near else ""
    at_ms = at_ms if is_near else -(-at_ms // _MINUTE_MS) * _MINUTE_MS
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    date = "%Y-%m-%d " if at_ms - now_ms >= _DAY_MS else ""
    local = f" ({at.astimezone(zone_or_utc(zone)):%H:%M} in {zone})" if zone else ""
    return f"{at.strftime(f'{date}%H:%M{seconds}')} UTC{local if zone != 'UTC' else ''}"


_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000


def resting_since(one: Resting, again_at_ms: int | None = None) -> str:
    """Return why something rests, since when, and when it is tried next if that is known.

    `again_at_ms` goes over the time that it says itself, as the first of several processes tries.
    """
    next_ms = one.again_at_ms if again_at_ms is None else again_at_ms
    next_try = f"; next try {clock(next_ms)}" if next_ms else ""
    return continued(one.why, f"since {clock(one.since_ms)}{next_try}", by=", ")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A task, and all that bears on when it goes.

    `others` are the other tasks that are not finished and go to its first sink. `unread_limits`
    names the limits that cannot be read. `spent` is what
    limits of all of these, of apps and of the sink count of totals, by subject and name.
    `observed_per_s` is how fast it went between two looks. `waiting` counts messages on its lane,
    `later` those on its later lane, where pushes wait for their time, `at_later` those that went on
    to sinks behind the first, by sink: of one that is not named some may have. `put_off` is what
    was noted of pushes that wait, `delayed` what the broker tells of them, if it does. `knows_rows`
    is set where no push can turn out to have a zone or a start that is not noted.
    `settings` are those of who asks, who is told what sinks deliver to with `shows_targets`.
    `reasons` counts its pushes that were not delivered.
    """

    task: Task
    progress: Progress
    others: Sequence[Standing]
    weights: Weights
    processes: Sequence[Process]
    now_ms: int
    limits: Limits = field(default_factory=dict)
    unread_limits: Sequence[str] = ()
    spent: Mapping[Subject, Mapping[str, float]] = field(default_factory=dict)
    observed_per_s: float | None = None
    is_stalled: bool = False
    is_receiving: bool = False
    waiting: int = 0
    later: int = 0
    at_later: Mapping[str, int] = field(default_factory=dict)
    put_off: Sequence[PutOff] = ()
    delayed: Delayed | None = None
    knows_rows: bool = False
    settings: Settings | None = None
    shows_targets: bool = False
    reasons: Reasons = field(default_factory=lambda: Reasons(""))

    @property
    def left(self) -> int | None:
        """Its pushes not finished; None while its total is not known."""
        return None if self.task.total is None else self.task.total - self.progress.finished

    @property
    def waiting_notes(self) -> list[PutOff]:
        """The notes of pushes whose time has not come yet."""
        return [one for one in self.put_off if one.waits(self.now_ms)]

    @property
    def waits(self) -> list[Waiting]:
        """The waiting pushes by reason; capped at how many wait in all, where that is known."""
        found = waiting_of(self.waiting_notes, self.now_ms)
        if len(found) != 1 or self.task.pooled or self.task.reached:
            return found
        pushes = min(found[0].pushes, self.later)
        return [found[0]._replace(pushes=pushes)] if pushes else []

    @property
    def later_unnoted(self) -> int:
        """The number of messages on its later lane whose reason to wait is not known."""
        return max(0, self.later - sum(one.pushes for one in self.waits))

    @property
    def may_go(self) -> int | None:
        """Its pushes that do not wait for their time; None while its total is not known."""
        return None if self.left is None else max(0, self.left - self.later)

    @property
    def all_wait(self) -> bool:
        """True when all that is left of it waits for its time."""
        if not self.later or self.has_moved_on:
            return False
        return self.may_go == 0 or not (self.waiting or self.task.pooled)

    @property
    def has_moved_on(self) -> bool:
        """True when all that is left of it waits at sinks behind its first."""
        is_elsewhere = self.task.total is not None and any(self.at_later.values())
        return is_elsewhere and not (self.task.pooled or self.waiting or self.later)

    @property
    def sinks_here(self) -> list[str]:
        """The sinks at which pushes of it are, or may be, in the order of its chain."""
        first = [] if self.has_moved_on else [self.task.chain[0]]
        reached = [name for name in self.task.reached if self.at_later.get(name, 1)]
        return list(dict.fromkeys((*first, *reached)))

    @property
    def lane_waits(self) -> list[str]:
        """List what processes say that its lanes wait for, each thing once."""
        lanes = {self.task.lane, *self.task.own_lanes()}
        waits = (one for process in self.processes for one in process.waiting)
        return list(dict.fromkeys(one.why for one in waits if one.lane in lanes))

    @property
    def has_uncharged(self) -> bool:
        """True when pushes of it may still have to be charged to totals: those that never went.

        Totals are charged when a push goes for the first time, so it is still on the first lane.
        """
        return self.left != 0 and ("budget" in self.lane_waits or self.waiting > 0)

    def is_later(self, sink: str) -> bool:
        """Return whether its pushes get to a sink only after its first one."""
        return sink != self.task.chain[0]

    @cached_property
    def entitled_share(self) -> float | None:
        """The part of its sink that the task, or its lane of the pool, is entitled to now.

        What others may not take by their limits is shared by those that may. None while it has
        nothing to send, or may not.
        """
        return share_in(self.load, self.task, self.load.per_s())

    @cached_property
    def load(self) -> SinkLoad:
        """The load of its first sink, the task itself included."""
        mine = Standing(self.task, self.left, self.has_moved_on, self.later)
        load = self._load_at(self.task.chain[0], [*self.others, mine])
        if not self.spent:
            return load
        may_go = [one for one in load.standings if not load.spent_totals(one.task)]
        is_mine_charged = mine in load.standings and mine not in may_go and not self.has_uncharged
        return replace(load, standings=[*may_go, mine] if is_mine_charged else may_go)

    def load_at(self, sink: str) -> SinkLoad:
        """Return what a sink of its chain has to do: of one behind the first no tasks are known."""
        return self._load_at(sink, []) if self.is_later(sink) else self.load

    def _load_at(self, sink: str, standings: Sequence[Standing]) -> SinkLoad:
        return SinkLoad(
            sink=sink_now(self.processes, sink),
            standings=[one for one in standings if one.is_active()],
            weights=self.weights,
            limits=self.limits,
            spent=self.spent,
            now_ms=self.now_ms,
        )


def share_in(load: SinkLoad, task: Task, per_s: float | None) -> float | None:
    """Return the part of a load's sink that a task of it is entitled to; None while it has none.

    The sink takes `per_s` in all, None when nobody knows.
    """
    going = load.going
    if task.id not in {one.task.id for one in going}:
        return None
    if not per_s:
        return entitled_shares(load, going).get(task.lane)
    return entitled_rates(load, going, per_s)[task.lane] / per_s


def unserved_sinks(task: Task, processes: Sequence[Process]) -> list[str]:
    """Return the sinks that pushes of the task wait at and that no process serves."""
    served = {name for process in processes for name in process.sink_names}
    here = dict.fromkeys((task.chain[0], *task.reached))
    return [name for name in here if name not in served]


_MOST_NAMED = 5
_MANY = 100
_SHARE = 0.01


def matter(progress: Progress, died_of: Mapping[str, int]) -> bool:
    """Tell whether a hundred pushes died, or one in a hundred: dead addresses are none of them."""
    died = progress.dead - died_of.get(DEAD_ADDRESS, 0)
    return died > 0 and (died >= _MANY or died >= _SHARE * progress.finished)


def reasons_text(pushes: int, reasons: Mapping[str, int]) -> str:
    """Return the reasons as `HTTP 404 (4,990), no answer (8)`, or `HTTP 404` when it is the only.

    Empty when none is known.
    """
    unknown = pushes - sum(reasons.values())
    known = {**reasons, "unknown reason": unknown} if unknown > 0 and reasons else reasons
    if len(known) == 1:
        return next(iter(known))
    named = [f"{reason} ({count:,})" for reason, count in list(known.items())[:_MOST_NAMED]]
    if len(known) > _MOST_NAMED:
        named.append(f"{len(known) - _MOST_NAMED} more reasons")
    return ", ".join(named)


def deaths_text(progress: Progress, died_of: Mapping[str, int]) -> str:
    """Return `4,998 of 5,000 died: HTTP 404 (4,990), no answer (8)`."""
    reasons = reasons_text(progress.dead, died_of)
    return f"{progress.dead:,} of {progress.finished:,} died" + (f": {reasons}" if reasons else "")


def short_deaths_text(
    progress: Progress, died_of: Mapping[str, int], *, has_ended: bool = False
) -> str:
    """Return the same for a column, with the commonest reason; empty when they do not matter.

    That nothing of a task that `has_ended` was delivered always does.
    """
    is_all = has_ended and progress.dead == progress.finished > 0
    if not is_all and not matter(progress, died_of):
        return ""
    commonest = next((one for one in died_of if one != DEAD_ADDRESS), "")
    if is_all and not commonest:
        commonest = next(iter(died_of), "")
    others = ", most often " if len(died_of) > 1 else ": "
    died = f"{'all ' if is_all and progress.dead > 1 else ''}{progress.dead:,} died"
    return died + (f"{others}{commonest}" if commonest else "")


def with_deaths(
    task: Task, progress: Progress, died_of: Mapping[str, int], found: list[Cause]
) -> list[Cause]:
    """Return the causes with what died of a task that goes on: first if it matters, else last.

    It is last, too, of one that was not paused for it.
    """
    if not progress.dead or task.state.is_terminal:
        return found
    do = (
        f"look at them: pushlane dead list --task {task.id}; when the cause is fixed: "
        f"pushlane dead retry --task {task.id}"
    )
    cause = Cause("deaths", deaths_text(progress, died_of), do)
    is_first = matter(progress, died_of) and (task.state is not State.PAUSED or task.stopped)
    return [cause, *found] if is_first else [*found, cause]


_WHAT: dict[str, tuple[str, str]] = {
    WaitReason.QUIET_HOURS: ("quiet hours", "wait: they go by themselves once it is not quiet"),
    WaitReason.START: ("a start of their own", "wait: they go by themselves at that time"),
    WaitReason.RETRY: ("another attempt", "wait: they are tried again by themselves"),
}
_OTHERS = ("their time", "wait: they go by themselves at that time")
_SURE_MS = 23 * 3_600_000
"""Pushes that wait longer come up once a day, so a later time on a lane may not be their last."""

_LOOK_EVERY_MS = 900_000
_MOST_LOOKS = 200


def later_causes(now: Situation) -> Iterator[Cause]:
    """Yield what pushes of the task wait for on its later lane, each reason with its times."""
    for one in now.waits:
        what, do = _WHAT.get(one.reason, _OTHERS)
        yield Cause(
            f"later_{one.reason}", waits_text(one, what, now.now_ms), do, final=now.all_wait
        )
    if others := now.later_unnoted:
        more = " more" if now.waits else ""
        waits = "waits" if others == 1 else "wait"
        until = _unnoted_until(now)
        detail = f"{others:,}{more} {waits} for {_OTHERS[0]}: {until}"
        yield Cause("later", detail, _OTHERS[1], final=now.all_wait)


def waits_text(one: Waiting, what: str, now_ms: int) -> str:
    """Return how many pushes wait for something, and when the first and the last may go."""
    first = due_text(one.first_ms, now_ms, one.zone)
    last = due_text(one.last_ms, now_ms)
    if one.pushes == 1:
        return f"1 waits for {what}: it may go {first}"
    if due_text(one.first_ms, now_ms) == last:
        return f"{one.pushes:,} wait for {what}: they may go {first}"
    return f"{one.pushes:,} wait for {what}: the next may go {first}, the last {last}"


def what_text(reason: str) -> str:
    """Return what pushes wait for in words."""
    return _WHAT.get(reason, _OTHERS)[0]


def _unnoted_until(now: Situation) -> str:
    if now.delayed is None or not now.delayed.last_ms:
        return "when they may go is not known"
    first, last = (due_text(at, now.now_ms) for at in (now.delayed.first_ms, now.delayed.last_ms))
    if now.waits:
        return f"until {last} or earlier"
    return f"the next may go {first}, the last {last}"


def ends_in_s(now: Situation, goes_in_s: float | None, per_s: float | None) -> float | None:
    """Return in how many seconds the task is through, None when that cannot be told.

    What may go now has gone in `goes_in_s`; what waits for its time goes at `per_s` from then on.
    """
    if not now.later:
        return goes_in_s
    if not per_s or (goes_in_s is None and not now.all_wait):
        return None
    end_s = goes_in_s or 0.0
    for one in sorted(now.waiting_notes, key=lambda note: note.first_ms):
        end_s = max(end_s, (one.first_ms - now.now_ms) / 1000) + one.pushes / per_s
        end_s = max(end_s, (one.last_ms - now.now_ms) / 1000)
    if now.later_unnoted:
        if now.delayed is None or now.delayed.last_ms - now.now_ms > _SURE_MS:
            return None
        last_s = (now.delayed.last_ms - now.now_ms) / 1000
        end_s = max(end_s, last_s) + now.later_unnoted / per_s
    return end_s


def not_before(now: Situation) -> int:
    """Return before which time (Unix ms) the task cannot be through, 0 when none is known."""
    known = [one.last_ms for one in now.waits]
    if now.later_unnoted and now.delayed is not None:
        known.append(now.delayed.last_ms)
    return max(known, default=0)


def unforeseen(now: Situation, end_s: float) -> str:
    """Return why pushes that may go now may still have to wait for their time; empty if they won't.

    Whose clock a push goes by shows only when it comes up.
    """
    task = now.task
    if not now.knows_rows and now.may_go and (why := waits_by_push(task)):
        return why
    if begins_ms := quiet_from(task, now.now_ms, end_s):
        return f"its quiet hours begin before it is through, {due_text(begins_ms, now.now_ms)}"
    return ""


def waits_by_push(task: Task) -> str:
    """Return why each push of a task may have a time of its own; empty when none has."""
    if task.start_column or task.is_fed:
        return "pushes may have starts of their own"
    if task.quiet and task.zone_column:
        return "recipients in their quiet hours wait until those end"
    return ""


def quiet_from(task: Task, now_ms: int, end_s: float) -> int:
    """Return about when it is quiet, by the task's zone, before it ends; 0 for never (Unix ms)."""
    if not task.quiet:
        return 0
    start_ms = max(now_ms, task.not_before_ms)
    start_ms = max(start_ms, quiet_until(task, start_ms))
    end_ms = now_ms + round(end_s * 1000)
    for number in range(_MOST_LOOKS):
        at_ms = start_ms + number * _LOOK_EVERY_MS
        if at_ms > end_ms:
            return 0
        if quiet_until(task, at_ms):
            return at_ms // _LOOK_EVERY_MS * _LOOK_EVERY_MS
    return 0
