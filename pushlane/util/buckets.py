"""Counts how long things took, in plain numbers. `util.metrics` shows these to Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 600, 3600),
)
SHORT_BUCKETS_S = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, *BUCKETS_S[:10])
"""Of what usually takes microseconds."""


class Buckets:
    """A histogram of seconds, up to each of `bounds_s`."""

    __slots__ = ("_bounds_s", "_counts", "sum_s")

    def __init__(self, bounds_s: Sequence[float] = BUCKETS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Count so many things, each of which took so long."""
        self._counts[bisect_left(self._bounds_s, seconds)] += times
        self.sum_s += seconds * times

    @property
    def count(self) -> int:
        """How many things were counted."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bound as a text, with how many things took no longer."""
        bounds = (*(f"{bound:g}" for bound in self._bounds_s), "+Inf")
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
