"""The metrics of a process that ingests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pushlane.ingest.position import Seen
from pushlane.util.metrics import Exporter, Labels, MetricMaker, ReadMetric

if TYPE_CHECKING:
    from pushlane.ingest.ingest import Ingest

_MOST_PARTITIONS = 256
_RESULTS = ("push", "skipped", "repeated", "bad")
_PARTITION: Labels = {"partition": ()}

_make: MetricMaker[Ingest] = MetricMaker(Exporter.INGEST)


def _results(ingest: Ingest) -> Mapping[str, int]:
    counted = ingest.counted
    of = counted.pushes, counted.skipped, counted.repeated, counted.bad
    return dict(zip(_RESULTS, of, strict=True))


def _seen(read: Callable[[Seen, int], float]) -> Callable[[Ingest], Mapping[str, float]]:
    """Return what reads something of each partition; those behind the first 256 are not shown."""

    def by_partition(ingest: Ingest) -> Mapping[str, float]:
        found = {}
        for name, one in list(ingest.held.items())[:_MOST_PARTITIONS]:
            lanes = one.partition.lanes
            if (seen := lanes.main.position.seen) is not None:
                found[name] = read(seen, lanes.at)
        return found

    return by_partition


INGEST_METRICS: tuple[ReadMetric[Ingest], ...] = (
    _make.counter(
        "ingest_records_total",
        "records",
        "Records that are done: `push` are on their lane, `skipped` were left out, `repeated` were "
        "there before, `bad` are in the file of bad records",
        _results,
        {"result": _RESULTS},
    ),
    _make.counter(
        "ingest_bytes_total",
        "bytes",
        "Bytes of the values of records that are done",
        lambda ingest: ingest.counted.bytes,
    ),
    _make.gauge(
        "ingest_partitions",
        "partitions",
        "Partitions that this process reads",
        lambda ingest: len(ingest.held),
    ),
    _make.gauge(
        "ingest_lag",
        "records",
        "Records that the source has beyond those done, for each partition of this process",
        _seen(lambda seen, at: max(0, seen.end - at)),
        _PARTITION,
    ),
    _make.gauge(
        "ingest_in_progress",
        "records",
        "Records that came and are not done, for each partition of this process",
        _seen(lambda seen, at: seen.in_progress),
        _PARTITION,
    ),
    _make.histogram(
        "ingest_enqueue_seconds",
        "How long it took to put some records' pushes on their lane",
        lambda ingest: ingest.counted.enqueue_s,
    ),
    _make.histogram(
        "ingest_lane_seconds",
        "From the time that the source has of a record to when its push is on its lane; of records "
        "that come together, by the first",
        lambda ingest: ingest.counted.lane_s,
    ),
)
"""All metrics of an ingest, in the order in which they are shown."""
