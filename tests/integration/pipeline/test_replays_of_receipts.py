"""A replay rebuilds the store from the log, as a whole or not at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pushlane.pipeline.receipts.job_context import SessionOptions
from pushlane.pipeline.receipts.maintenance import HOUR_MS
from pushlane.pipeline.receipts.rebuild import ReplayOptions, replay
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import manifest, open_store
from pushlane.util.errors import ReceiptsGone
from tests.integration.pipeline.receipts_support import Pipe
from tests.receipt_bodies import NOON_MS, body


def replayed(pipe, since_ms=NOON_MS + HOUR_MS + 5, **changes):
    options = ReplayOptions(since_ms, SessionOptions(), 2, lambda _: None, pipe.notes.append)
    return replay(pipe.settings, replace(options, **changes))


@pytest.fixture
def two_hours(spark, tmp_path):
    """Pushes of two hours, some said twice, read in several batches; still counted by minute.

    In one partition: of two outcomes of a push that are both read again, the first one counts.
    """
    pipe = Pipe(spark, tmp_path, reports_minutes_days=100_000, receipts_partitions=1)
    pipe.append(body("a", range(1, 101)))
    pipe.run()
    later = NOON_MS + HOUR_MS
    pipe.append(body("a", range(90, 151), at_ms=later), body("b", [1], "retry", at_ms=later))
    pipe.run()
    pipe.append(body("a", range(101, 161), "dead", at_ms=later + 60_000))
    pipe.run()
    return pipe


def test_a_replay_rebuilds_what_came_since_and_keeps_what_was_before(two_hours):
    pipe, counted = two_hours, two_hours.counted()
    [damaged, *_] = open_store(pipe.root).files("detail", since_ms=NOON_MS + HOUR_MS)
    Path(damaged).write_bytes(b"PAR1")
    pipe.append(body("a", range(155, 171), at_ms=NOON_MS + 2 * HOUR_MS))
    done = replayed(pipe, since_ms=NOON_MS + HOUR_MS + 5)

    assert (done.generation, done.since_ms) == ("gen-000002", NOON_MS + HOUR_MS)
    assert pipe.seqs("a") == list(range(1, 171))
    assert pipe.counted() == counted + Counter({("a", "delivered"): 10})
    pipe.append(body("a", range(1, 172)))
    pipe.run()
    assert pipe.seqs("a") == list(range(1, 172))


def test_a_replay_knows_what_was_before_in_whatever_partition(spark, tmp_path, monkeypatch):
    pipe = Pipe(spark, tmp_path, reports_minutes_days=100_000, receipts_partitions=2)
    for partition, at_ms in ((1, NOON_MS), (0, NOON_MS + HOUR_MS)):
        monkeypatch.setattr("secrets.randbelow", lambda _, first=partition: first)
        pipe.append(body("a", range(1, 11), at_ms=at_ms))
        pipe.run()
    replayed(pipe, since_ms=NOON_MS + HOUR_MS, most_bodies=1)

    assert pipe.seqs("a") == list(range(1, 11))
    assert pipe.counted() == Counter({("a", "delivered"): 10})


@pytest.mark.parametrize("outcome", ["delivered", "retry", "clicked"])
def test_what_was_counted_long_before_is_not_counted_again_when_it_is_repeated(
    spark, tmp_path, monkeypatch, outcome
):
    """Said first more than the hour before `since` that is read with it, and again after it."""
    pipe = Pipe(spark, tmp_path, reports_minutes_days=100_000, receipts_partitions=1)
    pipe.append(body("a", range(1, 11), outcome))
    pipe.run()
    with SyncReceiptLog(pipe.settings) as log:
        later = log.advance(log.first())
    pipe.append(body("a", range(1, 21), outcome, at_ms=NOON_MS + 3 * HOUR_MS))
    pipe.run()
    monkeypatch.setattr(SyncReceiptLog, "since", lambda *_: later)

    replayed(pipe, since_ms=NOON_MS + 3 * HOUR_MS)

    assert pipe.counted() == {("a", outcome): 20}


def test_a_replay_that_is_interrupted_leaves_the_old_store(two_hours, monkeypatch):
    def killed(_):
        raise KeyboardInterrupt

    counted = two_hours.counted()
    monkeypatch.setattr(manifest, "make_current", killed)
    with pytest.raises(KeyboardInterrupt):
        replayed(two_hours)
    assert two_hours.snapshot.generation == "gen-000001"
    assert two_hours.counted() == counted


def test_a_replay_that_would_lose_receipts_is_refused(two_hours, monkeypatch):
    monkeypatch.setattr(SyncReceiptLog, "since", lambda self, _: self.advance(self.first()))
    with pytest.raises(ReceiptsGone, match="100 receipts instead of 161; nothing was changed"):
        replayed(two_hours)
    assert two_hours.snapshot.generation == "gen-000001"


def test_receipts_that_came_since_do_not_stand_for_those_that_are_lost(two_hours, monkeypatch):
    """61 are lost, and 100 others were never read before."""
    two_hours.append(body("c", range(1, 101), at_ms=NOON_MS + 2 * HOUR_MS))
    monkeypatch.setattr(
        SyncReceiptLog,
        "since",
        lambda self, _: self.advance(self.first(), self.lag(self.first()) - 1),
    )
    with pytest.raises(ReceiptsGone, match="100 receipts instead of 161; nothing was changed"):
        replayed(two_hours)
    assert two_hours.snapshot.generation == "gen-000001"


def test_a_damaged_file_of_before_is_named_and_stands_in_nobodys_way(two_hours):
    counted = two_hours.counted()
    [damaged, *_] = open_store(two_hours.root).files("detail", until_ms=NOON_MS + HOUR_MS)
    Path(damaged).write_bytes(b"PAR1")

    replayed(two_hours)

    assert two_hours.counted() == counted
    assert "this file cannot be read" in two_hours.notes[-1]
    assert "may be counted again" in two_hours.notes[-1]


def test_a_store_without_readable_manifests_is_rebuilt_from_all_that_the_log_has(two_hours):
    counted = two_hours.counted()
    for path in (two_hours.root / "gen-000001" / "manifests").iterdir():
        path.write_bytes(b"{")
    replayed(two_hours)
    assert two_hours.counted() == counted
    assert "everything is rebuilt" in two_hours.notes[-1]
