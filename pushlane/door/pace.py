"""Bounds how often somebody asks: so many requests a second, and as many at once after a rest."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST = 10_000


class Pace:
    """Counts requests by who makes them. It remembers those who came last, 10,000 of them."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._free_at_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._free_at_s)

    def wait_s(self, who: str) -> float:
        """Return for how long a request of theirs comes too early; 0 when it may be made now."""
        return max(0.0, self._free_at_s.get(who, 0.0) - self._clock_s())

    def note(self, who: str, per_s: float) -> None:
        """Count a request of theirs. After a second's rest as many as that may come at once."""
        now_s = self._clock_s()
        spare_s = max(1.0, 1 / per_s) - 1 / per_s
        free_at_s = max(self._free_at_s.pop(who, 0.0), now_s - spare_s) + 1 / per_s
        self._free_at_s[who] = free_at_s
        if len(self._free_at_s) > _MOST:
            self._free_at_s.popitem(last=False)

    def give_back(self, who: str, per_s: float) -> None:
        """Count a request of theirs no longer, which was noted with this pace."""
        if who in self._free_at_s:
            self._free_at_s[who] -= 1 / per_s
