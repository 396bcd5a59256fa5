"""All budgets of one subject: those of its rate, its in-flight cap and its totals."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pushlane.dispatcher.budgets.place_budget import PlaceBudget
from pushlane.dispatcher.budgets.rate_budget import RateBudget
from pushlane.dispatcher.budgets.total_budget import TotalBudget
from pushlane.dispatcher.gates.leasing import LeasedBudget
from pushlane.lanes.ports import Tally
from pushlane.model.limits import Limit, Subject

_TOTALS = {"total": True, "total_cost": False, "a_day": True, "cost_a_day": False}
"""The limits that are hard totals, each with whether it counts pushes."""

_DAILY = ("a_day", "cost_a_day")


class SubjectBudget:
    """What a push of the subject has to have room in. Only limits that are set have a budget.

    `all` are those of a push that goes for the first time, `again` those of one that went before.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._name = str(subject)
        self._limit = Limit()
        self._day = ""
        self.rate: RateBudget | None = None
        self.places: PlaceBudget | None = None
        self._places: PlaceBudget | None = None
        self.totals: dict[str, TotalBudget] = {}
        self.all: tuple[LeasedBudget, ...] = ()
        self.again: tuple[LeasedBudget, ...] = ()
        self._short_of: float | None = None
        self._short_of_totals = False
        self._turn = 0

    def set_limit(self, limit: Limit, day: str) -> None:
        """Take over its limits; what stays limited keeps what it has leased."""
        for part in self.all:
            part.unmiss()
        self._limit = limit
        self._set_rate(limit.rate_per_s)
        self._set_places(limit.in_flight)
        self._set_totals(day)

    def set_day(self, day: str) -> None:
        """Begin anew with what is limited by the day."""
        if day != self._day:
            self._set_totals(day)

    def lacking(self, cost: float, now_s: float, *, is_first: bool) -> list[LeasedBudget]:
        """Return each budget that has no room for a push."""
        parts = self.all if is_first else self.again
        return [part for part in parts if not part.has_room(cost, now_s)]

    def miss(self, parts: Iterable[LeasedBudget], cost: float, *, is_first: bool) -> None:
        """Note that a push waits for these."""
        for part in parts:
            part.miss(cost)
        if self._short_of is None:
            self._short_of, self._short_of_totals = cost, is_first
        else:
            self._short_of = min(self._short_of, cost)
            self._short_of_totals = self._short_of_totals and is_first

    def still_lacking(self, now_s: float) -> list[LeasedBudget]:
        """Return what is lacking to one that waits; it counts as missed again."""
        cost = self._short_of
        if cost is None:
            return []
        parts = self.lacking(cost, now_s, is_first=self._short_of_totals)
        for part in parts:
            part.miss(cost)
        return parts

    def room(self) -> float:
        """Return how many of those that wait have room, 0 if it is not known what they need."""
        cost = self._short_of
        if cost is None:
            return 0.0
        parts = self.all if self._short_of_totals else self.again
        return min((part.room(cost) for part in parts), default=math.inf)

    def unmiss(self) -> None:
        """Forget who waited: those that still do say so again."""
        self._short_of = None
        for part in self.all:
            part.unmiss()

    def next_turn(self, count: int) -> int:
        """Return which of so many is first this time: each in its turn."""
        self._turn = (self._turn + 1) % max(1, count)
        return self._turn

    @property
    def is_in_use(self) -> bool:
        """Tell whether pushes are in flight that count under its cap, or did."""
        places = self.places or self._places
        return places is not None and places.in_use > 0

    def _set_rate(self, rate_per_s: float | None) -> None:
        if rate_per_s is None:
            self.rate = None
        elif self.rate is None:
            self.rate = RateBudget(self._name, rate_per_s)
        else:
            self.rate.set_rate(rate_per_s)

    def _set_places(self, cap: int | None) -> None:
        """Take over the cap. Places that are in use are known when there is a cap again."""
        self._places = self.places or self._places
        if cap is None:
            self.places = None
        elif self._places is None:
            self.places = PlaceBudget(self._name, cap)
        else:
            self.places = self._places
            self.places.set_cap(cap)

    def _set_totals(self, day: str) -> None:
        is_new_day, self._day = day != self._day, day
        for what, counts_pushes in _TOTALS.items():
            limit = getattr(self._limit, what)
            of_day = day if what in _DAILY else ""
            known = self.totals.get(what)
            if known is not None and limit is not None and not (is_new_day and of_day):
                known.set_limit(limit)
                continue
            if known is not None:
                known.unmiss()
                del self.totals[what]
            if limit is not None:
                tally = Tally(self._name, what, of_day)
                self.totals[what] = TotalBudget(tally, limit, counts_pushes=counts_pushes)
        self.again = tuple(part for part in (self.rate, self.places) if part is not None)
        self.all = (*self.again, *self.totals.values())
