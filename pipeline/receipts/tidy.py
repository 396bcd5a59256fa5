"""Filling up and compacting as a command of its own, when no job runs that would do it."""

from __future__ import annotations

from collections.abc import Callable

from pushlane.lanes.settings import Settings
from pushlane.pipeline.receipts.compaction.run import Compacted, compact
from pushlane.pipeline.receipts.idle_work import Idle
from pushlane.pipeline.receipts.job_context import SessionOptions, opened


def tidy(settings: Settings, session: SessionOptions, on_note: Callable[[str], None]) -> Compacted:
    """Fill up sampled batches, then compact.

    Raises:
        StoreBusy: a job writes the store, and does the same when it has nothing else to do.
    """
    with opened(settings, session) as work:
        idle = Idle(*work, on_note)
        while idle.is_waiting:
            idle.fill()
        return compact(work.spark, work.writer, settings)
