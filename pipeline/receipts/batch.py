"""Processes one batch: from rows that Spark has read to a manifest that makes them count.

All files are written under the name of the next manifest, so that a batch that is repeated replaces
what was left. The log is told last. Whatever kills the process, the next one begins at the
positions of the last manifest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from pushlane.lanes.settings import Settings
from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.receipts import tables
from pushlane.pipeline.receipts.batch_reading import BatchReading, read_batch
from pushlane.pipeline.receipts.dedup import Numbers, Seen, find_new, seen_rows
from pushlane.pipeline.receipts.sample_rate import BatchTimer, SamplingMode, choose_mode
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import FileCounts, SampledBatch, StoreWriter
from pushlane.pipeline.store.layout import local_uri


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
    """Publishes batches one by one; not for several threads at once."""

    def __init__(
        self,
        spark: SparkSession,
        writer: StoreWriter,
        log: SyncReceiptLog,
        settings: Settings,
        initial: list[str],
    ) -> None:
        self._spark = spark
        self._writer = writer
        self._log = log
        self._settings = settings
        self._initial = initial
        self._seen = Seen()
        self._pace = BatchTimer()

    @property
    def positions(self) -> list[str]:
        """Return how far the store has read the log."""
        return self._writer.state.positions or self._initial

    def process(self, rows: DataFrame) -> BatchDone | None:
        """Publish the rows that were read; return None if the store had them already.

        Raises:
            PipelineFailed: it does not begin where the store ends.
        """
        started_s = time.monotonic()
        kept = rows.coalesce(self._parallelism).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            reading = read_batch(kept, now_ms())
            if reading.ends(self.positions):
                self._log.commit(self.positions)
                return None
            if not reading.starts(self.positions):
                raise PipelineFailed(
                    "Spark's checkpoint goes on elsewhere than the store: run the command again, "
                    "which then begins at the store's last manifest"
                )
            return self._publish(kept, reading, started_s)
        finally:
            kept.unpersist()

    def _publish(self, rows: DataFrame, reading: BatchReading, started_s: float) -> BatchDone:
        name = self._writer.begin()
        end = reading.after(self.positions)
        lag = self._log.lag(end)
        mode = choose_mode(self._settings, reading.receipts, self._pace.since_last_s(), lag)
        found, whole = find_new(reading.dedup_keys, self._seen, self._writer.store.files("seen"))
        self._writer.write("seen", seen_rows(found.fresh), name)
        self._writer.write("quarantine", reading.quarantined, name)
        if found.fresh:
            receipts = tables.new_receipts(rows, repeats_frame(self._spark, found.repeats))
            self._write(receipts, reading, mode, name)
        counts = FileCounts(
            reading.bodies, reading.receipts, len(found.repeats), reading.quarantined.num_rows
        )
        self._writer.publish(
            "batch",
            name,
            positions=end,
            counts=counts,
            intervals=[] if mode.is_full else [self._interval(reading, end, mode)],
        )
        self._seen.add(whole)
        self._log.commit(end)
        return BatchDone(
            self._writer.state.number,
            counts.bodies,
            counts.receipts,
            counts.duplicates,
            counts.quarantined,
            lag,
            mode,
            time.monotonic() - started_s,
        )

    def _write(
        self, receipts: DataFrame, reading: BatchReading, mode: SamplingMode, name: str
    ) -> None:
        """Write the tables in parallel: each alone leaves the machine idle between its steps."""
        write = BatchFiles(self._writer, name)
        work: list[Callable[[], None]] = [
            lambda: write.detail(tables.detail(receipts, mode.rate, name)),
            lambda: write.table("minutes", tables.minutes(receipts)),
            lambda: write.table("latency", tables.latency(receipts)),
        ]
        if reading.has_attributes:
            work.append(lambda: write.table("attributes", tables.attributes(receipts)))
        if reading.has_events:
            work.append(lambda: write.table("events", tables.events(receipts)))
        with ThreadPoolExecutor(len(work), "receipts-table") as pool:
            for done in [pool.submit(each) for each in work]:
                done.result()

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

    @property
    def _parallelism(self) -> int:
        return self._spark.sparkContext.defaultParallelism


def repeats_frame(spark: SparkSession, row_ids: Numbers) -> DataFrame | None:
    """Return the ids of rows to leave out as a DataFrame; None if there are none, as usual."""
    if not len(row_ids):
        return None
    return spark.createDataFrame(pa.table({"row_id": row_ids}))


class BatchFiles:
    """Writes Spark's tables under the name of a batch, in one or two files each."""

    def __init__(self, writer: StoreWriter, name: str) -> None:
        self._generation = writer.generation
        self._name = name

    def detail(self, rows: DataFrame) -> None:
        writer = rows.write.mode("append").partitionBy("day", "hour", "batch")
        writer.parquet(self._path(self._generation.table("detail")))

    def table(self, table: str, rows: DataFrame) -> None:
        folder = self._generation.table(table) / f"batch={self._name}"
        rows.coalesce(1).write.mode("append").parquet(self._path(folder))

    def _path(self, folder: Path) -> str:
        return local_uri(folder)
