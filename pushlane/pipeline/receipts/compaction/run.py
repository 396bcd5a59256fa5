"""Runs one compaction on Spark, from its plan to its manifest.

It sums counts, unites sketches, puts events into rows, and removes what earlier ones replaced.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pushlane.core.task import now_ms
from pushlane.pipeline.receipts.compaction.plan import (
    DAY_MS,
    CompactionPlan,
    Roll,
    pending_batches,
    plan,
)
from pushlane.pipeline.receipts.dedup import seen_in, seen_rows
from pushlane.pipeline.receipts.tables import partitioned
from pushlane.pipeline.store import FileEntry, Generation, SampledBatch, Store, StoreWriter
from pushlane.pipeline.store.layout import batch_of, became_current_at_ms, local_uri
from pushlane.pipeline.store.schema import EVENTS, TABLES
from pushlane.settings import Settings

GRACE_MS = 15 * 60 * 1000


@dataclass(frozen=True)
class Compacted:
    """The numbers of files that count before and after, and of those removed from the disk."""

    before: int
    after: int
    removed: int


def compact(
    spark: SparkSession,
    writer: StoreWriter,
    settings: Settings,
    *,
    grace_ms: int = GRACE_MS,
    at_ms: int | None = None,
) -> Compacted:
    """Merge finished hours and days, roll up old counts, amend rows, and remove unneeded files."""
    now = now_ms() if at_ms is None else at_ms
    before = _count(writer.store)
    store = writer.store
    todo = plan(store, settings, now)
    name = writer.begin()
    removed: dict[str, list[str]] = defaultdict(list)
    for table, entries in todo.expired.items():
        removed[table] += _paths(entries)
    for roll in todo.rolls:
        removed[roll.source] += _paths(roll.entries)
        _roll(spark, writer, roll, name)
    if todo.seen:
        removed["seen"] += _paths(todo.seen)
        folder = store.generation.folder
        writer.write(
            "seen", seen_rows(seen_in(str(folder / path) for path in _paths(todo.seen))), name
        )
    _merge_detail(spark, writer, todo, removed, name)
    swept = _sweep(writer, now_ms() - grace_ms)
    gone = _expired_samples(store, now - settings.reports_detail_days * DAY_MS)
    if swept or gone or any(removed.values()):
        writer.publish("compact", name, removed=removed, intervals=gone, swept=swept)
    return Compacted(before, _count(writer.store), len(swept))


def _roll(spark: SparkSession, writer: StoreWriter, roll: Roll, name: str) -> None:
    """Write rolled-up rows; the folder names the unit of time where a table has several."""
    generation = writer.generation
    rows = read_table(spark, generation, roll.source, _paths(roll.entries))
    folder = generation.table(roll.target)
    if roll.source == roll.target and roll.unit_ms > 1 and roll.target != "days":
        folder = folder / f"unit={roll.unit_ms}"
    write_counts(rows, folder / f"batch={name}", roll.unit_ms)


def _merge_detail(
    spark: SparkSession,
    writer: StoreWriter,
    todo: CompactionPlan,
    removed: dict[str, list[str]],
    name: str,
) -> None:
    store = writer.store
    expired = set(removed["events"])
    waiting = [each for each in store.entries("events") if each.path not in expired]
    entries = {each.path: each for each in todo.detail}
    events = read_table(spark, store.generation, "events", _paths(waiting))
    if waiting:
        amended, left = find_amendments(spark, store, events, pending_batches(store))
        gone = set(removed["detail"])
        entries |= {each.path: each for each in amended if each.path not in gone}
        if left.num_rows < sum(each.rows for each in waiting):
            removed["events"] += _paths(waiting)
            writer.write("events", left, name)
    if entries:
        removed["detail"] += list(entries)
        rows = read_table(spark, store.generation, "detail", list(entries))
        write_detail(rows, events, store.generation.table("detail"), name)


def _expired_samples(store: Store, kept_since_ms: int) -> list[SampledBatch]:
    """Return the sampled batches that are too old to be restored, marked as gone."""
    return [
        msgspec.structs.replace(each, state="gone")
        for each in store.state.pending
        if each.max_ms < kept_since_ms
    ]


def _sweep(writer: StoreWriter, before_ms: int) -> list[str]:
    """Remove files that have not counted since then, and generations that a replay has replaced."""
    folder = writer.generation.folder
    old = [path for path, at in writer.state.retired.items() if at <= before_ms]
    for path in old:
        _unlink(folder, Path(path))
    root = writer.generation.root
    if became_current_at_ms(root) <= before_ms:
        for other in root.glob("gen-*"):
            if other != folder:
                shutil.rmtree(other)
    return old


def _unlink(folder: Path, path: Path) -> None:
    """Remove a file with Hadoop's checksum of it, and the folders that are then empty."""
    (folder / path).unlink(missing_ok=True)
    (folder / path.with_name(f".{path.name}.crc")).unlink(missing_ok=True)
    for above in (folder / each for each in list(path.parents)[:-2]):
        if above.is_dir() and not any(above.iterdir()):
            above.rmdir()


def _paths(entries: Iterable[FileEntry]) -> list[str]:
    return [each.path for each in entries]


def _count(store: Store) -> int:
    return sum(size.files for size in store.snapshot().tables.values())


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
