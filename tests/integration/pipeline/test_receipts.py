"""Receipts become a store, each counted once, whatever is killed, repeated or damaged."""

from __future__ import annotations

from math import floor, log

import pytest
from datasketches import hll_sketch

from pushlane.pipeline.errors import PipelineFailed
from pushlane.pipeline.receipts import batch as batch_module
from pushlane.pipeline.receipts import maintenance
from pushlane.pipeline.receipts.log_source import read_range
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import StoreWriter
from pushlane.util.errors import ReceiptsGone
from pushlane.util.trace_context import trace_hash
from tests.integration.pipeline.receipts_support import Pipe
from tests.receipt_bodies import NOON_MS, body


@pytest.fixture
def pipe(spark, tmp_path):
    return Pipe(spark, tmp_path)


class Killed(Exception):
    """Stands for the end of the process at this point: nothing after it happens."""


def killed(*_, **__):
    raise Killed


def test_receipts_become_detail_rows_counts_and_latencies(pipe):
    pipe.append(
        body("a", range(1, 101), attributes={"version": "1.0"}),
        body("a", [101, 102], "dead", reason="unregistered"),
        body("b", range(1, 4), "retry", attempt=1, reason="busy"),
        body("b", range(1, 4), attempt=2),
    )
    pipe.run()

    assert pipe.seqs("a") == list(range(1, 103))
    assert pipe.counted() == {
        ("a", "delivered"): 100,
        ("a", "dead"): 2,
        ("b", "retry"): 3,
        ("b", "delivered"): 3,
    }
    [minute] = [row for row in pipe.rows("minutes") if row["outcome"] == "dead"]
    assert (minute["reason"], minute["minute_ms"]) == ("unregistered", NOON_MS)
    assert minute["wait_ms_sum"] == 2 * 300
    assert round(hll_sketch.deserialize(minute["recipients"]).get_estimate()) == 2
    [waits] = [
        row
        for row in pipe.rows("latency")
        if (row["task_id"], row["outcome"], row["stage"]) == ("a", "delivered", "wait")
    ]
    assert (waits["bucket"], waits["n"]) == (floor(log(300) / log(1.1)), 100)
    [version] = pipe.rows("attributes")
    assert (version["attribute"], version["value"], version["n"]) == ("version", "1.0", 100)
    assert pipe.snapshot.counts.receipts == 108


def test_parts_of_waits_become_a_map_and_stages_of_their_own(pipe):
    pipe.append(
        body("a", range(1, 11), waits={"quiet": 300, "slot": 100}),
        body("a", [11], waits={"quiet": 400}),
        body("a", [12, 13]),
        body("a", [1], "displayed", attempt=0),
    )
    pipe.run()

    told = {row["seq"]: row["waits"] for row in pipe.rows("detail")}
    assert [told[seq] for seq in (1, 11, 12)] == [
        [("quiet", 300), ("slot", 100)],
        [("quiet", 400)],
        None,
    ]
    stages = {(row["stage"], row["bucket"]): row["n"] for row in pipe.rows("latency")}
    assert {key: n for key, n in stages.items() if key[0].startswith("wait")} == {
        ("wait", bucket_of(300)): 13,
        ("waited", bucket_of(400)): 11,
        ("wait.quiet", bucket_of(300)): 10,
        ("wait.quiet", bucket_of(400)): 1,
        ("wait.slot", bucket_of(100)): 10,
    }


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("text", ["", "t-9", TRACE, PARENT, "ключ", "x" * 55, f"00-{'-' * 49}-01"])
def test_spark_makes_the_hash_of_a_trace_as_readers_do(pipe, text):
    pipe.append(body("a", [1], trace_id=text))
    pipe.run()

    [row] = pipe.rows("detail")
    assert (row["trace_id"], row["trace_hash"]) == (text, trace_hash(text))


def bucket_of(ms):
    return floor(log(ms) / log(1.1))


def test_repeats_are_dropped_within_a_batch_and_over_batches(pipe):
    once = body("a", range(1, 51))
    pipe.append(once, once, body("a", range(40, 61)))
    pipe.run()
    pipe.append(once, body("a", [61], "dead"), body("a", [60], "dead"))
    [done] = pipe.run()

    assert pipe.seqs("a") == list(range(1, 62))
    assert pipe.counted() == {("a", "delivered"): 60, ("a", "dead"): 1}
    assert done.duplicates == 51


def test_bodies_that_cannot_be_used_are_set_aside_and_counted(pipe):
    pipe.append(b"no receipts", body("a", [1]), body("a", [2], "sublimated"))
    pipe.run()

    assert pipe.seqs("a") == [1]
    assert pipe.snapshot.counts.quarantined == 2
    reasons = sorted(row["why"] for row in pipe.rows("quarantine"))
    assert [reason.split(";")[0] for reason in reasons] == [
        "11 bytes of the receipts log are not a batch",
        "receipts with an unknown outcome",
    ]


def test_the_job_stops_before_receipts_that_only_a_newer_version_reads(pipe):
    pipe.append(body("a", [1]))
    pipe.run()
    newer = body("a", [9]).replace(b"\x01", b"\x02", 1)
    pipe.append(body("a", [2]), newer)

    for _ in range(2):
        with pytest.raises(PipelineFailed, match=r"receipts log has format 2.*upgrade"):
            pipe.run()

    assert pipe.seqs("a") == [1]
    assert pipe.snapshot.counts.quarantined == 0
    with SyncReceiptLog(pipe.settings) as log:
        assert log.lag(pipe.snapshot.positions) == 2


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (batch_module, "write_detail"),
        (StoreWriter, "publish"),
        (SyncReceiptLog, "commit"),
    ],
    ids=["before-writing", "before-the-manifest", "before-the-log-knows"],
)
def test_what_a_killed_job_left_is_finished_by_the_next(pipe, monkeypatch, where, name):
    pipe.append(body("a", range(1, 31)))
    pipe.run()
    pipe.append(*(body("a", range(first, first + 30)) for first in (31, 61)))
    with monkeypatch.context() as patch:
        patch.setattr(where, name, killed)
        with pytest.raises((Killed, PipelineFailed)):
            pipe.run()
    pipe.append(body("a", range(91, 101)))
    pipe.run()

    assert pipe.seqs("a") == list(range(1, 101))
    assert pipe.counted() == {("a", "delivered"): 100}
    with SyncReceiptLog(pipe.settings) as log_:
        assert log_.committed() == pipe.snapshot.positions


def test_what_a_full_log_drops_in_mid_run_ends_the_job_and_the_next_goes_on(spark, tmp_path):
    pipe = Pipe(spark, tmp_path, receipts_max_bytes=1024 * 1024, receipts_partitions=2)
    bodies = [body("a", range(first, first + 1_000)) for first in range(1, 80_000, 1_000)]
    pipe.append(*bodies[:4])
    with pytest.raises(ReceiptsGone, match="run the command again"):
        pipe.run(most_bodies=2, on_batch=lambda _: pipe.append(*bodies[4:]))
    before = pipe.snapshot.counts.bodies
    with SyncReceiptLog(pipe.settings) as log_:
        kept = log_.lag(log_.first())
    pipe.run()

    assert 0 < kept < len(bodies) - 4
    assert pipe.snapshot.counts.bodies == before + kept
    assert pipe.counted() == {("a", "delivered"): 1_000 * (before + kept)}
    assert [gap.partition for gap in pipe.snapshot.gaps] == [0, 1]
    assert sum("has dropped receipts" in note for note in pipe.notes) == 1


def test_what_older_versions_left_beside_the_tables_is_removed(pipe):
    pipe.append(body("a", range(1, 6)))
    pipe.run()
    checkpoint = pipe.root / "gen-000001" / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (pipe.root / ".settings-0123").write_text("a token")
    pipe.append(body("a", range(6, 11)))
    pipe.run()

    assert pipe.seqs("a") == list(range(1, 11))
    assert not checkpoint.exists()
    assert not list(pipe.root.glob(".settings-*"))


def test_a_batch_reads_no_more_than_its_limit(pipe):
    pipe.append(*(body("a", [seq]) for seq in range(1, 8)))
    done = pipe.run(most_bodies=3)

    assert [each.bodies for each in done] == [3, 3, 1]
    assert [each.lag for each in done] == [4, 1, 0]
    assert pipe.seqs("a") == list(range(1, 8))


def test_what_devices_say_later_is_counted_and_kept_for_its_push(pipe):
    pipe.append(body("a", [1, 2, 3]))
    pipe.append(body("a", [2], "displayed", attempt=0, at_ms=NOON_MS + 9_000))
    pipe.run()

    [event] = pipe.rows("events")
    assert (event["seq"], event["outcome"], event["at_ms"]) == (2, "displayed", NOON_MS + 9_000)
    assert pipe.counted() == {("a", "delivered"): 3, ("a", "displayed"): 1}
    assert pipe.seqs("a") == [1, 2, 3]


def weighted(pipe):
    """Delivered pushes as the detail rows say, each standing for its weight."""
    rows = [row for row in pipe.rows("detail") if row["outcome"] == "delivered"]
    return len(rows), sum(row["sample_weight"] for row in rows)


def test_under_load_detail_is_a_sample_that_is_filled_up_when_the_load_is_gone(spark, tmp_path):
    pipe = Pipe(spark, tmp_path, pipeline_detail_lag=1)
    pipe.append(*(body("a", range(first, first + 1_000)) for first in (1, 901, 1_801)))
    under_load = []
    pipe.run(most_bodies=1, on_batch=lambda done: under_load.append((done.mode, weighted(pipe))))

    mode, (rows, weight) = under_load[0]
    assert mode.rate == 0.1
    assert 60 < rows < 140
    assert weight == pytest.approx(rows * 10)
    assert weighted(pipe) == (2_800, 2_800)
    assert pipe.seqs("a") == list(range(1, 2_801))
    assert pipe.counted() == {("a", "delivered"): 2_800}
    [interval] = pipe.snapshot.intervals
    assert (interval.batch, interval.state) == (1, "restored")


def test_a_sample_stays_one_when_the_log_keeps_its_receipts_no_more(spark, tmp_path, monkeypatch):
    pipe = Pipe(spark, tmp_path, pipeline_detail_lag=1)
    pipe.append(*(body("a", range(first, first + 1_000)) for first in (1, 1_001, 2_001)))
    monkeypatch.setattr(maintenance, "_is_kept", lambda *_: False)
    pipe.run(most_bodies=1)

    assert weighted(pipe)[0] < 2_140
    assert pipe.counted() == {("a", "delivered"): 3_000}
    assert pipe.snapshot.intervals[0].state == "gone"
    assert "the log keeps its receipts no more" in pipe.notes[-1]


def test_partitions_of_the_log_are_read_in_parallel(spark, tmp_path):
    pipe = Pipe(spark, tmp_path, receipts_partitions=2)
    pipe.append(*(body("a", [seq]) for seq in range(1, 40)))
    with SyncReceiptLog(pipe.settings) as log_:
        start, end = log_.first(), log_.advance(log_.first())
    rows = read_range(spark, pipe.settings, start, end)

    assert rows.rdd.getNumPartitions() == 2
    assert rows.where("seq is not null").count() == 39
