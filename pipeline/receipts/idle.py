"""What the running job does for the store when the log has nothing new, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from lanes.settings import Settings
from pipeline.receipts.backfill import fill_next
from pipeline.receipts.opened import OpenedLog
from pipeline.store import StoreWriter


@dataclass(frozen=True)
class Idle:
    spark: SparkSession
    writer: StoreWriter
    log: OpenedLog
    settings: Settings
    settings_path: Path
    on_note: Callable[[str], None]

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do."""
        return bool(self.writer.state.pending)

    def work(self) -> None:
        """One piece of it."""
        filled = fill_next(self.spark, self.writer, self.log, self.settings_path)
        for batch in filled.restored:
            self.on_note(f"batch {batch} has all its detail rows again")
        for batch in filled.gone:
            self.on_note(
                f"batch {batch} stays a sample: the log keeps its receipts no more "
                "(receipts_retention_s)"
            )
