"""Decides when detail rows become a sample, and how small; counts always stay exact.

If batches come too fast, or too much is waiting, only a share of the delivered pushes is kept as
rows, so that the job does not fall behind. Rare outcomes are always kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pushlane.settings import Settings

LEAST = 0.01
_BEHIND = 0.1


@dataclass(frozen=True)
class SamplingMode:
    """The share of delivered pushes that become detail rows: a `rate` of 1 is all of them."""

    rate: float = 1.0
    why: str = ""

    @property
    def is_full(self) -> bool:
        return self.rate >= 1.0


FULL = SamplingMode()


class BatchTimer:
    """Measures the time from one batch to the next, each taken when it was read.

    So it includes the time that a batch takes to be written.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._last_s = clock_s()

    def since_last_s(self) -> float:
        """Return the seconds since the last call, or since the timer was made."""
        before, self._last_s = self._last_s, self._clock_s()
        return self._last_s - before


def choose_mode(settings: Settings, receipts: int, seconds: float, lag: int) -> SamplingMode:
    """Choose the mode for a batch of so many receipts, with `lag` bodies left behind it.

    `seconds` is the time since the batch before. A limit of 0 in the settings is none.
    """
    found = [FULL]
    limit = settings.pipeline_detail_rate_per_s
    rate_per_s = receipts / max(seconds, 1e-3)
    if limit and rate_per_s > limit:
        share = max(LEAST, limit / rate_per_s)
        found.append(SamplingMode(round(share, 6), f"{rate_per_s:,.0f} receipts/s, over {limit:,}"))
    if settings.pipeline_detail_lag and lag > settings.pipeline_detail_lag:
        text = f"{lag:,} bodies behind, over {settings.pipeline_detail_lag:,}"
        found.append(SamplingMode(_BEHIND, text))
    return min(found, key=lambda mode: mode.rate)
