"""What this process may still spend of one hard total. Pure: it is told the time.

All processes together are never allotted more than the total. What one has in hand and does not
need goes back soon, so that the last pushes of a total are not stuck in a process that has none.
"""

from __future__ import annotations

import random
import secrets

from pushlane.dispatcher.budgets.rate_budget import KEPT_S, PACE_S, ROUNDING
from pushlane.lanes.ports import Tally, TotalAsk

MOST_PART = 0.01
"""So much of a total is leased at once at most, but always the cost of one push."""

_AGAIN_S = 1.0

_LIFE_S = 24 * 3600.0
"""The store counts who was not heard of for two days as gone, with all it spent: so after half of
that it is another one that asks.
"""


class TotalBudget:
    """A part of a total. `counts_pushes`: each push is one, whatever it costs."""

    def __init__(self, tally: Tally, limit: float, *, counts_pushes: bool) -> None:
        self.tally = tally
        self._holder = secrets.token_hex(6)
        self._limit = limit
        self._counts_pushes = counts_pushes
        self._used = 0.0
        self._allotted = 0.0
        self._may_use = 0.0
        self._missing = 0.0
        self._gives_back = False
        self._since_ask = 0.0
        self._pace = 0.0
        self._touched_at_s = 0.0
        self._next_ask_s = 0.0
        self._heard_at_s: float | None = None

    def set_limit(self, limit: float) -> None:
        if limit != self._limit:
            self._limit = limit
            self._next_ask_s = 0.0

    def has_room(self, cost: float, now_s: float) -> bool:
        return self._used + self._amount(cost) <= self._may_use + ROUNDING

    def room(self, cost: float) -> float:
        """Return how many pushes of this cost have room."""
        return (self._may_use - self._used) / self._amount(cost)

    def miss(self, cost: float) -> None:
        """Note that a push waits for its part of the total."""
        self._missing = max(self._missing, self._amount(cost))

    def unmiss(self) -> None:
        """Forget who waited: those that still do say so again."""
        self._missing = 0.0

    def take(self, cost: float) -> None:
        self._used += self._amount(cost)
        self._since_ask += self._amount(cost)

    def give_back(self, cost: float) -> None:
        """Take back the part of a push that did not go."""
        self._used -= self._amount(cost)
        self._since_ask = max(0.0, self._since_ask - self._amount(cost))

    def ask(self, now_s: float) -> TotalAsk | None:
        """Return what to ask for now, None when all is as it should be."""
        if self._since_ask:
            self._touched_at_s = now_s
        if now_s < self._next_ask_s:
            return None
        if self._heard_at_s is None:
            self._heard_at_s = now_s
        elif now_s >= self._heard_at_s + _LIFE_S:
            self._begin_anew(now_s)
        self._pace = max(self._since_ask, self._pace / 2)
        self._since_ask = 0.0
        left = self._may_use - self._used
        is_over = left > ROUNDING and now_s >= self._touched_at_s + KEPT_S
        if self._gives_back or (is_over and not self._missing):
            return self._asking(self._used, now_s)
        ahead = self._pace if self._pace >= ROUNDING else 0.0
        if left >= max(ahead, self._missing) - ROUNDING:
            return None
        more = max(self._missing, min(2 * ahead, self._limit * MOST_PART))
        return self._asking(self._used + more, now_s) if more > left + ROUNDING else None

    def granted(self, allotted: float, now_s: float) -> None:
        """Spend up to so much in all; what is too little for a push goes back at once."""
        self._heard_at_s = now_s
        self._allotted = self._may_use = allotted
        left = allotted - self._used
        if self._missing and left < self._missing - ROUNDING:
            was_given_back, self._gives_back = self._gives_back, left > ROUNDING
            self._next_ask_s = now_s + _AGAIN_S * random.uniform(0.5, 1.0)
            if self._gives_back and not was_given_back:
                self._next_ask_s = now_s
        else:
            self._gives_back = False
            self._missing = 0.0
            self._touched_at_s = now_s

    def closing(self) -> TotalAsk:
        """Return the ask that gives all back that was not spent."""
        return self._asking(self._used, 0.0)

    @property
    def is_idle(self) -> bool:
        """Tell whether it needs nothing of the store until it is missed again."""
        return not self._missing and self._allotted <= self._used + ROUNDING

    def _amount(self, cost: float) -> float:
        return 1.0 if self._counts_pushes else cost

    def _begin_anew(self, now_s: float) -> None:
        """Be another holder: what was allotted to the one before stays spent in the store."""
        self._holder = secrets.token_hex(6)
        self._heard_at_s = now_s
        self._used = self._allotted = self._may_use = 0.0
        self._gives_back = False

    def _asking(self, wanted: float, now_s: float) -> TotalAsk:
        """While the answer is awaited, no more may be used than was asked for."""
        self._next_ask_s = now_s + PACE_S
        self._may_use = min(self._may_use, wanted)
        return TotalAsk(self.tally, self._limit, self._holder, self._used, wanted)
