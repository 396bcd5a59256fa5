"""What a sink has to do at one time, and what each of its lanes is entitled to of it.

As the scheduler shares when all have something to send: levels by their weights, apps of a level by
their quotas, an app's tasks by theirs. A lane of the pool, which mixes apps, counts as an app with
one task of quota 1. What one may not take by its limit goes to the others in the same way (weighted
max-min fairness).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from pushlane.backends.guard_ports import Limiter
from pushlane.core.task import Level, State, Task, Weights
from pushlane.core.turns import EVERY_APP
from pushlane.model.limits import Limit, Limits, Subject
from pushlane.model.presence import Process, ServedSink
from pushlane.model.times import parse_quiet, quiet_until_ms, zone_or_utc

TOTALS = ("total", "total_cost", "a_day", "cost_a_day")
_FULL = 0.9
_ROUNDING = 1e-6
_MEASURED_MS = 15_000  # rates are of 10 s, and said every 5 s


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A task, and how many of its pushes are not finished; None while its total is not known.

    `has_moved_on` tells that all of these have gone on to sinks behind its first; `later` of them
    wait for their time.
    """

    task: Task
    left: int | None
    has_moved_on: bool = False
    later: int = 0

    @property
    def backlog(self) -> float:
        """The pushes that may go: without end while a submit goes on, none of a stream's."""
        if self.left is not None:
            return max(0, self.left - self.later)
        return 0 if self.task.is_fed else math.inf

    def starts_at_ms(self, now_ms: int) -> int:
        """Return from when on its pushes may go: after its start, and its quiet hours."""
        start_ms = max(now_ms, self.task.not_before_ms)
        return max(start_ms, quiet_until(self.task, start_ms)) if self.task.quiet else start_ms

    def is_active(self) -> bool:
        """Return whether it has something to send, now or once it starts."""
        is_here = self.task.state is State.RUNNING and not self.has_moved_on
        return is_here and self.backlog > 0


def quiet_until(task: Task, at_ms: int) -> int:
    """Return when the quiet hours of this time end, by the task's own zone; 0 when there are none.

    0, too, where a column told the zone of each push: those that it concerns wait for themselves.
    """
    if not task.quiet or task.zone_column:
        return 0
    until_ms = quiet_until_ms(parse_quiet(task.quiet), zone_or_utc(task.zone), at_ms)
    return until_ms if until_ms > at_ms else 0


@dataclass(frozen=True)
class SinkNow:
    """A sink over all processes that serve it. `per_s` and `delivery_s` are of the last seconds."""

    name: str
    stands: Sequence[ServedSink]

    @property
    def slots(self) -> int:
        return sum(one.slots for one in self.stands)

    @property
    def in_flight(self) -> int:
        return sum(one.in_flight for one in self.stands)

    @property
    def is_full(self) -> bool:
        """True when hardly a slot is free."""
        return self.slots > 0 and self.in_flight >= _FULL * self.slots

    @property
    def per_s(self) -> float:
        """How many pushes a second it delivers."""
        return sum(sum(one.delivered_per_s.values()) for one in self.stands)

    @cached_property
    def delivery_s(self) -> float:
        """The mean time of a delivery, 0 when nothing is known of it."""
        known = [one for one in self.stands if one.delivery_s]
        slots = sum(one.slots for one in known)
        return sum(one.slots * one.delivery_s for one in known) / slots if slots else 0.0

    @property
    def capacity_per_s(self) -> float | None:
        """How many pushes a second its slots can take: slots x 1 / mean delivery time."""
        rates = [one.slots / one.delivery_s for one in self.stands if one.delivery_s]
        return sum(rates) * len(self.stands) / len(rates) if rates else None

    @property
    def rests(self) -> bool:
        """True when it gets nothing in any process that serves it."""
        shut = [one.resting is not None and one.resting.is_shut for one in self.stands]
        return bool(shut) and all(shut)

    @property
    def cost(self) -> float:
        """What one push costs, by which a rate in cost is one in pushes."""
        return max((one.cost for one in self.stands), default=1.0)


class SpentTotal(NamedTuple):
    """A limit on a total, of which less is `left` than one push takes."""

    subject: Subject
    name: str
    most: float
    left: float
    of_one: float


@dataclass(frozen=True, kw_only=True)
class SinkLoad:
    """What a sink has to do: its active tasks, and what they share it by."""

    sink: SinkNow
    standings: Sequence[Standing]
    weights: Weights
    limits: Limits = field(default_factory=dict)
    spent: Mapping[Subject, Mapping[str, float]] = field(default_factory=dict)
    now_ms: int = 0

    def spent_totals(self, task: Task) -> list[SpentTotal]:
        """Return the totals that leave no room for a push of the task.

        A total of its own that is as large as all of its pushes is none of them.
        """
        found = []
        for subject in subjects_of(task):
            for name in TOTALS:
                most, spent = self.limit(*subject, name), self.spent.get(subject, {}).get(name, 0)
                of_one = self.sink.cost if "cost" in name else 1.0
                if most is not None and spent + of_one > most + _ROUNDING:
                    pushes = task.total if subject.kind == "task" else None
                    if pushes is None or most + _ROUNDING < pushes * of_one:
                        found.append(SpentTotal(subject, name, most, most - spent, of_one))
        return found

    @property
    def going(self) -> list[Standing]:
        """The tasks that may go now: scheduled ones and those in quiet hours do not share yet."""
        return [one for one in self.standings if one.starts_at_ms(self.now_ms) <= self.now_ms]

    def limit(self, kind: str, name: str, field_name: str) -> Any:
        """Return one value of a subject's limit, None when there is none.

        What an app has not of its own it has of that of every app.
        """
        if not self.limits:
            return None
        found = self.limits.get(Subject(kind, name))
        value = None if found is None else getattr(found, field_name)
        if value is None and kind == "app" and name != EVERY_APP:
            return self.limit(kind, EVERY_APP, field_name)
        return value

    def most_per_s(self, kind: str, name: str) -> float:
        """Return how many pushes a second a subject may send, without end when it has no limit.

        That of deliveries in flight counts as so many slots.
        """
        if kind != "sink" and not self.limits:
            return math.inf
        rate, places = self.rate_limits(kind, name)
        by_rate = math.inf if rate is None else rate / self.sink.cost
        delivery_s = self.sink.delivery_s
        by_places = places / delivery_s if places is not None and delivery_s else math.inf
        return min(by_rate, by_places)

    def rate_limits(self, kind: str, name: str) -> tuple[float | None, int | None]:
        """Return a subject's rate, in cost, and its deliveries in flight; None for no limit."""
        rate = self.limit(kind, name, "rate_per_s")
        places = self.limit(kind, name, "in_flight")
        if kind == "sink":
            stands = self.sink.stands
            rates = [one.rate_per_s for one in stands if one.rate_per_s is not None]
            most = [one.most_in_flight for one in stands if one.most_in_flight is not None]
            rate = min(rates, default=None) if rate is None else rate
            places = min(most, default=None) if places is None else places
        return rate, places

    def is_limited(self, task: Task) -> bool:
        """Return whether the task or its app has a rate of its own."""
        own = (self.most_per_s("task", task.id), self.most_per_s("app", task.app))
        return min(own) < math.inf

    def per_s(self, but: str = "", *, settled: bool = False) -> float | None:
        """Return how many pushes a second the sink takes while there is enough to send.

        None when nothing is known. See `pace_per_s` for `but` and `settled`.
        """
        return self.limited_per_s(self.pace_per_s(but, settled=settled))

    def limited_per_s(self, pace_per_s: float | None) -> float | None:
        """Return how many pushes a second a sink of this pace takes, with a limit of its own."""
        if pace_per_s is None:
            return None
        return min(pace_per_s, self.most_per_s("sink", self.sink.name))

    def pace_per_s(self, but: str = "", *, settled: bool = False) -> float | None:
        """Return the same as if the sink had no limit of its own.

        That is what its slots can take; but what it delivers, if a task (`but` not the one of this
        id) has more to send and slots are free all the same: as where the dispatcher is the slower
        one. With `settled` it must have had that for as long as the rate was measured.

        Only a load as it is tells it: what is delivered says nothing of a load that a change makes.
        """
        if self.sink.per_s and not self.sink.is_full and not self._is_held_by_own_limit():
            by_ms = self.now_ms - _MEASURED_MS if settled else self.now_ms
            if any(one.task.id != but and self._has_had_more(one, by_ms) for one in self.standings):
                return self.sink.per_s
        return self.sink.capacity_per_s

    def _has_had_more(self, one: Standing, by_ms: int) -> bool:
        """Return whether a task could send more than it does, since then (Unix ms) at the latest.

        One that a limit may hold back could not.
        """
        is_there = by_ms >= self.now_ms or one.task.created_at_ms <= by_ms
        may_go = all(one.starts_at_ms(at_ms) <= at_ms for at_ms in (by_ms, self.now_ms))
        return is_there and may_go and not self.is_limited(one.task)

    def _is_held_by_own_limit(self) -> bool:
        """Return whether the sink delivers about as much as its own limit lets go."""
        return self.sink.per_s >= _FULL * self.most_per_s("sink", self.sink.name)


def subjects_of(task: Task, sink: str = "") -> list[Subject]:
    """Return the subjects whose limits concern the pushes of a task at a sink, else its first."""
    at = Subject("sink", sink or task.chain[0])
    return [Subject("task", task.id), Subject("app", task.app), at]


def sink_now(processes: Sequence[Process], name: str) -> SinkNow:
    """Return how a sink stands over all processes that serve it; one that starts does not yet."""
    serving = (one for one in processes if name in one.sink_names and not one.is_starting)
    return SinkNow(name, [process.at(name) for process in serving])


def shared_by_lane(standings: Sequence[Standing]) -> Mapping[str, list[Standing]]:
    """Return the tasks by lane, each lane's oldest first: one alone, but on lanes of the pool."""
    lanes: dict[str, list[Standing]] = {}
    for one in standings:
        lanes.setdefault(one.task.lane, []).append(one)
    for shared in lanes.values():
        if len(shared) > 1:
            shared.sort(key=lambda one: (one.task.created_at_ms, one.task.id))
    return lanes


async def spent_of(
    limiter: Limiter, subjects: Iterable[Subject], limits: Limits, at_ms: int
) -> dict[Subject, dict[str, float]]:
    """Return what the totals that are set count for those of the subjects that have any."""
    every = limits.get(Subject("app", EVERY_APP), Limit())
    ordered = sorted(
        subject
        for subject in set(subjects)
        if _has_total(limits.get(subject, Limit())) or (subject.kind == "app" and _has_total(every))
    )
    if not ordered:
        return {}
    day = datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()
    usage = await limiter.usage([str(subject) for subject in ordered], day)
    return {subject: used.spent for subject, used in zip(ordered, usage, strict=True)}


def _has_total(limit: Limit) -> bool:
    return any(getattr(limit, name) is not None for name in TOTALS)


_APP = "app "


class _Part:
    """A level, an app or a lane: its weight among its siblings, and the most that it may take."""

    def __init__(self, weight: float, most_per_s: float) -> None:
        self.weight = weight
        self.own_most_per_s = most_per_s
        self.parts: dict[str, _Part] = {}

    def part(self, name: str, weight: float, most_per_s: float) -> _Part:
        if (found := self.parts.get(name)) is None:
            found = self.parts[name] = _Part(weight, most_per_s)
        return found

    @property
    def most_per_s(self) -> float:
        if not self.parts:
            return self.own_most_per_s
        return min(self.own_most_per_s, sum(part.most_per_s for part in self.parts.values()))

    def share_out(self, amount: float, found: dict[str, float], name: str = "") -> None:
        """Give each lane below its part of the amount."""
        if not self.parts:
            found[name] = amount
            return
        parts = list(self.parts.items())
        wants = [(part.weight, part.most_per_s) for _, part in parts]
        for (below, part), given in zip(parts, filled(wants, amount), strict=True):
            part.share_out(given, found, below)


def entitled_shares(load: SinkLoad, standings: Iterable[Standing]) -> dict[str, float]:
    """Return by lane the part of the sink, from 0 to 1, that is its own whatever the limits."""
    return _shared_out(load, _tree(load, standings, is_limited=False), 1.0)


def entitled_rates(load: SinkLoad, standings: Iterable[Standing], per_s: float) -> dict[str, float]:
    """Return by lane the pushes a second that it gets of a sink that takes `per_s`."""
    return _shared_out(load, _tree(load, standings, is_limited=True), per_s)


def _shared_out(load: SinkLoad, root: _Part, amount: float) -> dict[str, float]:
    found: dict[str, float] = {}
    if root.parts:
        _divide_rates(root, amount)
        _keep_to_high_parts(load, root, amount)
        root.share_out(amount, found)
    return found


def _tree(load: SinkLoad, standings: Iterable[Standing], *, is_limited: bool) -> _Part:
    root = _Part(1, math.inf)
    weights = load.weights.by_level()
    for one in standings:
        task = one.task
        level = root.part(task.level, weights[task.level], math.inf)
        most_per_s = [math.inf, math.inf]
        if is_limited:
            most_per_s = [load.most_per_s("app", task.app), load.most_per_s("task", task.id)]
        if task.pooled:
            level.part(f"lane {task.lane}", 1, math.inf).part(task.lane, 1, min(most_per_s))
        else:
            app_quota = load.limit("app", task.app, "quota") or 1
            app = level.part(_APP + task.app, app_quota, most_per_s[0])
            app.part(task.lane, task.quota, most_per_s[1])
    root.parts = {level: root.parts[level] for level in Level if level in root.parts}
    return root


def _divide_rates(root: _Part, amount: float) -> None:
    """Give apps with a rate so much of it at each of their levels as the weights say."""
    at: dict[str, list[tuple[_Part, _Part]]] = {}
    for level in root.parts.values():
        for name, app in level.parts.items():
            if name.startswith(_APP) and app.own_most_per_s < math.inf:
                at.setdefault(name, []).append((level, app))
    weights = sum(level.weight for level in root.parts.values()) or 1
    quotas = {
        level: sum(one.weight for one in level.parts.values()) for level in root.parts.values()
    }
    for several in (found for found in at.values() if len(found) > 1):
        rated = []
        for level, app in several:
            part = app.weight / quotas[level]
            most_per_s = sum(lane.most_per_s for lane in app.parts.values())
            rated.append(RatedAt(level.weight, level.weight / weights * part, most_per_s))
        rate = several[0][1].own_most_per_s
        for (_, app), most in zip(several, divided(rate, amount, rated), strict=True):
            app.own_most_per_s = most


class RatedAt(NamedTuple):
    """An app with a rate at one of its levels.

    `part` is what is its own of the sink there, by weights and quotas, `most_per_s` what its lanes
    can take.
    """

    weight: float
    part: float
    most_per_s: float


def divided(rate: float, amount: float, at: Sequence[RatedAt]) -> list[float]:
    """Return the most that an app with a rate has at each of its levels, of a sink's amount.

    They share the rate by their weights, each as far as it can; what is left of it any may have.
    """
    wants = [(one.weight, min(one.most_per_s, amount * one.part)) for one in at]
    given = filled(wants, rate)
    left = max(0.0, rate - sum(given))
    return [one + left for one in given]


def _keep_to_high_parts(load: SinkLoad, root: _Part, amount: float) -> None:
    """Let apps have no more of high than their part, as far as there is anybody else."""
    high = root.parts.get(Level.HIGH)
    if high is None:
        return
    own = {name: part_of_high(load, name.removeprefix(_APP)) for name in high.parts}
    others = [
        (level.weight, level.most_per_s) for at, level in root.parts.items() if at is not Level.HIGH
    ]
    apps = [(own[name], app.most_per_s) for name, app in high.parts.items()]
    whole = whole_of_high(high.weight, others, apps, amount)
    for name, app in high.parts.items():
        if own[name] < 1:
            app.own_most_per_s = min(app.own_most_per_s, own[name] * whole)


def whole_of_high(
    weight: float,
    others: Iterable[tuple[float, float]],
    apps: Iterable[tuple[float, float]],
    amount: float,
) -> float:
    """Return of what the apps of the high level may have their part each, of a sink's amount.

    It is what the level would have by its weight, or as much more as neither the `others`, by
    weight and the most that each can take, nor the `apps`, by part and most, would take.
    """
    counted = [one for one in others if one[0] > 0]
    whole = filled([(weight, math.inf), *counted], amount)[0] if counted else amount
    left = amount - sum(most for _, most in counted)
    if whole <= 0 or left <= 0:
        return whole
    by_most = sorted((most / part, part, most) for part, most in apps)
    parts = sum(part for _, part, _ in by_most)
    for needed, part, most in by_most:  # from there on it can take no more
        if left <= parts * needed:
            return max(whole, left / parts)
        left, parts = left - most, parts - part
    return math.inf


def part_of_high(load: SinkLoad, app: str) -> float:
    """Return the part of the high level, from 0 to 1, that an app may have of it.

    What apps may not have together goes to the other levels by their weights. What nobody else can
    take is theirs too, by their parts.
    """
    part = load.limit("app", app, "high_part")
    return 1.0 if part is None else float(part)


def filled(wants: Sequence[tuple[float, float]], amount: float) -> list[float]:
    """Share an amount by weight; what one cannot take is shared among the others.

    Parts of weight 0 get what nobody else can take, the first of them first.
    """
    given = _by_weight([(weight, most) for weight, most in wants], amount)
    left = amount - sum(given)
    for place, (weight, most) in enumerate(wants):
        if weight == 0 and left > 0:
            given[place] = min(most, left)
            left -= given[place]
    return given


def _by_weight(wants: Sequence[tuple[float, float]], amount: float) -> list[float]:
    given = [0.0] * len(wants)
    open_ = [place for place, (weight, _) in enumerate(wants) if weight > 0]
    while open_:
        each = amount / sum(wants[place][0] for place in open_)
        full = {place for place in open_ if wants[place][1] <= each * wants[place][0]}
        for place in full or open_:
            given[place] = wants[place][1] if full else each * wants[place][0]
            amount -= given[place]
        open_ = [place for place in open_ if place not in full] if full else []
    return given
