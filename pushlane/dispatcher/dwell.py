"""Measures how long deliveries hold their slots, and judges when that is longer than others do.

Slot-seconds count while they pass (Little's law): a delivery that hangs is seen before it lands.
Pure: whoever holds it tells the time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

ALIKE = 1.25
ALIKE_AGAIN = 1.15
OURS_S = 0.01
"""A difference below this is of our own loop, not of a sink."""

_FEWEST_PICKS = 3
_CERTAIN = 5.0
_KEEP = 1 - 1 / 400
_KEEP_SLOW = 1 - 1 / 50
_CHANGED = 0.1
_FADES_S = 10.0


class Read(NamedTuple):
    """Slot-seconds, picks and landings between two looks at a stopwatch."""

    spent_s: float
    picks: int
    landings: int


class Mean:
    """Slot-seconds, picks and landings, which fade as picks and time go on.

    `cost` is how many times as long as others' its deliveries take, 1 when it counts as alike.
    """

    __slots__ = ("_fed_s", "cost", "landings", "picks", "spent_s")

    def __init__(self) -> None:
        self._fed_s = 0.0
        self.spent_s = 0.0
        self.picks = 0.0
        self.landings = 0.0
        self.cost = 1.0

    def feed(self, now_s: float, read: Read) -> None:
        kept = math.exp((self._fed_s - now_s) / _FADES_S)
        kept *= (_KEEP if self.cost == 1 else _KEEP_SLOW) ** read.picks
        self._fed_s = now_s
        self.spent_s = self.spent_s * kept + read.spent_s
        self.picks = self.picks * kept + read.picks
        self.landings = self.landings * kept + read.landings

    @property
    def a_pick_s(self) -> float:
        """Return the mean of a delivery; one in flight counts with what it has taken so far."""
        return self.spent_s / self.picks if self.picks else 0.0

    @property
    def a_landing_s(self) -> float:
        """At least as much as a delivery takes."""
        return self.spent_s / self.landings if self.landings else math.inf

    def is_surely_shorter(self, than_s: float) -> bool:
        longest_s = max(self.a_landing_s, 1e-9)
        return than_s - longest_s > OURS_S and math.log(than_s / longest_s) > _doubt(self.landings)

    def judge(self, base_s: float) -> bool:
        """Set `cost` against deliveries that take `base_s`; whether it has changed."""
        before = self.cost
        if self.picks >= _FEWEST_PICKS:
            self.cost = self._cost(self.a_pick_s, base_s)
        return self.cost != before

    def _cost(self, a_pick_s: float, base_s: float) -> float:
        ratio = a_pick_s / base_s
        if a_pick_s - base_s <= OURS_S:
            return 1.0
        if self.cost == 1:
            return ratio if math.log(ratio) > _doubt(self.picks) else 1.0
        if ratio < ALIKE_AGAIN:
            return 1.0
        return ratio if abs(ratio - self.cost) > _CHANGED * self.cost else self.cost


def _doubt(count: float) -> float:
    """Return by how much such a mean may be off, as a logarithm, and what counts as alike."""
    return max(math.log(ALIKE), _CERTAIN / math.sqrt(count))


class Stopwatch:
    """Slot-seconds of pushes that take off and land."""

    __slots__ = ("_landed_s", "_landings", "_picks", "_started_s", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self._started_s = 0.0
        self._landed_s = 0.0
        self._picks = 0
        self._landings = 0

    def took_off(self, now_s: float, count: int) -> None:
        self.in_flight += count
        self._started_s += now_s * count
        self._picks += count

    def landed(self, now_s: float, since_s: float, count: int) -> None:
        self.in_flight -= count
        self._started_s -= since_s * count
        self._landed_s += (now_s - since_s) * count
        self._landings += count

    def skip(self, passed_s: float) -> None:
        """Leave so much out of the time of those in flight."""
        self._landed_s -= passed_s * self.in_flight

    def read(self, now_s: float) -> Read:
        """Return what came since the last call."""
        if not self.in_flight:
            self._started_s = 0.0  # what rounding left of it
        total_s = self._landed_s + self.in_flight * now_s - self._started_s
        new = Read(max(0.0, total_s), self._picks, self._landings)
        self._landed_s -= total_s  # so the next one begins at 0
        self._picks = self._landings = 0
        return new
