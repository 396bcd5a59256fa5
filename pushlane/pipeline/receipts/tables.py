"""The tables of a batch as Spark expressions over its rows (`pipeline.receipts.columns.ROWS`).

Counts and latencies are additive: rows of several batches, or hours, are summed. None of it runs
Python code in workers.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pushlane.pipeline.receipts.columns import CLICKED, DISPLAYED, FINISHED, RETRIED
from pushlane.pipeline.store.schema import (
    ATTRIBUTES,
    DETAIL,
    EVENTS,
    LATENCY,
    LATENCY_BASE,
    MINUTES,
    SKETCH_LG_K,
    STAGES,
)

MINUTE_MS = 60_000
_SAMPLE_STEPS = 1_000_000


def new_receipts(rows: DataFrame, repeats: DataFrame | None) -> DataFrame:
    """Return the receipts among the rows, without the repeats."""
    receipts = rows.filter(F.col("kind") >= FINISHED)
    if repeats is None:
        return receipts
    return receipts.join(F.broadcast(repeats), "row_id", "left_anti")


def detail(receipts: DataFrame, rate: float, batch: str) -> DataFrame:
    """Return a row for each attempt; below a rate of 1 only a sample of the delivered ones.

    The sample depends on the push alone, so that it is the same in each run. Everything rarer than
    a delivery is always in it.
    """
    dispatched = receipts.filter((F.col("kind") == FINISHED) | (F.col("kind") >= RETRIED))
    weight = F.lit(1.0)
    if rate < 1.0:
        is_sampled = F.col("outcome") == "delivered"
        chosen = F.pmod(F.xxhash64("task_id", "seq"), F.lit(_SAMPLE_STEPS))
        dispatched = dispatched.filter(~is_sampled | (chosen < int(rate * _SAMPLE_STEPS)))
        weight = F.when(is_sampled, F.lit(1.0 / rate)).otherwise(F.lit(1.0))
    absent = F.lit(None).cast("bigint")
    whole = dispatched.withColumns(
        {"displayed_at_ms": absent, "clicked_at_ms": absent, "sample_weight": weight}
    )
    return partitioned(whole, batch)


def partitioned(rows: DataFrame, batch: str) -> DataFrame:
    """Return detail rows with the columns that name their folders, in the order of a file."""
    at = F.timestamp_millis("responded_at_ms")
    placed = rows.select(
        *DETAIL.names,
        F.date_format(at, "yyyy-MM-dd").alias("day"),
        F.date_format(at, "HH").alias("hour"),
        F.lit(batch).alias("batch"),
    )
    return placed.sortWithinPartitions("day", "hour", "task_id", "seq")


def events(receipts: DataFrame) -> DataFrame:
    """Return what devices reported later: pushes displayed and clicked."""
    said = receipts.filter(F.col("kind").isin(DISPLAYED, CLICKED))
    return said.withColumnRenamed("responded_at_ms", "at_ms").select(*EVENTS.names)


def minutes(receipts: DataFrame) -> DataFrame:
    """Count receipts, waits and distinct recipients by minute and every label that reports use."""
    wait, _ = _elapsed("wait")
    return receipts.groupBy(_minute_ms(), *MINUTES.names[1:-3]).agg(
        F.count(F.lit(1)).alias("n"),
        F.coalesce(F.sum(wait), F.lit(0)).alias("wait_ms_sum"),
        F.hll_sketch_agg("recipient_hash", SKETCH_LG_K).alias("recipients"),
    )


def latency(receipts: DataFrame) -> DataFrame:
    """Count receipts by latency, in buckets that grow by a tenth."""
    dispatched = receipts.filter(~F.col("kind").isin(DISPLAYED, CLICKED))
    stages = F.array(*(_stage(name) for name in STAGES))
    rows = dispatched.select(
        _minute_ms(), *LATENCY.names[1:6], F.explode(F.array_compact(stages)).alias("of")
    ).select("*", "of.stage", "of.bucket")
    return rows.groupBy(*LATENCY.names[:-1]).agg(F.count(F.lit(1)).alias("n"))


def attributes(receipts: DataFrame) -> DataFrame:
    """Count receipts by the value of each attribute."""
    rows = receipts.select(
        _minute_ms(),
        *ATTRIBUTES.names[1:6],
        F.explode("attributes").alias("attribute", "value"),
    )
    return rows.groupBy(*ATTRIBUTES.names[:-1]).agg(F.count(F.lit(1)).alias("n"))


def _minute_ms() -> Column:
    at = F.col("responded_at_ms")
    return (at - F.pmod(at, F.lit(MINUTE_MS))).alias("minute_ms")


def _elapsed(stage: str) -> tuple[Column, Column]:
    """Return a stage's milliseconds, null for a push that was not in it, and if it was."""
    start, end = (F.col(name) for name in STAGES[stage])
    was = (start > 0) & (end > 0)
    return F.when(was, F.greatest(end - start, F.lit(0))), was


def _stage(name: str) -> Column:
    elapsed, was = _elapsed(name)
    logarithm = F.log(F.greatest(elapsed, F.lit(1))) / F.log(F.lit(LATENCY_BASE))
    bucket = F.when(elapsed < 1, F.lit(-1)).otherwise(F.floor(logarithm)).cast("int")
    return F.when(was, F.struct(F.lit(name).alias("stage"), bucket.alias("bucket")))
