"""Maintains the store a piece at a time: restores sampled batches, and compacts files.

The running job does this when the log has nothing new; `maintain` does it when no job
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from pushlane.lanes.settings import Settings
from pushlane.pipeline.receipts.backfill import fill_next
from pushlane.pipeline.receipts.compaction.run import Compacted, compact
from pushlane.pipeline.receipts.job_context import SessionOptions, open_job_context
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import StoreWriter

COMPACT_AFTER = 64
OVERDUE_AFTER = 512


@dataclass
class StoreMaintenance:
    """The maintenance of one store, which remembers when it last compacted."""

    spark: SparkSession
    writer: StoreWriter
    log: SyncReceiptLog
    settings: Settings
    settings_path: Path
    on_note: Callable[[str], None]
    _compacted: int = field(init=False)
    """The manifest of the last compaction; at the start the latest manifest counts as one."""

    def __post_init__(self) -> None:
        self._compacted = self.writer.state.number

    @property
    def is_waiting(self) -> bool:
        """Return True if sampled batches wait to be restored."""
        return bool(self.writer.state.pending)

    @property
    def is_overdue(self) -> bool:
        """Return True if a compaction may wait no longer, even while the job is busy."""
        return self._since_compacted >= OVERDUE_AFTER

    def work(self) -> None:
        """Do one piece of maintenance."""
        if self.is_overdue or (not self.is_waiting and self._since_compacted >= COMPACT_AFTER):
            compact(self.spark, self.writer, self.settings)
            self._compacted = self.writer.state.number
        else:
            self.fill()

    def fill(self) -> None:
        """Restore the rows of one sampled batch, if there is one."""
        filled = fill_next(self.spark, self.writer, self.log, self.settings_path)
        for batch in filled.restored:
            self.on_note(f"batch {batch} has all its detail rows again")
        for batch in filled.gone:
            self.on_note(
                f"batch {batch} stays a sample: the log keeps its receipts no more "
                "(receipts_retention_s)"
            )

    @property
    def _since_compacted(self) -> int:
        return self.writer.state.number - self._compacted


def maintain(
    settings: Settings, session: SessionOptions, on_note: Callable[[str], None]
) -> Compacted:
    """Restore all sampled batches, then compact.

    Raises:
        StoreBusy: a job writes the store, and does the same when it has nothing else to do.
    """
    with open_job_context(settings, session) as work:
        idle = StoreMaintenance(*work, on_note)
        while idle.is_waiting:
            idle.fill()
        return compact(work.spark, work.writer, settings)
