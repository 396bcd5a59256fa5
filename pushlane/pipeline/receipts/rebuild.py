"""Rebuilds the store from a time on in a new generation, and swaps that in as a whole.

What is older is copied from the old generation; what was counted since is forgotten and read again
from the log. If it is interrupted, the old generation stays the one that counts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pushlane.core.task import now_ms
from pushlane.pipeline.receipts import tables
from pushlane.pipeline.receipts.batch import BatchDone, Batches
from pushlane.pipeline.receipts.job_context import JobContext, SessionOptions, open_log_session
from pushlane.pipeline.receipts.log_source import KEY_COLUMNS, dedup_keys_of, read_range
from pushlane.pipeline.receipts.maintenance import DAY_MS, HOUR_MS
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.receipts.tables import Bits, DedupGroup
from pushlane.pipeline.store import (
    CorruptStore,
    FileCounts,
    FileEntry,
    Generation,
    Store,
    StoreState,
    StoreWriter,
    manifest,
    open_store,
)
from pushlane.pipeline.store.manifest import Files, batch_of, read_parquet
from pushlane.pipeline.store.reading import ADDITIVE
from pushlane.pipeline.store.schema import TIME_COLUMN
from pushlane.pipeline.store.writing import store_lock, written_file
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone
from pushlane.util.files import sync_below

_OF_ROWS = ("task_id", "seq", "outcome", "attempt", "displayed_at_ms", "clicked_at_ms")
_OF_EVENTS = ("task_id", "seq", "outcome")
GroupBits = dict[DedupGroup, Bits]
OnNote = Callable[[str], None]


@dataclass(frozen=True)
class ReplayOptions:
    """Options of a replay; `since_ms` is rounded down to the hour, or to the day if it is old."""

    since_ms: int
    session: SessionOptions
    most_bodies: int
    on_batch: Callable[[BatchDone], None]
    on_note: OnNote


@dataclass(frozen=True)
class Replayed:
    """The generation that counts now, from when on it is new, and how many receipts were read."""

    generation: str
    since_ms: int
    receipts: int


def replay(settings: Settings, options: ReplayOptions) -> Replayed:
    """Build a new generation, check that it counts no less, and make it the current one.

    Raises StoreBusy if a job writes the store, ReceiptsGone if the log does not reach back so far.
    """
    root = settings.reports_root
    with store_lock(root), open_log_session(settings, options.session) as (spark, log):
        old = _current_store(root, options.on_note)
        since_ms = _rounded(options.since_ms, settings)
        # From an hour before, to know what was reported before already.
        start = log.since(max(0, since_ms - HOUR_MS)) if old else log.first()
        generation = manifest.next_generation(root)
        first = StoreState(positions=start, at_ms=now_ms())
        if old is not None:
            reread = _keys_to_reread(spark, log, settings, start, since_ms, options.most_bodies)
            first = _first_state(old, generation, since_ms, start, reread, options.on_note)
        manifest.write_checkpoint(generation.manifests, first)
        writer = StoreWriter(generation)
        batches = Batches(JobContext(spark, writer, log, settings), start)
        receipts = 0
        while done := batches.read_next(options.most_bodies):
            receipts += done.receipts
            options.on_batch(done)
        _require_whole(old, writer.store, options.on_note)
        files = writer.state.files.values()
        sync_below(generation.folder, [path for entries in files for path in entries])
        manifest.make_current(generation)
        return Replayed(generation.name, since_ms, receipts)


def _first_state(
    old: Store,
    generation: Generation,
    since_ms: int,
    start: list[str],
    reread: GroupBits,
    on_note: OnNote,
) -> StoreState:
    """Return the state that the new generation begins with: all that is older than `since_ms`.

    Its number follows the old one, so that its batches write to no folder that was copied.
    """
    files = {table: _carried(old, generation, table, since_ms) for table in TIME_COLUMN}
    number = old.state.number + 1
    counted = _counted_before(generation, files, {group.task_id for group in reread}, on_note)
    files["seen"] = _carried_seen(old, generation, _without(reread, counted), number)
    kept = {batch_of(path) for entries in files.values() for path in entries}
    counted_in = [path for table in ADDITIVE for path in files[table]]
    return StoreState(
        number=number,
        at_ms=now_ms(),
        positions=start,
        files=files,
        counts=FileCounts(receipts=_counted(generation.paths(counted_in))),
        gaps=old.state.gaps,
        intervals={batch: each for batch, each in old.state.intervals.items() if batch in kept},
    )


def _keys_to_reread(
    spark: SparkSession,
    log: SyncReceiptLog,
    settings: Settings,
    start: list[str],
    since_ms: int,
    most_bodies: int,
) -> GroupBits:
    """Return the keys that the log has of this time or later, and of no earlier one.

    Times decide, because the order of the log's partitions is not that in which they were counted.
    """
    older: GroupBits = {}
    newer: GroupBits = {}
    while (end := log.advance(start, most_bodies)) != start:
        rows = read_range(spark, settings, start, end)
        table = rows.filter("kind >= 0").select(*KEY_COLUMNS).toArrow()
        is_new = pc.greater_equal(table["responded_at_ms"], since_ms)
        _add_keys(newer, table.filter(is_new))
        _add_keys(older, table.filter(pc.invert(is_new)))
        start = end
    return _without(newer, older)


def _without(groups: GroupBits, gone: GroupBits) -> GroupBits:
    return {g: tables.without(bits, gone.get(g, tables.NO_BITS)) for g, bits in groups.items()}


def _carried_seen(
    old: Store, generation: Generation, again: GroupBits, number: int
) -> dict[str, FileEntry]:
    """Copy the seen bits, without those of receipts that will be read again."""
    left = _without(tables.seen_in(old.files("seen")), again)
    rows = tables.seen_rows({group: bits for group, bits in left.items() if bits.any()})
    if not rows.num_rows:
        return {}
    folder = generation.table("seen") / f"batch={manifest.new_batch_name(number)}"
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "part-0.parquet", compression="zstd")
    entry = written_file(generation, "seen", folder / "part-0.parquet")
    return {entry.path: entry}


def _counted_before(
    generation: Generation, files: Files, tasks: set[str], on_note: OnNote
) -> GroupBits:
    """Return the keys of these tasks in copied detail rows, whose counts were copied too.

    They count however long ago they were reported, and whatever the log still has. Of rows that are
    a sample, only the sample is known.
    """
    found: GroupBits = {}
    wanted = pc.field("task_id").isin(pa.array(sorted(tasks), pa.string()))
    for table, columns in (("detail", _OF_ROWS), ("events", _OF_EVENTS)):
        for path in files[table]:
            try:
                rows = read_parquet(generation.folder / path, columns, wanted)
            except CorruptStore as error:
                on_note(f"{error} - so what it holds may be counted again")
                continue
            for said in dedup_keys_of(rows):
                _add_keys(found, said)
    return found


def _add_keys(groups: GroupBits, rows: pa.Table) -> None:
    tables.add_bits(groups, tables.find_new(rows, tables.nothing_seen).fresh.items())


def _current_store(root: Path, on_note: OnNote) -> Store | None:
    """Return the current store; None if there is none, or if it cannot be read."""
    if manifest.current(root) is None:
        return None
    try:
        return open_store(root)
    except CorruptStore as error:
        on_note(f"{error}: everything is rebuilt from what the log has")
        return None


def _rounded(since_ms: int, settings: Settings) -> int:
    is_rolled_up = since_ms < now_ms() - (settings.reports_minutes_days - 1) * DAY_MS
    unit_ms = DAY_MS if is_rolled_up else HOUR_MS
    return since_ms // unit_ms * unit_ms


def _require_whole(old: Store | None, new: Store, on_note: OnNote) -> None:
    """Raise ReceiptsGone if the new store counts less than the old one, which then stays.

    Receipts that the old store had never seen are left out of the comparison, since they would make
    up for missing ones.
    """
    if old is None:
        return
    try:
        before = _counted(old.counted())
    except CorruptStore as error:
        on_note(f"{error} - so what was counted before cannot be compared")
        return
    after = _counted(new.counted()) - (_count_seen(new) - _count_seen(old))
    if after < before:
        raise ReceiptsGone(
            f"the log keeps only a part of what was counted since then: {after:,} receipts instead "
            f"of {before:,}; nothing was changed. Give a later --since"
        )


def _counted(paths: Sequence[str]) -> int:
    return sum(pc.sum(read_parquet(Path(path), ["n"])["n"]).as_py() or 0 for path in paths)


def _count_seen(store: Store) -> int:
    """Return how many keys a store has seen; no bit is in two of its files."""
    found = tables.seen_in(store.files("seen"))
    return sum(int(np.unpackbits(bits).sum()) for bits in found.values())


def _carried(old: Store, generation: Generation, table: str, since_ms: int) -> dict[str, FileEntry]:
    """Copy the files with older rows; a file that has older and newer rows is cut."""
    carried = {}
    for entry in old.entries(table, until_ms=since_ms):
        source, target = (each.folder / entry.path for each in (old.generation, generation))
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.max_ms < since_ms:
            _link(source, target)
            carried[entry.path] = entry
            continue
        rows = read_parquet(source)
        older = rows.filter(pc.less(rows[TIME_COLUMN[table]], since_ms))
        pq.write_table(older, target, compression="zstd")
        carried[entry.path] = written_file(generation, table, target)
    return carried


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where the disk has no hard links."""
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        raise CorruptStore.of(source, "this file is missing") from error
    except OSError:
        shutil.copy2(source, target)
