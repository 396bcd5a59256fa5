"""Maintains the store a piece at a time: restores sampled batches, and compacts files.

The running job does this when the log has nothing new; `maintain` does it when no job runs.

A compaction is planned from the manifest alone. It merges finished time only, an hour of detail
rows or a day of counts, puts events into rows, and removes what earlier ones replaced. Batches
whose sampled rows are still to be restored are left alone.

To restore a batch, it is read again between its own positions. Its file of `seen` says which of its
receipts were new then, and those become the rows. One manifest replaces the sample.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pushlane.core.task import now_ms
from pushlane.pipeline.receipts import tables
from pushlane.pipeline.receipts.batch import read_batch, repeats_frame, write_detail
from pushlane.pipeline.receipts.job_context import JobContext, SessionOptions, open_job_context
from pushlane.pipeline.receipts.log_source import read_range
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import FileEntry, Generation, SampledBatch, Store, StoreWriter
from pushlane.pipeline.store.manifest import batch_of, became_current_at_ms, local_uri
from pushlane.pipeline.store.schema import EVENTS, TABLES
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LARGEST_SEEN_BYTES = 32 * 1024 * 1024
_FEW = 8


@dataclass(frozen=True)
class Roll:
    """Files whose rows are summed up by `unit_ms` into another table, or the same one."""

    source: str
    target: str
    unit_ms: int
    entries: list[FileEntry]


@dataclass(frozen=True)
class CompactionPlan:
    """The files to merge or roll up by table, and those whose rows are too old to keep."""

    detail: list[FileEntry] = field(default_factory=list)
    rolls: list[Roll] = field(default_factory=list)
    seen: list[FileEntry] = field(default_factory=list)
    expired: dict[str, list[FileEntry]] = field(default_factory=dict)


def plan(store: Store, settings: Settings, now_ms: int) -> CompactionPlan:
    """Plan the compaction of a store as it is now."""
    kept_since_ms = now_ms - settings.reports_detail_days * DAY_MS
    expired = {
        table: _older(store.entries(table), kept_since_ms)[0]
        for table in ("detail", "events", "quarantine")
    }
    held = {each.batch for each in store.state.pending if each.max_ms >= kept_since_ms}
    finished, _ = _older(store.entries("detail"), now_ms // HOUR_MS * HOUR_MS)
    detail = [e for e in finished if e.max_ms >= kept_since_ms and batch_of(e.path) not in held]
    small = [
        each
        for each in store.entries("seen")
        if each.bytes < LARGEST_SEEN_BYTES and batch_of(each.path) not in held
    ]
    return CompactionPlan(
        detail=_crowded(detail, HOUR_MS),
        rolls=[roll for roll in _rolls(store, settings, now_ms) if roll.entries],
        seen=small if len(small) > 1 else [],
        expired=expired,
    )


def _rolls(store: Store, settings: Settings, now_ms: int) -> Iterator[Roll]:
    """Roll old minutes into hours and old hours into days, and merge the files of other days.

    Latencies and attributes have one table for minutes, hours and days.
    """
    this_hour_ms = now_ms // HOUR_MS * HOUR_MS
    to_hours_ms = (now_ms - settings.reports_minutes_days * DAY_MS) // DAY_MS * DAY_MS
    to_days_ms = (now_ms - settings.reports_hours_days * DAY_MS) // DAY_MS * DAY_MS
    finished, _ = _older(store.entries("minutes"), this_hour_ms)
    old, recent = _older(finished, to_hours_ms)
    yield Roll("minutes", "hours", HOUR_MS, old)
    yield Roll("minutes", "minutes", 1, _crowded(recent))
    old, recent = _older(store.entries("hours"), to_days_ms)
    yield Roll("hours", "days", DAY_MS, old)
    yield Roll("hours", "hours", 1, _crowded(recent))
    yield Roll("days", "days", 1, _if_many(store.entries("days")))
    for table in ("latency", "attributes"):
        finished, _ = _older(store.entries(table), this_hour_ms)
        old, recent = _older([e for e in finished if "/unit=" not in e.path], to_hours_ms)
        yield Roll(table, table, HOUR_MS, old)
        yield Roll(table, table, 1, _crowded(recent))
        old, recent = _older([e for e in finished if f"/unit={HOUR_MS}/" in e.path], to_days_ms)
        yield Roll(table, table, DAY_MS, old)
        yield Roll(table, table, HOUR_MS, _if_many(recent))
        daily = [each for each in finished if f"/unit={DAY_MS}/" in each.path]
        yield Roll(table, table, DAY_MS, _if_many(daily))


def _older(entries: list[FileEntry], before_ms: int) -> tuple[list[FileEntry], list[FileEntry]]:
    """Return the files whose rows are all of before this time, and the others."""
    old = [each for each in entries if each.max_ms < before_ms]
    return old, [each for each in entries if each.max_ms >= before_ms]


def _crowded(entries: Iterable[FileEntry], unit_ms: int = DAY_MS) -> list[FileEntry]:
    """Return the files that share their hour, or day, with another file."""
    by_unit: dict[int, list[FileEntry]] = defaultdict(list)
    for each in entries:
        by_unit[each.min_ms // unit_ms].append(each)
    return [each for files in by_unit.values() if len(files) > 1 for each in files]


def _if_many(entries: list[FileEntry]) -> list[FileEntry]:
    return entries if len(entries) > _FEW else []


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
        seen = tables.seen_in(store.generation.paths(_paths(todo.seen)))
        writer.write("seen", tables.seen_rows(seen), name)
    _merge_detail(spark, writer, todo, removed, name)
    swept = _sweep(writer, now_ms() - grace_ms)
    kept_since_ms = now - settings.reports_detail_days * DAY_MS
    gone = [_now(each, "gone") for each in store.state.pending if each.max_ms < kept_since_ms]
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
        amended, left = find_amendments(spark, store, events)
        gone = set(removed["detail"])
        entries |= {each.path: each for each in amended if each.path not in gone}
        if left.num_rows < sum(each.rows for each in waiting):
            removed["events"] += _paths(waiting)
            writer.write("events", left, name)
    if entries:
        removed["detail"] += list(entries)
        rows = read_table(spark, store.generation, "detail", list(entries))
        write_compacted_detail(rows, events, store.generation.table("detail"), name)


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
    sums = [F.sum(name).alias(name) for name in _SUMS if name in rows.columns]
    if "recipients" in rows.columns:
        sums.append(F.hll_union_agg("recipients").alias("recipients"))
    summed = rows.groupBy(whole, *keys).agg(*sums)
    written = summed.select(*rows.columns).coalesce(1).sortWithinPartitions("minute_ms", "task_id")
    written.write.mode("append").parquet(local_uri(folder))


def write_compacted_detail(rows: DataFrame, events: DataFrame, folder: Path, name: str) -> None:
    """Write one file for each hour, with the devices' events in the rows of their pushes."""
    hour = F.floor(F.col("responded_at_ms") / HOUR_MS)
    amended = tables.partitioned(with_events(rows, events).repartition(hour), name)
    writer = amended.write.mode("append").option("maxRecordsPerFile", _MOST_ROWS)
    writer.partitionBy("day", "hour", "batch").parquet(local_uri(folder))


def with_events(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Return detail rows with the times of their events, the first of each kind."""
    said = events.groupBy("task_id", "seq").agg(_first("displayed"), _first("clicked"))
    joined = rows.join(said, ["task_id", "seq"], "left")
    for event in ("displayed", "clicked"):
        first = F.when(F.col("outcome") != "retry", F.col(f"{event}_first"))
        joined = joined.withColumn(f"{event}_at_ms", F.coalesce(f"{event}_at_ms", first))
    return joined.select(*rows.columns)


def _first(event: str) -> Column:
    return F.min(F.when(F.col("outcome") == event, F.col("at_ms"))).alias(f"{event}_first")


_MOST_TASKS_NAMED = 1_000


def find_amendments(
    spark: SparkSession, store: Store, events: DataFrame
) -> tuple[list[FileEntry], pa.Table]:
    """Return the detail files of pushes that have events, and the events that no row was found for.

    Of the rows only task and seq are read.
    """
    held = {each.batch for each in store.state.pending}  # as these are still to be restored
    kept = (each for each in store.entries("detail") if batch_of(each.path) not in held)
    entries = {each.path: each for each in kept}
    rows = read_table(spark, store.generation, "detail", list(entries))
    rows = rows.filter(F.col("outcome") != "retry").filter(_of_tasks(events))
    keys = events.select("task_id", "seq").distinct()
    named = rows.withColumn("file", F.input_file_name())
    found = named.join(keys, ["task_id", "seq"], "left_semi").select("task_id", "seq", "file")
    found = found.persist()
    try:
        files = [row["file"] for row in found.select("file").distinct().collect()]
        left = events.join(found, ["task_id", "seq"], "left_anti").select(*EVENTS.names).toArrow()
    finally:
        found.unpersist()
    folder = f"{store.generation.folder.resolve()}/"
    paths = (unquote(file).partition(folder)[2] for file in files)
    return [entries[path] for path in paths], left.cast(EVENTS)


def _of_tasks(events: DataFrame) -> Column:
    """Return a filter that lets Parquet skip other tasks' rows, as long as the tasks are few."""
    found = events.select("task_id").distinct().limit(_MOST_TASKS_NAMED + 1).collect()
    if len(found) > _MOST_TASKS_NAMED:
        return F.lit(True)
    return F.col("task_id").isin([row["task_id"] for row in found])


COMPACT_AFTER = 64
OVERDUE_AFTER = 512


class StoreMaintenance:
    """The maintenance of one store, which remembers when it last compacted."""

    def __init__(self, job: JobContext, on_note: Callable[[str], None]) -> None:
        self._job = job
        self._on_note = on_note
        self._compacted = job.writer.state.number  # the latest manifest counts as a compaction

    @property
    def is_waiting(self) -> bool:
        """Return True if sampled batches wait to be restored."""
        return bool(self._job.writer.state.pending)

    @property
    def is_overdue(self) -> bool:
        """Return True if a compaction may wait no longer, even while the job is busy."""
        return self._since_compacted >= OVERDUE_AFTER

    def work(self) -> None:
        """Do one piece of maintenance."""
        if self.is_overdue or (not self.is_waiting and self._since_compacted >= COMPACT_AFTER):
            compact(self._job.spark, self._job.writer, self._job.settings)
            self._compacted = self._job.writer.state.number
        else:
            self.fill()

    def fill(self) -> None:
        """Restore the rows of the oldest sampled batch, if there is one."""
        for interval in self._job.writer.state.pending[:1]:
            self._on_note(_fill(self._job, interval))

    @property
    def _since_compacted(self) -> int:
        return self._job.writer.state.number - self._compacted


def maintain(
    settings: Settings, session: SessionOptions, on_note: Callable[[str], None]
) -> Compacted:
    """Restore all sampled batches, then compact.

    Raises StoreBusy if a job writes the store, which does the same when it has nothing else to do.
    """
    with open_job_context(settings, session) as job:
        idle = StoreMaintenance(job, on_note)
        while idle.is_waiting:
            idle.fill()
        return compact(job.spark, job.writer, settings)


def _fill(job: JobContext, interval: SampledBatch) -> str:
    """Restore the rows of a batch, or mark it as gone, and return what was done as a note."""
    writer, store, name = job.writer, job.writer.store, job.writer.begin()
    if not _is_kept(job.log, interval):
        writer.publish("backfill", name, intervals=[_now(interval, "gone")])
        return (
            f"batch {interval.batch} stays a sample: the log keeps its receipts no more "
            "(receipts_retention_s)"
        )
    rows = read_range(job.spark, job.settings, interval.start, interval.end)
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        reading = read_batch(kept, now_ms())
        seen = files_of_batch(store.entries("seen"), interval.batch)
        fresh = tables.seen_in(writer.generation.paths(seen))
        found = tables.find_new(reading.dedup_keys, tables.all_seen_but(fresh))
        receipts = tables.new_receipts(kept, repeats_frame(job.spark, found.repeats))
        write_detail(writer, tables.detail(receipts, 1.0, name))
    finally:
        kept.unpersist()
    sample = files_of_batch(store.entries("detail"), interval.batch)
    restored = [_now(interval, "restored")]
    writer.publish("backfill", name, removed={"detail": sample}, intervals=restored)
    return f"batch {interval.batch} has all its detail rows again"


def files_of_batch(entries: list[FileEntry], batch: int) -> list[str]:
    """Return the paths that a batch has written, as long as no compaction has merged them."""
    return [each.path for each in entries if batch_of(each.path) == batch]


def _is_kept(log: SyncReceiptLog, interval: SampledBatch) -> bool:
    """Return True if the log still has everything from the start of the batch on."""
    try:
        log.advance(interval.start, 1)
        for place, (start, end) in enumerate(zip(interval.start, interval.end, strict=True)):
            if start != end:
                next(log.read(place, start, end), None)
    except ReceiptsGone:
        return False
    return True


def _now(interval: SampledBatch, state: str) -> SampledBatch:
    return msgspec.structs.replace(interval, state=state)
