"""Runs one compaction, from its plan to its manifest, and removes what earlier ones replaced."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from pushlane.lanes.settings import Settings
from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.receipts.compaction.merge import (
    find_amendments,
    read_table,
    write_counts,
    write_detail,
)
from pushlane.pipeline.receipts.compaction.plan import (
    DAY_MS,
    CompactionPlan,
    Roll,
    pending_batches,
    plan,
)
from pushlane.pipeline.receipts.dedup import seen_in, seen_rows
from pushlane.pipeline.store import FileEntry, SampledBatch, Store, StoreWriter
from pushlane.pipeline.store.layout import became_current_at_ms

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
