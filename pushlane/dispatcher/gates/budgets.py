"""Tells at once, in memory, whether a push has room in all limits that concern it, and charges it.

A push takes tokens of rates, a place in flight, and when it goes for the first time its part of
totals: at each sink of that sink's, and once of its task's and app's. With no limits set, asking
costs one look at `is_limited`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from pushlane.backends.guard_ports import (
    Limiter,
    Tally,
)
from pushlane.core.task import now_ms
from pushlane.core.turns import EVERY_APP
from pushlane.dispatcher.gates.leasing import (
    LeasedBudget,
    Leasing,
    PlaceBudget,
    RateBudget,
    TotalBudget,
)
from pushlane.model.limits import KINDS, Limit, Limits, Subject

_AGAIN = ("rate_per_s", "in_flight")
_DAILY = ("a_day", "cost_a_day")
_FIELDS = (*_AGAIN, "total", "total_cost", *_DAILY)
"""The limits of pushes. The last four are hard totals, which a push is counted in once."""


class Missed(NamedTuple):
    """The need of the pushes that wait: the least `cost` of one.

    With `is_first` all of them count in totals.
    """

    cost: float
    is_first: bool


class Room(NamedTuple):
    """The number of pushes that may go now, and of `first` ones, which count in totals."""

    pushes: float
    first: float


_ALL = Room(math.inf, math.inf)


class SubjectBudget:
    """What a push of the subject has to have room in. Only limits that are set have a budget.

    `all` are those of a push that goes for the first time, `again` those of one that went before.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._name = str(subject)
        self._limit = Limit()
        self._day = ""
        self._parts: dict[str, LeasedBudget] = {}
        self._places: PlaceBudget | None = None  # those in use are known when there is a cap again
        self.all: tuple[LeasedBudget, ...] = ()
        self.again: tuple[LeasedBudget, ...] = ()
        self._missed: Missed | None = None
        self._turn = 0

    def set_limit(self, limit: Limit, day: str) -> None:
        """Take over its limits; what stays limited keeps what it has leased."""
        for part in self.all:
            part.unmiss()
        self._limit = limit
        self._set_parts(day)

    def set_day(self, day: str) -> None:
        """Begin anew with what is limited by the day."""
        if day != self._day:
            self._set_parts(day)

    def lacking(self, cost: float, now_s: float, *, is_first: bool) -> list[LeasedBudget]:
        """Return each budget that has no room for a push."""
        parts = self.all if is_first else self.again
        return [part for part in parts if not part.has_room(cost, now_s)]

    def miss(self, parts: Iterable[LeasedBudget], cost: float, *, is_first: bool) -> None:
        """Note that a push waits for these."""
        for part in parts:
            part.miss(cost)
        if self._missed is not None:
            cost, is_first = min(self._missed.cost, cost), self._missed.is_first and is_first
        self._missed = Missed(cost, is_first)

    def still_lacking(self, now_s: float) -> list[LeasedBudget]:
        """Return what is lacking to one that waits; it counts as missed again."""
        if self._missed is None:
            return []
        parts = self.lacking(self._missed.cost, now_s, is_first=self._missed.is_first)
        for part in parts:
            part.miss(self._missed.cost)
        return parts

    def room(self) -> Room:
        """Return how many of those that wait have room, 0 if it is not known what they need."""
        if self._missed is None:
            return Room(0.0, 0.0)
        first, again = (
            min((part.room(self._missed.cost) for part in parts), default=math.inf)
            for parts in (self.all, self.again)
        )
        return Room(first if self._missed.is_first else again, first)

    def unmiss(self) -> Missed | None:
        """Forget who waits, and return what they need."""
        missed, self._missed = self._missed, None
        for part in self.all:
            part.unmiss()
        return missed

    def next_turn(self, count: int) -> int:
        """Return which of so many is first this time: each in its turn."""
        self._turn = (self._turn + 1) % max(1, count)
        return self._turn

    @property
    def is_in_use(self) -> bool:
        """Tell whether pushes are in flight that count under its cap, or did."""
        return self._places is not None and self._places.in_use > 0

    def _set_parts(self, day: str) -> None:
        is_new_day, self._day = day != self._day, day
        before, self._parts = self._parts, {}
        for what in _FIELDS:
            limit = getattr(self._limit, what)
            if limit is None:
                continue
            part = self._places if what == "in_flight" else before.get(what)
            if part is None or (is_new_day and what in _DAILY):
                part = self._made(what, limit)
            else:
                part.set_limit(limit)
            self._parts[what] = part
        for what, part in before.items():
            if self._parts.get(what) is not part:
                part.unmiss()
        self.all = tuple(self._parts.values())
        self.again = tuple(self._parts[what] for what in _AGAIN if what in self._parts)

    def _made(self, what: str, limit: Any) -> LeasedBudget:
        if what == "rate_per_s":
            return RateBudget(self._name, limit)
        if what == "in_flight":
            self._places = PlaceBudget(self._name, limit)
            return self._places
        tally = Tally(self._name, what, self._day if what in _DAILY else "")
        return TotalBudget(tally, limit, counts_pushes=what in ("total", "a_day"))


_OF_SINK = ("sink",)
_EVERY = Subject("app", EVERY_APP)
_LOOK_AGAIN_S = 2.0


class RoomListener(Protocol):
    """A part of the dispatcher that waits for room in budgets."""

    def on_room(self, subject: Subject, most: Room) -> bool:
        """Hear that this subject may have room again, for so many pushes: try, and wait again if it
        has not. Return whether others still wait.
        """

    def leave(self, subject: Subject) -> int:
        """Return for how many pushes it has given leave that can be used now: others leave it."""


class Charge:
    """The tokens and places of a push, of `parts`; some may be given back already."""

    __slots__ = ("_cost", "_taken", "budgets", "parts")

    def __init__(
        self, cost: float, budgets: list[SubjectBudget], parts: list[LeasedBudget]
    ) -> None:
        self._cost = cost
        self._taken = parts
        self.parts = parts
        self.budgets = budgets

    def land(self) -> None:
        """Give back the places: the push is no longer in flight."""
        self._give_back(PlaceBudget)

    def uncount(self) -> None:
        """Give back its part of totals: the push did not count, and goes again as if for the first
        time.
        """
        self._give_back(TotalBudget)

    def undo(self) -> None:
        """Give back all that is not given back yet: the push did not go."""
        self._give_back(object)

    def _give_back(self, kind: type) -> None:
        for part in self._taken:
            if isinstance(part, kind):
                part.give_back(self._cost)
        self._taken = [part for part in self._taken if not isinstance(part, kind)]


UNCHARGED = Charge(0.0, [], [])
"""That of a push that nothing limits."""


class Budgets:
    """The budgets of a process. `defaults` are limits that hold where none is set."""

    def __init__(
        self,
        limiter: Limiter,
        defaults: Mapping[Subject, Limit] | None = None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.leasing = Leasing(limiter, clock_s, self._tell)
        self._defaults = dict(defaults or {})
        self._clock_s = clock_s
        self._clock_ms = clock_ms
        self._listeners: list[RoomListener] = []
        self._limits: Limits = {}
        self._by_kind: dict[str, dict[str, SubjectBudget]] = {}
        self._gone: dict[Subject, SubjectBudget] = {}
        self._waiting: dict[Subject, SubjectBudget] = {}
        self._told: set[Subject] = set()
        self._look_again_s = 0.0
        self._day = ""
        self._limits_every_app = False
        self.is_limited = False
        self.on_limits({})

    def add_listener(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    def on_limits(self, limits: Limits) -> None:
        """Take over all limits that are set."""
        self._limits = {
            subject: _over(limits.get(subject), self._defaults.get(subject))
            for subject in {*limits, *self._defaults}
        }
        self._day = utc_day(self._clock_ms())
        self._gone = {subject: one for subject, one in self._gone.items() if one.is_in_use}
        known = {one.subject for by_name in self._by_kind.values() for one in by_name.values()}
        for subject in {*known, *self._limits}:
            self._set(subject)
        self._by_kind = {kind: by_name for kind, by_name in self._by_kind.items() if by_name}
        self._limits_every_app = _limits_pushes(self._limits.get(_EVERY, Limit()))
        self.is_limited = bool(self._by_kind) or self._limits_every_app
        self._release(dict.fromkeys(self._waiting, _ALL))
        self.leasing.look()

    def take(
        self,
        task_id: str,
        app: str,
        sink: str,
        cost: float,
        *,
        is_first: bool,
        went_before: bool = False,
    ) -> Charge | Subject:
        """Charge a push if all its budgets have room; else return which subject has none.

        `is_first` tells that the push was not tried at this sink yet, `went_before` that it was
        at an earlier one.
        """
        found = self._of(task_id, app, sink)
        if not found:
            return UNCHARGED
        now_s = self._clock_s()
        counts = (_OF_SINK if went_before else KINDS) if is_first else ()
        parts = [
            part for one in found for part in (one.all if one.subject.kind in counts else one.again)
        ]
        for part in parts:
            if not part.has_room(cost, now_s):
                return self._miss(found, cost, now_s, counts)
        for part in parts:
            part.take(cost)
        self.leasing.watch(parts)
        return Charge(cost, found, parts)

    def wait(self, subject: Subject, cost: float, *, is_first: bool) -> None:
        """Have a push wait for a subject whose room is for others first."""
        budget = self._by_kind[subject.kind][subject.name]
        budget.miss((), cost, is_first=is_first)
        self._waiting[subject] = budget
        self.leasing.tell_again(budget.all)

    def tell(self, subject: Subject) -> None:
        """Tell those that wait for a subject now what room it has, if it has any."""
        self._release_with_room([self._waiting[subject]])

    def land(self, charge: Charge) -> None:
        """Hear that a push is no longer in flight."""
        charge.land()
        self._look_at(charge)

    def undo(self, charge: Charge) -> None:
        """Hear that a push did not go."""
        charge.undo()
        self._look_at(charge)

    def _miss(
        self, found: list[SubjectBudget], cost: float, now_s: float, counts: Container[str]
    ) -> Subject:
        """Note that a push waits for all that it lacks; return the first that lacks some."""
        short = []
        for budget in found:
            is_first = budget.subject.kind in counts
            if lacking := budget.lacking(cost, now_s, is_first=is_first):
                budget.miss(lacking, cost, is_first=is_first)
                self.leasing.watch(lacking)
                self._waiting[budget.subject] = budget
                short.append(budget.subject)
        return short[0]

    def _look_at(self, charge: Charge) -> None:
        """Tell who waits for what was given back; the store gets what nobody here needs."""
        self.leasing.watch(part for part in charge.parts if not part.is_idle)
        if self._waiting:
            self._release_with_room([one for one in charge.budgets if one.subject in self._waiting])

    def _tell(self) -> None:
        """Tell who waits for what has room again. Now and then all, where nobody was told, as some
        may not wait any more: their tasks have ended.
        """
        now_s = self._clock_s()
        if self._turn_day():
            self._release(dict.fromkeys(self._waiting, _ALL))
        self._release_with_room(list(self._waiting.values()))
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + _LOOK_AGAIN_S
            self._release(dict.fromkeys(self._waiting.keys() - self._told, _ALL))
            self._told.clear()

    def _release_with_room(self, budgets: list[SubjectBudget]) -> None:
        now_s = self._clock_s()
        ready = {}
        for budget in budgets:
            if lacking := budget.still_lacking(now_s):
                self.leasing.watch(lacking)
            else:
                ready[budget.subject] = budget.room()
        self._told |= ready.keys()
        self._release(ready)

    def _release(self, most: Mapping[Subject, Room]) -> None:
        """Tell that these have room, each for so many. Who hears of it first may take it all, so
        that is another one each time. Those for whom it was not are told at the next look.
        """
        budgets = [self._waiting.pop(subject) for subject in most]
        wanted = [budget.unmiss() for budget in budgets]
        for budget, missed in zip(budgets, wanted, strict=True):
            subject = budget.subject
            at = budget.next_turn(len(self._listeners))
            listeners = self._listeners[at:] + self._listeners[:at]
            left = [self._tell_one(one, subject, most[subject]) for one in listeners]
            if any(left):
                if missed is not None:
                    budget.miss(budget.all, missed.cost, is_first=missed.is_first)
                self._waiting[subject] = budget
                self.leasing.tell_again(budget.all)

    def _tell_one(self, one: RoomListener, subject: Subject, room: Room) -> bool:
        """Tell one of the room but for what others have leave for."""
        others = sum(other.leave(subject) for other in self._listeners if other is not one)
        return one.on_room(subject, Room(room.pushes - others, room.first - others))

    def _of(self, task_id: str, app: str, sink: str) -> list[SubjectBudget]:
        """Return the budgets that concern a push."""
        found = []
        by_kind = self._by_kind
        for kind, name in zip(KINDS, (task_id, app, sink), strict=True):
            budget = by_kind[kind].get(name) if kind in by_kind else None
            if budget is None and self._limits_every_app and kind == "app":
                budget = self._set(Subject("app", app))
            if budget is not None:
                found.append(budget)
        return found

    def _set(self, subject: Subject) -> SubjectBudget | None:
        """Bring a subject's budget in line with its limits; return it, None if it has none."""
        limit = self._limits.get(subject, Limit())
        if subject.kind == "app":
            limit = _over(limit, self._limits.get(_EVERY))
        by_name = self._by_kind.setdefault(subject.kind, {})
        if subject == _EVERY or not _limits_pushes(limit):
            gone = by_name.pop(subject.name, None)
            if gone is not None and gone.is_in_use:
                self._gone[subject] = gone
            return None
        if (budget := by_name.get(subject.name)) is None:
            budget = self._gone.pop(subject, None) or SubjectBudget(subject)
            by_name[subject.name] = budget
        budget.set_limit(limit, self._day)
        return budget

    def _turn_day(self) -> bool:
        """Begin a new day, and tell whether one has begun."""
        today = utc_day(self._clock_ms())
        if today == self._day:
            return False
        self._day = today
        for by_name in self._by_kind.values():
            for budget in by_name.values():
                budget.set_day(today)
        return True


def utc_day(at_ms: int) -> str:
    """Return the day in UTC, like 2026-11-23."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat()


def _limits_pushes(limit: Limit) -> bool:
    return any(getattr(limit, name) is not None for name in _FIELDS)


def _over(limit: Limit | None, under: Limit | None) -> Limit:
    """Return a limit, where it says nothing what is under it."""
    own, other = limit or Limit(), under or Limit()
    values = {name: getattr(own, name) for name in _FIELDS}
    return Limit(
        **{name: getattr(other, name) if one is None else one for name, one in values.items()}
    )
