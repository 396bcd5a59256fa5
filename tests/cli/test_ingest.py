"""`ingest`: what it refuses before it reads anything, and what `status` shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.core.task import Level, now_ms
from pushlane.ingest.position import Position, Seen, kept_of
from pushlane.model.streams import list_streams, only_stream
from pushlane.settings import Settings
from tests.command import Command, Ran


def ingest(command: Command, source: str, *more: str | Path) -> Ran:
    mapping = command.file("m.toml", 'recipient = "device"')
    return command("ingest", source, "--stream", "orders", "--mapping", mapping, *more)


@pytest.mark.parametrize(
    ("source", "more", "why"),
    [
        ("http://me:hush@x/y", [], "http:// is not a source; give kafka://HOST:PORT/TOPIC"),
        ("kafka://b", [], "give kafka://HOST:PORT/TOPIC"),
        ("in", ["--kafka", "a=b"], "--kafka goes with a source kafka://HOST:PORT/TOPIC alone"),
        ("kafka://b/t", ["--kafka", "auto.offset.reset=earliest"], "see --from and --on-gap"),
        ("in", ["--mapping", "gone.toml"], "mapping gone.toml cannot be read"),
        ("in", [], "there is no stream 'orders'"),
    ],
)
def test_what_cannot_be_read_is_refused(
    command: Command, source: str, more: list[str], why: str
) -> None:
    ran = ingest(command, source, *more)

    assert ran.exit_code == 1
    assert why in ran.stderr
    assert "hush" not in ran.stderr


def test_a_folder_that_is_not_there_is_named(command: Command) -> None:
    command("streams", "put", "orders", "--level", "high", "--app", "shop")

    ran = ingest(command, "gone")

    assert ran.exit_code == 1
    assert "gone is not a folder; give one with files that end in .jsonl" in ran.stderr


def test_status_of_a_stream_that_nothing_was_ingested_for(command: Command) -> None:
    command("streams", "put", "orders", "--level", "high", "--app", "shop")

    shown, listed = command("ingest", "status", "orders"), command("ingest", "status", "gone")

    assert "with: pushlane ingest SOURCE --stream orders --mapping FILE" in shown.stderr
    assert "there is no stream 'gone'" in listed.stderr


@pytest.fixture
def read_up_to_9(command: Command) -> Command:
    """A stream two partitions of which were read up to 9, and have no task."""
    command("streams", "put", "orders", "--level", "high", "--app", "shop")

    async def keep() -> None:
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            stream = only_stream(await list_streams(backend.documents), "orders")
            for partition in ("2", "10"):
                kept = await kept_of(backend.documents, stream, partition)
                seen = Seen(at_ms=now_ms(), end=1_009, in_progress=7, per_s=12.5, bad=3)
                await kept.save(Position(source_id="one", at=9, seen=seen))

    asyncio.run(keep())
    return command


def test_status_shows_what_is_behind_by_the_partitions_numbers(read_up_to_9: Command) -> None:
    shown = read_up_to_9("ingest", "status", "orders")
    first = read_up_to_9("ingest", "status", "orders", "--json").json[0]

    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["PARTITION", "2", "10"]
    assert shown.stdout.splitlines()[1].split()[:6] == ["2", "9", "1,000", "7", "12.5", "3"]
    assert (first["lag"], first["bad"]) == (1_000, 3)


@pytest.fixture
def read_by_level(command: Command) -> Command:
    """A stream one partition of which has tasks of two levels, one behind the other."""
    command("streams", "put", "orders", "--level", "high", "--app", "shop")

    async def keep() -> None:
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            stream = only_stream(await list_streams(backend.documents), "orders")
            seen = Seen(at_ms=now_ms(), end=1_009, in_progress=7, per_s=12.5, bad=3)
            here = Position(source_id="one", at=9, task_id="t-all", pushes=4, seen=seen)
            behind = Position(source_id="one", at=5, mapping="m", task_id="t-low", pushes=2)
            unused = Position(source_id="one", at=1)  # a mapping of before had this level
            for level, position in ((None, here), (Level.LOW, behind), (Level.MEDIUM, unused)):
                await (await kept_of(backend.documents, stream, "0", level)).save(position)

    asyncio.run(keep())
    return command


def test_status_shows_all_levels_of_a_partition_as_one_that_is_read_from_the_lowest(
    read_by_level: Command,
) -> None:
    shown = read_by_level("ingest", "status", "orders")
    [found] = read_by_level("ingest", "status", "orders", "--json").json

    row = shown.stdout.splitlines()[1].split()
    assert row[:9] == ["0", "5", "1,004", "7", "12.5", "3", "2", "tasks", "6"]
    assert (found["read_up_to"], found["lag"], found["pushes"]) == (5, 1_004, 6)
    assert found["tasks"] == [
        {"task": "t-all", "level": "high", "read_up_to": 9, "pushes": 4},
        {"task": "t-low", "level": "low", "read_up_to": 5, "pushes": 2},
    ]


def test_a_seek_tells_what_any_level_passes_over_or_sends_again(read_by_level: Command) -> None:
    ahead = read_by_level("ingest", "seek", "orders", "--to", "8")
    again = read_by_level("ingest", "seek", "orders", "--to", "5", "--again")

    assert "3 offsets are passed over unsent" in ahead.stderr
    assert "4 records are sent once more" in again.stderr


def test_a_seek_asks_before_what_cannot_be_undone_with_the_number(read_up_to_9: Command) -> None:
    back = read_up_to_9("ingest", "seek", "orders", "--to", "4")
    again = read_up_to_9("ingest", "seek", "orders", "--to", "4", "--again")
    ahead = read_up_to_9("ingest", "seek", "orders", "--to", "14", "--partition", "2")
    hour = read_up_to_9("ingest", "seek", "orders", "--to", "1h")
    hour_again = read_up_to_9("ingest", "seek", "orders", "--to", "1h", "--again")
    sure = read_up_to_9("ingest", "seek", "orders", "--to", "4", "--again", "--yes", "--json")

    assert (back.exit_code, sure.exit_code) == (0, 0)
    assert {one.exit_code for one in (again, ahead, hour, hour_again)} == {1}
    assert "10 records are sent once more" in again.stderr
    assert "5 offsets are passed over unsent" in ahead.stderr
    assert "going to 1h (records from before 1h are passed over if unsent)" in hour.stderr
    assert "all records from 1h on are sent once more and records" in hour_again.stderr
    assert sure.json == {"partitions": ["10", "2"], "offset": 4, "at_ms": 0, "again": True}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--to", "soon"], "'soon' is neither a duration"),
        (["--to", "4", "--partition", "7"], "nothing was ingested for partition 7"),
    ],
)
def test_a_seek_to_nowhere_is_refused(read_up_to_9: Command, words: list[str], why: str) -> None:
    ran = read_up_to_9("ingest", "seek", "orders", *words)

    assert (ran.exit_code, why in ran.stderr) == (1, True), ran.stderr


def test_a_reset_asks_and_forgets(read_up_to_9: Command) -> None:
    asked = read_up_to_9("ingest", "reset", "orders")
    done = read_up_to_9("ingest", "reset", "orders", "--yes", "--json")
    shown = read_up_to_9("ingest", "status", "orders", "--json")

    assert "add --yes" in asked.stderr
    assert done.json == {"partitions": 2}
    assert shown.json == []
