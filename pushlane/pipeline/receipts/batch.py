"""Processes one batch: from a range of the log to a manifest that makes its receipts count.

All files are written under the name of the next manifest, so that a batch that is repeated replaces
what was left. The log is told last: whatever kills the process, the next one begins at the
positions of the last manifest.

If batches come too fast, or too much is waiting, only a sample of the delivered pushes is kept as
rows, so that the job does not fall behind. Rare outcomes are always kept, and counts stay exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane.core.task import now_ms
from pushlane.model.counted import CLICKED, DISPLAYED, FINISHED
from pushlane.pipeline.receipts import tables
from pushlane.pipeline.receipts.job_context import JobContext
from pushlane.pipeline.receipts.log_source import KEY_COLUMNS, MARK, QUARANTINED, read_range
from pushlane.pipeline.receipts.tables import Numbers, Seen, find_new, seen_rows
from pushlane.pipeline.store import FileCounts, SampledBatch, StoreWriter
from pushlane.pipeline.store.manifest import local_uri
from pushlane.pipeline.store.schema import QUARANTINE
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
    """Measures the time from one batch to the next, as each was read: that includes its writing."""

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


@dataclass(frozen=True)
class BatchDone:
    """The counts of a batch; `lag` is how many bodies are left, `seconds` how long it took."""

    number: int
    bodies: int
    receipts: int
    duplicates: int
    quarantined: int
    lag: int
    mode: SamplingMode
    seconds: float


class Batches:
    """Publishes batches one by one, the first from `initial` if the store has none yet."""

    def __init__(self, job: JobContext, initial: list[str]) -> None:
        self._spark, self._writer, self._log, self._settings = job
        self._initial = initial
        self._seen = Seen()
        self._pace = BatchTimer()

    @property
    def positions(self) -> list[str]:
        """Return how far the store has read the log."""
        return self._writer.state.positions or self._initial

    def read_next(self, most_bodies: int) -> BatchDone | None:
        """Publish what follows in the log; return None if nothing does."""
        started_s = time.monotonic()
        end = self._log.advance(self.positions, most_bodies)
        if end == self.positions:
            return None
        rows = read_range(self._spark, self._settings, self.positions, end)
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return self._publish(kept, read_batch(kept, now_ms()), end, started_s)
        finally:
            kept.unpersist()

    def _publish(
        self, rows: DataFrame, reading: BatchReading, end: list[str], started_s: float
    ) -> BatchDone:
        name = self._writer.begin()
        lag = self._log.lag(end)
        mode = choose_mode(self._settings, reading.receipts, self._pace.since_last_s(), lag)
        seen = partial(self._seen.of, files=self._writer.store.files("seen"))
        found = find_new(reading.dedup_keys, seen)
        self._writer.write("seen", seen_rows(found.fresh), name)
        self._writer.write("quarantine", reading.quarantined, name)
        if found.fresh:
            receipts = tables.new_receipts(rows, repeats_frame(self._spark, found.repeats))
            self._write(receipts, reading, mode, name)
        bad = reading.quarantined.num_rows
        counts = FileCounts(reading.bodies, reading.receipts, len(found.repeats), bad)
        sampled = [] if mode.is_full else [self._interval(reading, end, mode)]
        self._writer.publish("batch", name, positions=end, counts=counts, intervals=sampled)
        self._seen.add(found.whole)
        self._log.commit(end)
        seconds = time.monotonic() - started_s
        return BatchDone(
            self._writer.state.number, **asdict(counts), lag=lag, mode=mode, seconds=seconds
        )

    def _write(
        self, receipts: DataFrame, reading: BatchReading, mode: SamplingMode, name: str
    ) -> None:
        """Write the tables in parallel: each alone leaves the machine idle between its steps."""
        counted = {"minutes": tables.minutes, "latency": tables.latency}
        if reading.has_attributes:
            counted["attributes"] = tables.attributes
        if reading.has_events:
            counted["events"] = tables.events
        with ThreadPoolExecutor(len(counted) + 1, "receipts-table") as pool:
            detail = tables.detail(receipts, mode.rate, name)
            work = [pool.submit(write_detail, self._writer, detail)]
            for table, make in counted.items():
                work.append(pool.submit(self._write_table, table, make, receipts, name))
            for done in work:
                done.result()

    def _write_table(
        self, table: str, make: Callable[[DataFrame], DataFrame], receipts: DataFrame, name: str
    ) -> None:
        folder = self._writer.generation.table(table) / f"batch={name}"
        make(receipts).coalesce(1).write.mode("append").parquet(local_uri(folder))

    def _interval(self, reading: BatchReading, end: list[str], mode: SamplingMode) -> SampledBatch:
        return SampledBatch(
            batch=self._writer.state.number + 1,
            start=self.positions,
            end=end,
            min_ms=reading.min_ms,
            max_ms=reading.max_ms,
            rate=mode.rate,
            why=mode.why,
        )


def repeats_frame(spark: SparkSession, row_ids: Numbers) -> DataFrame | None:
    """Return the ids of rows to leave out as a DataFrame; None if there are none, as usual."""
    return spark.createDataFrame(pa.table({"row_id": row_ids})) if len(row_ids) else None


def write_detail(writer: StoreWriter, rows: DataFrame) -> None:
    """Write detail rows into the folders that their columns `day`, `hour` and `batch` name."""
    folder = local_uri(writer.generation.table("detail"))
    rows.write.mode("append").partitionBy("day", "hour", "batch").parquet(folder)


_BAD_COLUMNS = ("partition", "position", "bytes", "why")


@dataclass(frozen=True)
class BatchReading:
    """A summary of all that a batch has read; `dedup_keys` tell receipts apart."""

    dedup_keys: pa.Table
    quarantined: pa.Table
    bodies: int
    min_ms: int
    max_ms: int
    has_events: bool
    has_attributes: bool

    @property
    def receipts(self) -> int:
        return int(self.dedup_keys.num_rows)


def read_batch(rows: DataFrame, now_ms: int) -> BatchReading:
    """Read the batch from the log; `rows` must be persisted, so that the log is read only once.

    Only narrow columns are collected on the driver.
    """
    has = F.col("attributes").isNotNull().alias("has_attributes")
    table = rows.select(*KEY_COLUMNS, *_BAD_COLUMNS, has).toArrow()
    receipts = table.filter(pc.greater_equal(table["kind"], FINISHED))
    marks = table.filter(pc.equal(table["kind"], MARK))
    bad = table.filter(pc.equal(table["kind"], QUARANTINED)).select(_BAD_COLUMNS)
    at = pa.array([now_ms] * bad.num_rows, pa.int64())
    span = pc.min_max(receipts["responded_at_ms"]).as_py()
    kinds = set(pc.unique(receipts["kind"]).to_pylist())
    return BatchReading(
        dedup_keys=receipts.select(KEY_COLUMNS),
        quarantined=bad.add_column(0, "at_ms", at).cast(QUARANTINE),
        bodies=int(pc.sum(marks["bytes"]).as_py() or 0),
        min_ms=span["min"] or 0,
        max_ms=span["max"] or 0,
        has_events=bool(kinds & {DISPLAYED, CLICKED}),
        has_attributes=bool(pc.any(receipts["has_attributes"]).as_py()),
    )
