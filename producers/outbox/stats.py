"""The counts of a producer, for the application and for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class ProducerStats:
    """The state of a producer now; its counts are since it was opened.

    `buffered` pushes are in memory, `spooled` ones on disk; both are not sent yet. `refused`
    counts pushes that raised BufferFull, `lost` those in corrupt records of the spool (at most so
    many), whose files are named in `corrupt`. `trouble` is why nothing is sent just now, if so.
    """

    task_id: str
    accepted: int
    sent: int
    refused: int
    failed_sends: int
    buffered: int
    buffered_bytes: int
    spooled: int
    spooled_bytes: int
    lost: int
    corrupt: tuple[str, ...]
    longest_block_s: float
    trouble: str


_COUNTERS = {
    "accepted": "Pushes accepted",
    "sent": "Pushes on their lane",
    "refused": "Pushes refused since the buffer was full",
    "failed_sends": "Tries to reach the broker or the registry that failed",
    "lost": "Pushes in corrupt records of the spool, at most",
}
_GAUGES = {
    "buffered": "Pushes in memory",
    "buffered_bytes": "Bytes of pushes in memory",
    "spooled": "Pushes on disk that are not sent yet",
    "spooled_bytes": "Bytes of the spool's files",
    "longest_block_s": "Longest that a push has waited for room",
}


class ProducerCollector(Collector):
    """Shows a producer's stats to a Prometheus registry: `pushlane_producer_…`, by its name."""

    def __init__(self, name: str, stats: Callable[[], ProducerStats]) -> None:
        self._name = name
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        for kind, texts in (CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES):
            for field, text in texts.items():
                family = kind(_metric(field), text, labels=["producer"])
                family.add_metric([self._name], getattr(stats, field))
                yield family


def _metric(field: str) -> str:
    name = field.removesuffix("_s") + ("_seconds" if field.endswith("_s") else "")
    return f"pushlane_producer_{name}"
