"""Which detail files hold the pushes that devices spoke of, and which events wait for theirs."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane.pipeline.receipts.compaction.merge import read_table
from pushlane.pipeline.store import FileEntry, Store
from pushlane.pipeline.store.layout import batch_of
from pushlane.pipeline.store.schema import EVENTS

_MOST_TASKS_NAMED = 1_000


@dataclass(frozen=True)
class Amendments:
    """Files to write again, and the events that no row was found for."""

    entries: list[FileEntry]
    left: pa.Table


def find_amendments(
    spark: SparkSession, store: Store, events: DataFrame, held: set[int]
) -> Amendments:
    """Looks at no more of the detail rows than their task and seq."""
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
    return Amendments([entries[path] for path in paths], left.cast(EVENTS))


def _of_tasks(events: DataFrame) -> Column:
    """Lets Parquet skip what is of other tasks, as long as their names are few."""
    found = events.select("task_id").distinct().limit(_MOST_TASKS_NAMED + 1).collect()
    if len(found) > _MOST_TASKS_NAMED:
        return F.lit(True)
    return F.col("task_id").isin([row["task_id"] for row in found])
