"""The places under one subject's in-flight cap that this process holds. Pure: it is told the time.

Places are held for some seconds and renewed, so that those of a killed process come back. What is
held follows what is in use: twice as much when that was too little, less when it is not needed.
"""

from __future__ import annotations

import random

from pushlane.dispatcher.budgets.rate_budget import KEPT_S
from pushlane.lanes.ports import PlaceAsk

PLACES_TTL_S = 10.0

_RENEW_S = PLACES_TTL_S / 4
_AGAIN_S = 0.05


class PlaceBudget:
    """Places to fill at once, as long as the store has been heard of lately.

    While an answer is awaited no more may be in use than was said, since the store may take away
    what is not. As long as the store may think that it waits, places are kept for it there: so it
    is not idle until the store has heard that it wants none.
    """

    def __init__(self, subject: str, cap: int) -> None:
        self.subject = subject
        self._cap = cap
        self.in_use = 0
        self._held = 0
        self._asked = 0
        self._known = 0
        self._may_fill = 0
        self._valid_until_s = 0.0
        self._asked_at_s = 0.0
        self._next_ask_s = 0.0
        self._is_missed = False
        self._peaks = (0, 0)
        self._turned_at_s = 0.0

    def set_cap(self, cap: int) -> None:
        if cap != self._cap:
            self._cap = cap
            self._may_fill = min(self._may_fill, cap)
            self._next_ask_s = self._asked_at_s = 0.0

    def has_room(self, cost: float, now_s: float) -> bool:
        return self.in_use < self._may_fill and now_s < self._valid_until_s

    def room(self, cost: float) -> float:
        """Return how many pushes of this cost have room."""
        return self._may_fill - self.in_use

    def miss(self, cost: float) -> None:
        """Note that a push waits for a place."""
        self._is_missed = True

    def unmiss(self) -> None:
        """Forget who waited: those that still do say so again."""
        self._is_missed = False

    def take(self, cost: float) -> None:
        self.in_use += 1
        before, now = self._peaks
        self._peaks = before, max(now, self.in_use)

    def give_back(self, cost: float) -> None:
        """Free the place of a push that has landed, or did not go."""
        self.in_use -= 1

    def ask(self, now_s: float) -> PlaceAsk | None:
        """Return what to ask for now, None when all is as it should be."""
        if now_s < self._next_ask_s:
            return None
        peak = self._peak(now_s)
        wanted = min(self._cap, peak + max(1, peak)) if self._is_missed else peak
        is_due = now_s >= self._asked_at_s + _RENEW_S and (self._held or self.in_use)
        is_unused = wanted < max(self._held, self._known) and now_s >= self._asked_at_s + KEPT_S
        if not (self._is_missed or is_due or is_unused):
            return None
        self._asked_at_s = now_s
        self._asked = wanted
        self._known = max(self._known, wanted)
        self._next_ask_s = now_s + _AGAIN_S * random.uniform(0.6, 1.0)
        said = self.in_use if self._is_missed else wanted
        self._may_fill = min(self._may_fill, max(said, self.in_use))
        return PlaceAsk(self.subject, self._cap, wanted, max(said, self.in_use))

    def granted(self, places: int) -> None:
        """Fill so many from now on; counted from when they were asked for."""
        self._held = self._may_fill = min(places, self._cap)
        self._known = self._asked
        self._valid_until_s = self._asked_at_s + PLACES_TTL_S
        if self.in_use < places:
            self._is_missed = False

    def closing(self) -> PlaceAsk:
        """Return the ask that gives all back that is not in use."""
        self._may_fill = 0
        return PlaceAsk(self.subject, self._cap, 0, self.in_use)

    @property
    def is_idle(self) -> bool:
        """Tell whether it needs nothing of the store until it is missed again."""
        return not (self._is_missed or self._held or self._known or self.in_use)

    def _peak(self, now_s: float) -> int:
        """Return how many were in use at once lately."""
        if now_s >= self._turned_at_s + KEPT_S:
            self._turned_at_s = now_s
            self._peaks = self._peaks[1], self.in_use
        return max(*self._peaks, self.in_use)
