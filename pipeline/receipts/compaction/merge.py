"""Merges files of the store on Spark: sums counts, unites sketches, puts events into rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pushlane.pipeline.receipts.tables import partitioned
from pushlane.pipeline.store import FileEntry, Generation, Store
from pushlane.pipeline.store.layout import batch_of, local_uri
from pushlane.pipeline.store.schema import EVENTS, TABLES

_MOST_ROWS = 20_000_000
_SUMS = ("n", "wait_ms_sum")


def read_table(
    spark: SparkSession, generation: Generation, table: str, paths: Sequence[str]
) -> DataFrame:
    """Read these files of a table, without the columns that their folders' names would add."""
    schema = from_arrow_schema(TABLES[table])
    if not paths:
        return spark.createDataFrame([], schema)
    uris = [local_uri(generation.folder / path) for path in paths]
    return spark.read.schema(schema).parquet(*uris)


def write_counts(rows: DataFrame, folder: Path, unit_ms: int) -> None:
    """Write one file with one row for each key and unit of time."""
    keys = [name for name in rows.columns if name not in (*_SUMS, "recipients", "minute_ms")]
    at = F.col("minute_ms")
    whole = (at - F.pmod(at, F.lit(unit_ms))).alias("minute_ms")
    summed = rows.groupBy(whole, *keys).agg(*_sums(rows.columns))
    written = summed.select(*rows.columns).coalesce(1).sortWithinPartitions("minute_ms", "task_id")
    written.write.mode("append").parquet(local_uri(folder))


def write_detail(rows: DataFrame, events: DataFrame, folder: Path, name: str) -> None:
    """Write one file for each hour, with the devices' events in the rows of their pushes."""
    amended = partitioned(with_events(rows, events).repartition(_hour()), name)
    writer = amended.write.mode("append").option("maxRecordsPerFile", _MOST_ROWS)
    writer.partitionBy("day", "hour", "batch").parquet(local_uri(folder))


def with_events(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Return detail rows with the times of their events, the first of each kind."""
    said = events.groupBy("task_id", "seq").agg(_first("displayed"), _first("clicked"))
    joined = rows.join(said, ["task_id", "seq"], "left")
    finished = F.col("outcome") != "retry"
    return joined.withColumns(
        {
            f"{event}_at_ms": F.coalesce(
                f"{event}_at_ms", F.when(finished, F.col(f"{event}_first"))
            )
            for event in ("displayed", "clicked")
        }
    ).select(*rows.columns)


def _sums(columns: Sequence[str]) -> list[Column]:
    sums = [F.sum(name).alias(name) for name in _SUMS if name in columns]
    if "recipients" in columns:
        return [*sums, F.hll_union_agg("recipients").alias("recipients")]
    return sums


def _first(event: str) -> Column:
    return F.min(F.when(F.col("outcome") == event, F.col("at_ms"))).alias(f"{event}_first")


def _hour() -> Column:
    return F.floor(F.col("responded_at_ms") / 3_600_000)


_MOST_TASKS_NAMED = 1_000


def find_amendments(
    spark: SparkSession, store: Store, events: DataFrame, held: set[int]
) -> tuple[list[FileEntry], pa.Table]:
    """Return the detail files of pushes that have events, and the events that no row was found for.

    Of the rows only task and seq are read.
    """
    entries = {
        each.path: each for each in store.entries("detail") if batch_of(each.path) not in held
    }
    rows = read_table(spark, store.generation, "detail", list(entries))
    rows = rows.filter(F.col("outcome") != "retry").filter(_of_tasks(events))
    keys = events.select("task_id", "seq").distinct()
    named_rows = rows.withColumn("file", F.input_file_name())
    found = named_rows.join(keys, ["task_id", "seq"], "left_semi")
    found = found.select("task_id", "seq", "file").persist()
    try:
        files = [row["file"] for row in found.select("file").distinct().collect()]
        left = events.join(found, ["task_id", "seq"], "left_anti").select(*EVENTS.names).toArrow()
    finally:
        found.unpersist()
    named = (unquote(file) for file in files)
    folder = f"{store.generation.folder.resolve()}/"
    paths = (file.partition(folder)[2] for file in named)
    return [entries[path] for path in paths], left.cast(EVENTS)


def _of_tasks(events: DataFrame) -> Column:
    """Return a filter that lets Parquet skip other tasks' rows, as long as the tasks are few."""
    found = events.select("task_id").distinct().limit(_MOST_TASKS_NAMED + 1).collect()
    if len(found) > _MOST_TASKS_NAMED:
        return F.lit(True)
    return F.col("task_id").isin([row["task_id"] for row in found])
