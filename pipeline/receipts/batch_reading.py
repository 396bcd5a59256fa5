"""Collects from a batch which rows are receipts, and which bodies are unusable.

Only narrow columns are collected on the driver.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pushlane.pipeline.receipts.columns import CLICKED, DISPLAYED, FINISHED, MARK, QUARANTINED
from pushlane.pipeline.store.schema import QUARANTINE

_COLUMNS = (
    "row_id",
    "kind",
    "task_id",
    "seq",
    "responded_at_ms",
    "partition",
    "position",
    "bytes",
    "why",
)


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
    """Read the batch from the log; `rows` must be persisted, so that the log is read only once."""
    has = F.col("attributes").isNotNull().alias("has_attributes")
    table = rows.select(*_COLUMNS, has).toArrow()
    receipts = table.filter(pc.greater_equal(table["kind"], FINISHED))
    marks = table.filter(pc.equal(table["kind"], MARK))
    bad = table.filter(pc.equal(table["kind"], QUARANTINED))
    span = pc.min_max(receipts["responded_at_ms"]).as_py()
    kinds = set(pc.unique(receipts["kind"]).to_pylist())
    return BatchReading(
        dedup_keys=receipts.select(["row_id", "task_id", "kind", "seq", "responded_at_ms"]),
        quarantined=_quarantine(bad, now_ms),
        bodies=int(pc.sum(marks["bytes"]).as_py() or 0),
        min_ms=span["min"] or 0,
        max_ms=span["max"] or 0,
        has_events=bool(kinds & {DISPLAYED, CLICKED}),
        has_attributes=bool(pc.any(receipts["has_attributes"]).as_py()),
    )


def _quarantine(bad: pa.Table, now_ms: int) -> pa.Table:
    at = pa.array([now_ms] * bad.num_rows, pa.int64())
    named = bad.select(["partition", "position", "bytes", "why"])
    return named.add_column(0, "at_ms", at).cast(QUARANTINE)
