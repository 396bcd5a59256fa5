"""Plans a compaction from the manifest alone: pure functions, without Spark or files.

Only finished time is merged: an hour of detail rows, a day of counts. Batches whose sampled rows
are still to be restored are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pushlane.pipeline.store import FileEntry, Store
from pushlane.pipeline.store.layout import batch_of
from pushlane.settings import Settings

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
        table: [each for each in store.entries(table) if each.max_ms < kept_since_ms]
        for table in ("detail", "events", "quarantine")
    }
    held = _held(store, kept_since_ms)
    this_hour_ms = now_ms // HOUR_MS * HOUR_MS
    open_entries = [
        each
        for each in store.entries("detail")
        if each.max_ms < this_hour_ms and each not in expired["detail"] and not _is_of(each, held)
    ]
    return CompactionPlan(
        detail=_crowded(open_entries, HOUR_MS),
        rolls=[*_counts(store, settings, now_ms), *_others(store, settings, now_ms)],
        seen=_small_seen(store, held),
        expired=expired,
    )


def pending_batches(store: Store) -> set[int]:
    """Return the batches that are still to be restored."""
    return {each.batch for each in store.state.pending}


def _held(store: Store, kept_since_ms: int) -> set[int]:
    return {each.batch for each in store.state.pending if each.max_ms >= kept_since_ms}


def _is_of(entry: FileEntry, batches: set[int]) -> bool:
    return batch_of(entry.path) in batches


def _counts(store: Store, settings: Settings, now_ms: int) -> list[Roll]:
    """Roll old minutes into hours and old hours into days, and merge the files of other days."""
    to_hours_ms = _cutoff(settings.reports_minutes_days, now_ms)
    to_days_ms = _cutoff(settings.reports_hours_days, now_ms)
    minutes = _finished(store.entries("minutes"), now_ms)
    hours = store.entries("hours")
    rolls = [
        Roll("minutes", "hours", HOUR_MS, [e for e in minutes if e.max_ms < to_hours_ms]),
        Roll("minutes", "minutes", 1, _crowded([e for e in minutes if e.max_ms >= to_hours_ms])),
        Roll("hours", "days", DAY_MS, [e for e in hours if e.max_ms < to_days_ms]),
        Roll("hours", "hours", 1, _crowded([e for e in hours if e.max_ms >= to_days_ms])),
        Roll("days", "days", 1, _if_many(store.entries("days"))),
    ]
    return [roll for roll in rolls if roll.entries]


def _others(store: Store, settings: Settings, now_ms: int) -> list[Roll]:
    """Roll up latencies and attributes in their own tables, by hour and then by day."""
    to_hours_ms = _cutoff(settings.reports_minutes_days, now_ms)
    to_days_ms = _cutoff(settings.reports_hours_days, now_ms)
    rolls = []
    for table in ("latency", "attributes"):
        over = _finished(store.entries(table), now_ms)
        fine = [each for each in over if "/unit=" not in each.path]
        hourly = [each for each in over if f"/unit={HOUR_MS}/" in each.path]
        daily = [each for each in over if f"/unit={DAY_MS}/" in each.path]
        rolls += [
            Roll(table, table, HOUR_MS, [e for e in fine if e.max_ms < to_hours_ms]),
            Roll(table, table, 1, _crowded([e for e in fine if e.max_ms >= to_hours_ms])),
            Roll(table, table, DAY_MS, [e for e in hourly if e.max_ms < to_days_ms]),
            Roll(table, table, HOUR_MS, _if_many([e for e in hourly if e.max_ms >= to_days_ms])),
            Roll(table, table, DAY_MS, _if_many(daily)),
        ]
    return [roll for roll in rolls if roll.entries]


def _small_seen(store: Store, held: set[int]) -> list[FileEntry]:
    small = [
        each
        for each in store.entries("seen")
        if each.bytes < LARGEST_SEEN_BYTES and not _is_of(each, held)
    ]
    return small if len(small) > 1 else []


def _cutoff(days: int, now_ms: int) -> int:
    return (now_ms - days * DAY_MS) // DAY_MS * DAY_MS


def _finished(entries: Iterable[FileEntry], now_ms: int) -> list[FileEntry]:
    this_hour_ms = now_ms // HOUR_MS * HOUR_MS
    return [each for each in entries if each.max_ms < this_hour_ms]


def _crowded(entries: Iterable[FileEntry], unit_ms: int = DAY_MS) -> list[FileEntry]:
    """Return the files that share their hour, or day, with another file."""
    by_unit: dict[int, list[FileEntry]] = defaultdict(list)
    for each in entries:
        by_unit[each.min_ms // unit_ms].append(each)
    return [each for files in by_unit.values() if len(files) > 1 for each in files]


def _if_many(entries: list[FileEntry]) -> list[FileEntry]:
    return entries if len(entries) > _FEW else []
