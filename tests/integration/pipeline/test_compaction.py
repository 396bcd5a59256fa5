"""Compaction changes no count: fewer files, rows amended by events, old counts rolled up."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from datasketches import hll_sketch, hll_union

from pushlane.pipeline.receipts.job_context import SessionOptions, open_job_context
from pushlane.pipeline.receipts.maintenance import DAY_MS, HOUR_MS, compact
from pushlane.pipeline.store import CorruptStore, open_store
from pushlane.pipeline.store.manifest import make_current, next_generation
from pushlane.pipeline.store.schema import DETAIL
from pushlane.pipeline.store.writing import store_lock
from pushlane.util.trace_context import trace_hash
from tests.integration.pipeline.receipts_support import Pipe
from tests.receipt_bodies import NOON_MS, body
from tests.receipt_stores import OLDER, make_older, make_store

MINUTE_MS = 60_000


@pytest.fixture
def pipe(spark, tmp_path):
    return Pipe(spark, tmp_path)


def compacted(pipe, days=0, grace_ms=10**12):
    with open_job_context(pipe.settings, SessionOptions()) as work:
        at_ms = NOON_MS + days * DAY_MS + 4 * HOUR_MS
        return compact(work.spark, work.writer, pipe.settings, grace_ms=grace_ms, at_ms=at_ms)


def by_task(pipe, table, unit_ms):
    """Counts, waits and distinct recipients of a table by time, task and outcome."""
    counts: Counter[tuple[int, str, str]] = Counter()
    sketches: dict[tuple[int, str, str], hll_union] = {}
    for row in pipe.rows(table):
        key = (row["minute_ms"] // unit_ms * unit_ms, row["task_id"], row["outcome"])
        counts[key] += row["n"]
        union = sketches.setdefault(key, hll_union(12))
        union.update(hll_sketch.deserialize(row["recipients"]))
    return {key: (n, round(sketches[key].get_estimate())) for key, n in counts.items()}


def test_small_files_become_one_an_hour_with_the_events_in_their_rows(pipe):
    for first in (1, 11, 21):
        pipe.append(body("a", range(first, first + 10)), body("b", [first], "retry"))
        pipe.run()
    pipe.append(
        body("a", [2, 3], "displayed", attempt=0, at_ms=NOON_MS + 60_000),
        body("a", [2], "clicked", attempt=0, at_ms=NOON_MS + 90_000),
        body("z", [7], "clicked", attempt=0, at_ms=NOON_MS + 90_000),
    )
    pipe.run()
    before = open_store(pipe.root)
    counted, latencies = pipe.counted(), sum(row["n"] for row in pipe.rows("latency"))
    compacted(pipe)

    store = open_store(pipe.root)
    assert len(before.files("detail")) >= 3
    assert [len(store.files(table)) for table in ("detail", "minutes", "seen")] == [1, 1, 1]
    assert pipe.counted() == counted
    assert sum(row["n"] for row in pipe.rows("latency")) == latencies
    assert pipe.seqs("a") == list(range(1, 31))
    rows = {row["seq"]: row for row in pipe.rows("detail") if row["task_id"] == "a"}
    assert (rows[2]["displayed_at_ms"], rows[2]["clicked_at_ms"]) == (
        NOON_MS + 60_000,
        NOON_MS + 90_000,
    )
    assert (rows[3]["displayed_at_ms"], rows[3]["clicked_at_ms"]) == (NOON_MS + 60_001, None)
    assert rows[1]["displayed_at_ms"] is None
    assert [event["task_id"] for event in pipe.rows("events")] == ["z"]
    assert sum(pq.read_metadata(path).num_rows for path in before.files("detail")) == 33

    pipe.append(body("a", range(1, 41)))
    pipe.run()
    assert pipe.seqs("a") == list(range(1, 41))


def test_a_store_of_an_older_version_is_read_and_written_on(pipe):
    """Its files have no waits: rows of them say nothing, and newer ones do. All get hashes."""
    pipe.append(body("a", [1, 2], trace_id="t-9"))
    pipe.run()
    make_older(pipe.root, open_store(pipe.root).files("detail"), OLDER[0])
    pipe.append(body("a", [3, 4], waits={"slot": 400}), body("a", [1], "clicked", attempt=0))
    pipe.run()

    compacted(pipe)

    [one] = open_store(pipe.root).files("detail")
    assert pq.read_schema(one).names == DETAIL.names
    told = [("slot", 400)]
    found = {row["seq"]: (row["waits"], row["clicked_at_ms"]) for row in pipe.rows("detail")}
    assert found == {1: (None, NOON_MS), 2: (None, None), 3: (told, None), 4: (told, None)}
    hashes = {row["seq"]: row["trace_hash"] for row in pipe.rows("detail")}
    assert hashes == {**dict.fromkeys((1, 2), trace_hash("t-9")), 3: 0, 4: 0}


def test_merged_hours_and_days_equal_what_is_computed_from_the_minutes(pipe):
    for hour in range(3):
        at_ms = NOON_MS + hour * HOUR_MS
        pipe.append(body("a", range(hour * 50 + 1, hour * 50 + 81), at_ms=at_ms))
        pipe.append(body("b", [hour + 1], "dead", at_ms=at_ms))
        pipe.run()
    hourly, daily = (by_task(pipe, "minutes", unit) for unit in (HOUR_MS, DAY_MS))
    compacted(pipe, days=10)
    assert by_task(pipe, "hours", 1) == hourly
    assert open_store(pipe.root).files("minutes") == []

    compacted(pipe, days=100)
    assert by_task(pipe, "days", 1) == daily
    store = open_store(pipe.root)
    assert store.files("hours") == store.files("detail") == []
    assert sum(row["n"] for row in pipe.rows("latency")) == 3 * (180 + 3)


def test_files_that_count_no_more_go_after_a_grace_time(pipe):
    make_store(pipe.root, receipts=20)
    old = open_store(pipe.root).files("detail")
    compacted(pipe)
    assert all(Path(path).exists() for path in old)

    done = compacted(pipe, days=1, grace_ms=0)
    assert not any(Path(path).exists() for path in old)
    assert done.removed >= 2
    assert [path for path in pipe.root.rglob("hour=*") if not any(path.iterdir())] == []
    assert sorted(row["seq"] for row in pipe.rows("detail")) == list(range(1, 21))


@pytest.mark.parametrize("damage", ["torn", "overwritten", "removed"])
def test_a_damaged_file_is_named_with_what_mends_it_and_nothing_changes(pipe, damage):
    make_store(pipe.root, receipts=20)
    store = open_store(pipe.root)
    path = Path(store.files("detail")[0])
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(content[:99] if damage == "torn" else b"PAR1" + bytes(len(content) - 4))

    with pytest.raises(CorruptStore, match=f"{path}: .*`pushlane pipeline replay --since TIME`"):
        compacted(pipe)
    assert open_store(pipe.root).state == store.state


def test_folders_of_detail_rows_that_are_too_old_go_with_their_files(pipe):
    pipe.append(body("a", range(1, 11)))
    pipe.run()
    compacted(pipe, days=40)
    compacted(pipe, days=40, grace_ms=-MINUTE_MS)

    assert list(pipe.root.rglob("day=*")) == []


def test_a_generation_that_was_replaced_stays_for_who_reads_it(pipe):
    pipe.append(body("a", range(1, 11)))
    pipe.run()
    old = open_store(pipe.root).generation.folder
    os.utime(old, (1, 1))  # nothing was added to the folder itself since it was made
    with store_lock(pipe.root):
        make_current(next_generation(pipe.root))

    compacted(pipe, grace_ms=MINUTE_MS)
    assert old.exists()
    compacted(pipe, grace_ms=-MINUTE_MS)
    assert not old.exists()
