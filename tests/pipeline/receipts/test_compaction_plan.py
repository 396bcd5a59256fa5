"""What a compaction has to do follows from the manifest alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane.pipeline.receipts.maintenance import (
    DAY_MS,
    HOUR_MS,
    LARGEST_SEEN_BYTES,
    CompactionPlan,
    Roll,
    plan,
)
from pushlane.pipeline.store import FileEntry, Generation, SampledBatch, Store, StoreState
from pushlane.settings import Settings

NOW_MS = 20_000 * DAY_MS + 12 * HOUR_MS + 1
SETTINGS = Settings(reports_detail_days=30, reports_minutes_days=7, reports_hours_days=90)


def entry(path: str, ago_ms: int, size: int = 1_000) -> FileEntry:
    """A file whose rows are all of that time."""
    at_ms = NOW_MS - ago_ms
    return FileEntry(path, 10, size, at_ms, at_ms)


def planned(pending: SampledBatch | None = None, **tables: list[FileEntry]) -> CompactionPlan:
    files = {table: {each.path: each for each in entries} for table, entries in tables.items()}
    intervals = {pending.batch: pending} if pending else {}
    generation = Generation(Path("reports"), "gen-000001")
    return plan(Store(generation, StoreState(files=files, intervals=intervals)), SETTINGS, NOW_MS)


def paths(entries: list[FileEntry]) -> list[str]:
    return sorted(each.path for each in entries)


def rolled(found: CompactionPlan) -> list[tuple[str, str, int, list[str]]]:
    return [(roll.source, roll.target, roll.unit_ms, paths(roll.entries)) for roll in found.rolls]


def test_an_empty_store_has_nothing_to_do():
    found = planned()
    assert (found.detail, found.rolls, found.seen) == ([], [], [])
    assert not any(found.expired.values())


def test_files_of_an_hour_that_is_over_are_merged_and_a_lone_one_is_not():
    entries = [entry("a", HOUR_MS), entry("b", HOUR_MS), entry("alone", 3 * HOUR_MS)]
    assert paths(planned(detail=entries).detail) == ["a", "b"]


def test_the_hour_that_goes_on_is_left_alone():
    entries = [entry("a", 0), entry("b", 1)]
    found = planned(detail=entries, minutes=entries, latency=entries)
    assert (found.detail, found.rolls) == ([], [])


def test_a_sampled_batch_waits_for_its_full_rows():
    at_ms = NOW_MS - HOUR_MS
    pending = SampledBatch(2, ["0"], ["9"], at_ms, at_ms, 0.1, "lag")
    entries = [entry(f"day=1/hour=1/batch={batch:09d}/x", HOUR_MS) for batch in (1, 2, 3)]
    seen = [entry(f"seen/batch={batch:09d}/x", HOUR_MS) for batch in (1, 2, 3)]
    found = planned(pending, detail=entries, seen=seen)
    assert paths(found.detail) == [entries[0].path, entries[2].path]
    assert paths(found.seen) == [seen[0].path, seen[2].path]


def test_rows_past_their_days_are_removed_and_never_merged():
    old = [entry("a", 31 * DAY_MS), entry("b", 31 * DAY_MS)]
    found = planned(detail=[*old, entry("c", 29 * DAY_MS)], events=old, quarantine=old)
    assert {table: paths(entries) for table, entries in found.expired.items()} == {
        "detail": ["a", "b"],
        "events": ["a", "b"],
        "quarantine": ["a", "b"],
    }
    assert found.detail == []


def test_old_minutes_become_hours_and_old_hours_days():
    found = planned(minutes=[entry("m", 9 * DAY_MS)], hours=[entry("h", 92 * DAY_MS)])
    assert rolled(found) == [
        ("minutes", "hours", HOUR_MS, ["m"]),
        ("hours", "days", DAY_MS, ["h"]),
    ]


def test_a_young_day_of_minutes_becomes_one_file():
    entries = [entry("a", 2 * HOUR_MS), entry("b", 3 * HOUR_MS), entry("other", 2 * DAY_MS)]
    assert rolled(planned(minutes=entries)) == [("minutes", "minutes", 1, ["a", "b"])]


@pytest.mark.parametrize("table", ["latency", "attributes"])
def test_tables_that_keep_their_place_are_rolled_up_by_the_unit_of_their_folder(table: str):
    hourly = f"{table}/unit={HOUR_MS}/batch=1/x"
    entries = [entry("fine", 9 * DAY_MS), entry(hourly, 92 * DAY_MS)]
    assert rolled(planned(**{table: entries})) == [
        (table, table, HOUR_MS, ["fine"]),
        (table, table, DAY_MS, [hourly]),
    ]


def test_days_are_merged_only_when_they_are_many():
    few = [entry(f"d{number}", 200 * DAY_MS) for number in range(8)]
    assert planned(days=few).rolls == []
    many = [*few, entry("d8", 200 * DAY_MS)]
    assert planned(days=many).rolls == [Roll("days", "days", 1, many)]


def test_what_was_seen_is_merged_but_for_files_that_are_large_already():
    small = [entry("a", 0), entry("b", 0)]
    large = entry("large", 0, LARGEST_SEEN_BYTES)
    assert paths(planned(seen=[*small, large]).seen) == ["a", "b"]
    assert planned(seen=[small[0], large]).seen == []
