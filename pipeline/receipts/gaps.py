"""Where a job goes on when the log has dropped receipts that it had not read.

That is how the log keeps its bound with `receipts=on`. What is missing is written down in a
manifest, so that a report of that time can be told from a whole one.
"""

from __future__ import annotations

import shutil
from itertools import zip_longest
from pathlib import Path

from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import Gap, StoreState, StoreWriter


def go_on(writer: StoreWriter, log: SyncReceiptLog) -> tuple[list[str], str]:
    """The positions to begin at, and what to say of receipts that are missing; empty if none are.

    Spark's checkpoint may plan to read what is gone, so it goes first: a job without one begins
    where the manifests end.
    """
    positions = writer.state.positions
    if positions is None:
        _forget(writer.generation.checkpoint)
        return log.first(), ""
    kept = log.kept(positions)
    if kept == positions:
        return positions, ""
    gaps = _gaps(writer.state, positions, kept)
    _forget(writer.generation.checkpoint)
    writer.publish("gap", writer.begin(), positions=kept, gaps=gaps)
    return kept, _told(gaps)


def _gaps(state: StoreState, positions: list[str], kept: list[str]) -> list[Gap]:
    at_ms = now_ms()
    return [
        Gap(place, start, end, state.last_batch_at_ms, at_ms)
        for place, (start, end) in enumerate(zip_longest(positions, kept, fillvalue=""))
        if start != end
    ]


def _forget(checkpoint: Path) -> None:
    if checkpoint.exists():
        shutil.rmtree(checkpoint)


def _told(gaps: list[Gap]) -> str:
    count = len(gaps)
    partitions = "a partition" if count == 1 else f"{count} partitions"
    return (
        f"the log has dropped receipts of {partitions} that were not read yet, and goes on with "
        "its oldest; `pushlane pipeline status` shows where. Raise receipts_max_bytes, set "
        "receipts=required, or keep `pushlane pipeline run` going"
    )
