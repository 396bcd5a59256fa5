"""Maintains the store a piece at a time: restores sampled batches, and compacts files.

The running job does this when the log has nothing new; `maintain` does it when no job runs. To
restore a batch, it is read again between its own positions. Its file of `seen` says which of its
receipts were new then, and those become the rows. One manifest replaces the sample.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from pyspark import StorageLevel

from pushlane.core.errors import ReceiptsGone
from pushlane.core.task import now_ms
from pushlane.pipeline.receipts import tables
from pushlane.pipeline.receipts.batch import read_batch, repeats_frame, write_detail
from pushlane.pipeline.receipts.compaction.run import Compacted, compact
from pushlane.pipeline.receipts.dedup import all_seen_but, find_new, seen_in
from pushlane.pipeline.receipts.job_context import JobContext, SessionOptions, open_job_context
from pushlane.pipeline.receipts.log_source import read_range
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import FileEntry, SampledBatch
from pushlane.pipeline.store.layout import batch_of
from pushlane.settings import Settings

COMPACT_AFTER = 64
OVERDUE_AFTER = 512


class StoreMaintenance:
    """The maintenance of one store, which remembers when it last compacted."""

    def __init__(self, job: JobContext, on_note: Callable[[str], None]) -> None:
        self._job = job
        self._on_note = on_note
        self._compacted = job.writer.state.number  # the latest manifest counts as a compaction

    @property
    def is_waiting(self) -> bool:
        """Return True if sampled batches wait to be restored."""
        return bool(self._job.writer.state.pending)

    @property
    def is_overdue(self) -> bool:
        """Return True if a compaction may wait no longer, even while the job is busy."""
        return self._since_compacted >= OVERDUE_AFTER

    def work(self) -> None:
        """Do one piece of maintenance."""
        if self.is_overdue or (not self.is_waiting and self._since_compacted >= COMPACT_AFTER):
            compact(self._job.spark, self._job.writer, self._job.settings)
            self._compacted = self._job.writer.state.number
        else:
            self.fill()

    def fill(self) -> None:
        """Restore the rows of the oldest sampled batch, if there is one."""
        for interval in self._job.writer.state.pending[:1]:
            self._on_note(_fill(self._job, interval))

    @property
    def _since_compacted(self) -> int:
        return self._job.writer.state.number - self._compacted


def maintain(
    settings: Settings, session: SessionOptions, on_note: Callable[[str], None]
) -> Compacted:
    """Restore all sampled batches, then compact.

    Raises:
        StoreBusy: a job writes the store, and does the same when it has nothing else to do.
    """
    with open_job_context(settings, session) as job:
        idle = StoreMaintenance(job, on_note)
        while idle.is_waiting:
            idle.fill()
        return compact(job.spark, job.writer, settings)


def _fill(job: JobContext, interval: SampledBatch) -> str:
    """Restore the rows of a batch, or mark it as gone, and return what was done as a note."""
    writer, store, name = job.writer, job.writer.store, job.writer.begin()
    if not _is_kept(job.log, interval):
        writer.publish("backfill", name, intervals=[_now(interval, "gone")])
        return (
            f"batch {interval.batch} stays a sample: the log keeps its receipts no more "
            "(receipts_retention_s)"
        )
    rows = read_range(job.spark, job.settings, interval.start, interval.end)
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        reading = read_batch(kept, now_ms())
        folder = writer.generation.folder
        seen = files_of_batch(store.entries("seen"), interval.batch)
        fresh = seen_in(str(folder / path) for path in seen)
        found = find_new(reading.dedup_keys, all_seen_but(fresh))
        receipts = tables.new_receipts(kept, repeats_frame(job.spark, found.repeats))
        write_detail(writer, tables.detail(receipts, 1.0, name))
    finally:
        kept.unpersist()
    sample = files_of_batch(store.entries("detail"), interval.batch)
    restored = [_now(interval, "restored")]
    writer.publish("backfill", name, removed={"detail": sample}, intervals=restored)
    return f"batch {interval.batch} has all its detail rows again"


def files_of_batch(entries: list[FileEntry], batch: int) -> list[str]:
    """Return the paths that a batch has written, as long as no compaction has merged them."""
    return [each.path for each in entries if batch_of(each.path) == batch]


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
