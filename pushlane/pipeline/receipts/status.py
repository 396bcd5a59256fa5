"""Reports how far the log was read, what is left, and what the store holds.

It works beside a running job, and needs no Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import Snapshot, open_store
from pushlane.pipeline.store.writing import is_locked
from pushlane.settings import Settings


@dataclass(frozen=True)
class Status:
    """The state of the pipeline; `lag` is how many bodies of the log no batch has read.

    `is_missing` says that the log has dropped what comes next, which the next run notes as a gap.
    """

    snapshot: Snapshot
    lag: int
    is_running: bool
    is_missing: bool

    @property
    def mode(self) -> str:
        """Return `sampled` if the last batch kept a sample of its detail rows, else `full`."""
        batches = {each.batch for each in self.snapshot.intervals}
        return "sampled" if self.snapshot.last_batch in batches else "full"


def status(settings: Settings) -> Status:
    """Return the state of the pipeline that the settings name.

    Raises what `open_store` does, and Unreachable if the log does not answer.
    """
    root = settings.reports_root
    snapshot = open_store(root).snapshot()
    with SyncReceiptLog(settings) as log:
        positions = snapshot.positions or log.first()
        is_missing = log.kept(positions) != positions
        return Status(snapshot, log.lag(positions), is_locked(root), is_missing)
