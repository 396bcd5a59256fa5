"""Restores the full detail rows of sampled batches from the log, once there is time.

A batch is read again between its own positions. Its file of `seen` says which of its receipts were
new then, and those become the rows. One manifest replaces the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from pushlane.lanes.errors import ReceiptsGone
from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.receipts import tables
from pushlane.pipeline.receipts.batch import BatchFiles, repeats_frame
from pushlane.pipeline.receipts.batch_reading import read_batch
from pushlane.pipeline.receipts.dedup import ReplaySeen, find_new, seen_in
from pushlane.pipeline.receipts.log_source import read_range
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import FileEntry, SampledBatch, StoreWriter
from pushlane.pipeline.store.layout import batch_of


@dataclass
class Filled:
    """Batches that have all their rows again, and batches that the log no longer has."""

    restored: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


def fill_next(
    spark: SparkSession, writer: StoreWriter, log: SyncReceiptLog, settings_path: Path
) -> Filled:
    """Restore the oldest sampled batch; do nothing if there is none."""
    for interval in writer.state.pending[:1]:
        if not _is_kept(log, interval):
            writer.publish("backfill", writer.begin(), intervals=[_now(interval, "gone")])
            return Filled(gone=[interval.batch])
        rows = read_range(spark, settings_path, interval.start, interval.end)
        _fill(spark, writer, rows, interval)
        return Filled(restored=[interval.batch])
    return Filled()


def files_of_batch(entries: list[FileEntry], batch: int) -> list[str]:
    """Return the paths that a batch has written, as long as no compaction has merged them."""
    return [each.path for each in entries if batch_of(each.path) == batch]


def _fill(
    spark: SparkSession, writer: StoreWriter, rows: DataFrame, interval: SampledBatch
) -> None:
    name = writer.begin()
    store = writer.store
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        reading = read_batch(kept, now_ms())
        folder = writer.generation.folder
        seen = files_of_batch(store.entries("seen"), interval.batch)
        fresh = seen_in(str(folder / path) for path in seen)
        found, _ = find_new(reading.dedup_keys, ReplaySeen(fresh), [])
        receipts = tables.new_receipts(kept, repeats_frame(spark, found.repeats))
        BatchFiles(writer, name).detail(tables.detail(receipts, 1.0, name))
    finally:
        kept.unpersist()
    writer.publish(
        "backfill",
        name,
        removed={"detail": files_of_batch(store.entries("detail"), interval.batch)},
        intervals=[_now(interval, "restored")],
    )


def _is_kept(log: SyncReceiptLog, interval: SampledBatch) -> bool:
    """Return True if the log still has everything from the start of the batch on."""
    try:
        log.advance(interval.start, 1)
        for place, (start, end) in enumerate(zip(interval.start, interval.end, strict=True)):
            if start != end:
                next(log.read(place, start, end), None)
    except ReceiptsGone:
        return False
    return True


def _now(interval: SampledBatch, state: str) -> SampledBatch:
    return msgspec.structs.replace(interval, state=state)
