"""Receipts that the log dropped unread: where a job goes on, and what the store says of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pushlane.pipeline.receipts.job import resume_positions
from pushlane.pipeline.receipts.status import status
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import StoreWriter, open_store
from pushlane.pipeline.store.writing import open_writer
from pushlane.settings import Settings

MIB = 1024 * 1024
A_FILE = b"x" * (MIB // 8)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.but(**{"receipts_partitions": 2, "receipts_max_bytes": MIB})


@pytest.fixture
def log(settings: Settings) -> Iterator[SyncReceiptLog]:
    """Of two partitions, each with two files of one body."""
    with SyncReceiptLog(settings) as opened:
        for _ in range(4):
            opened.append([A_FILE])
        yield opened


@pytest.fixture
def writer(settings: Settings) -> Iterator[StoreWriter]:
    with open_writer(settings.reports_root) as found:
        yield found


def publish(writer: StoreWriter, positions: list[str]) -> None:
    writer.publish("batch", writer.begin(), positions=positions)


def drop(settings: Settings, partition: int, files: int = 1) -> None:
    """As the log does to make room."""
    folder = settings.data_dir / "receipts" / str(partition)
    for path in sorted(folder.glob("*.log"))[:files]:
        path.unlink()


def test_what_the_log_still_has_is_read_from_where_the_store_ends(writer, log):
    middle = log.advance(log.first(), most=2)
    publish(writer, middle)

    assert resume_positions(writer, log) == (middle, "")
    assert writer.state.number == 1


def test_a_partition_that_lost_some_goes_on_with_its_oldest_and_others_where_they_were(
    settings, writer, log
):
    first = log.first()
    publish(writer, first)
    drop(settings, 0)

    positions, said = resume_positions(writer, log)

    assert positions == [log.first()[0], first[1]]
    assert log.lag(positions) == 3
    assert "dropped receipts of a partition that were not read yet" in said
    [gap] = open_store(settings.reports_root).snapshot().gaps
    assert (gap.partition, gap.start, gap.end) == (0, first[0], positions[0])
    assert 0 < gap.since_ms <= gap.at_ms


def test_a_gap_is_told_once_and_stays_in_the_manifest(settings, writer, log):
    publish(writer, log.first())
    drop(settings, 1)
    positions, _ = resume_positions(writer, log)

    assert resume_positions(writer, log) == (positions, "")
    publish(writer, log.advance(positions))
    assert len(writer.store.snapshot().gaps) == 1


def test_before_the_first_batch_it_begins_with_the_oldest(settings, writer, log):
    drop(settings, 0)

    assert resume_positions(writer, log) == (log.first(), "")


def test_status_tells_of_what_is_missing_before_the_next_run_and_after(settings, writer, log):
    publish(writer, log.first())
    assert not status(settings).is_missing
    drop(settings, 0)

    before = status(settings)
    resume_positions(writer, log)
    after = status(settings)

    assert (before.is_missing, before.lag, before.snapshot.gaps) == (True, 3, [])
    assert (after.is_missing, after.lag, len(after.snapshot.gaps)) == (False, 3, 1)


def test_the_command_shows_a_gap(command, settings, writer, log, monkeypatch):
    monkeypatch.setenv("PUSHLANE_DATA_DIR", str(settings.data_dir))
    publish(writer, log.first())
    drop(settings, 0)
    unread = command("pipeline", "status")
    resume_positions(writer, log)
    read = command("pipeline", "status")

    assert "3 bodies, and the log has dropped some that were not read" in unread.stdout
    assert "partition 0 from 0 to " in read.stdout
    [gap] = command("pipeline", "status", "--json").json["gaps"]
    assert gap["partition"] == 0


def test_a_log_made_anew_with_more_partitions_is_read_from_its_beginning(writer, log):
    publish(writer, ["700"])

    positions, said = resume_positions(writer, log)

    assert positions == log.first()
    assert log.lag(["700"]) == 4
    assert said
