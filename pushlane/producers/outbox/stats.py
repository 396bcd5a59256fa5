"""The counts of a producer, for the application and for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, field

from pushlane.util.metrics import SHORT_BUCKETS_S, Buckets, Exporter, MetricMaker, ReadMetric


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
    enqueue: Buckets = field(default_factory=lambda: Buckets(SHORT_BUCKETS_S))


_make: MetricMaker[ProducerStats] = MetricMaker(
    Exporter.PRODUCER, "pushlane_producer_", {"producer": ()}
)

PRODUCER_METRICS: tuple[ReadMetric[ProducerStats], ...] = (
    _make.counter("accepted_total", "pushes", "Pushes accepted", lambda stats: stats.accepted),
    _make.counter("sent_total", "pushes", "Pushes on their lane", lambda stats: stats.sent),
    _make.counter(
        "refused_total",
        "pushes",
        "Pushes refused since the buffer was full",
        lambda stats: stats.refused,
    ),
    _make.counter(
        "failed_sends_total",
        "tries",
        "Tries to reach the broker or the registry that failed",
        lambda stats: stats.failed_sends,
    ),
    _make.counter(
        "lost_total",
        "pushes",
        "Pushes in corrupt records of the spool, at most",
        lambda stats: stats.lost,
    ),
    _make.histogram(
        "enqueue_seconds",
        "Accepting one push, with its wait for room: of every 16th push",
        lambda stats: stats.enqueue,
    ),
    _make.gauge("buffered", "pushes", "Pushes in memory", lambda stats: stats.buffered),
    _make.gauge(
        "buffered_bytes",
        "bytes",
        "Bytes of pushes in memory",
        lambda stats: stats.buffered_bytes,
    ),
    _make.gauge(
        "spooled",
        "pushes",
        "Pushes on disk that are not sent yet",
        lambda stats: stats.spooled,
    ),
    _make.gauge(
        "spooled_bytes",
        "bytes",
        "Bytes of the spool's files",
        lambda stats: stats.spooled_bytes,
    ),
    _make.gauge(
        "longest_block_seconds",
        "seconds",
        "Longest that a push has waited for room",
        lambda stats: stats.longest_block_s,
    ),
)
"""All metrics of a producer, in the order in which they are shown."""
