"""What the receipts job counts, and the metrics that it shows."""

from __future__ import annotations

import time
from collections.abc import Callable

from pushlane.util.metrics import Buckets, Exporter, MetricMaker, ReadMetric


class JobStats:
    """The counts of one job since it started, and how far behind the log it is."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._caught_up_s = clock_s()
        self.lag = 0
        self.stored = 0
        self.batches = Buckets()

    def looked(self, lag: int) -> None:
        """Note how many bodies of the log are not read."""
        self.lag = lag
        if not lag:
            self._caught_up_s = self._clock_s()

    def stored_batch(self, receipts: int, seconds: float, *, took_all: bool) -> None:
        """Note a batch that was published; `took_all` if it read all there was when it began."""
        self.stored += receipts
        self.batches.add(seconds)
        if took_all:
            self._caught_up_s = self._clock_s() - seconds

    def lag_s(self) -> float:
        """Return for how long the oldest body that is not read may be there, 0 if there is none."""
        return self._clock_s() - self._caught_up_s if self.lag else 0.0


_make: MetricMaker[JobStats] = MetricMaker(Exporter.PIPELINE)

JOB_METRICS: tuple[ReadMetric[JobStats], ...] = (
    _make.gauge(
        "receipts_lag",
        "bodies",
        "Bodies of the log of receipts that are not in the store yet",
        lambda stats: stats.lag,
    ),
    _make.gauge(
        "receipts_lag_seconds",
        "seconds",
        "For how long the oldest of them may have been in the log, 0 while nothing is left",
        lambda stats: stats.lag_s(),
    ),
    _make.counter(
        "receipts_stored_total",
        "receipts",
        "Receipts put into the store",
        lambda stats: stats.stored,
    ),
    _make.histogram(
        "pipeline_batch_seconds",
        "One batch, from the log to its manifest",
        lambda stats: stats.batches,
    ),
)
"""All metrics of the receipts job, in the order in which they are shown."""
