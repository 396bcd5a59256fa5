"""Processes that ingest, killed and scaled while they run: each record is sent once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.ingest.kafka_topics import Topic
from tests.processes import Pushlane, Received, Running, until

PARTITIONS = 4
LEVELS = ("high", "medium", "low", "")


class Source:
    """What is read, by its name on the command line, and how records come to it."""

    def __init__(self, name: str, put: Callable[[int, list[bytes]], None], *more: str) -> None:
        self.words = (name, *more)
        self._put = put
        self.count = 0

    def add(self, each: int) -> None:
        """Append so many records to each partition."""
        for partition in range(PARTITIONS):
            self._put(partition, [record(self.count + n) for n in range(each)])
            self.count += each

    def repeat(self, count: int) -> None:
        """Append the first records once more, to another partition."""
        self._put(PARTITIONS - 1, [record(n) for n in range(count)])


def record(number: int) -> bytes:
    level = LEVELS[number % len(LEVELS)]
    return msgspec.json.encode({"device": f"d{number}", "id": f"e{number}", "urgency": level})


@pytest.fixture(params=["folder", "kafka"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "kafka":
        topic = Topic(request.getfixturevalue("kafka_servers"))
        topic.make(PARTITIONS)
        quick = ("--kafka", "session.timeout.ms=3000", "--kafka", "heartbeat.interval.ms=500")
        return Source(topic.place.url, lambda n, values: topic.add(n, *values), *quick)
    folder = tmp_path / "in"
    folder.mkdir()

    def put(partition: int, values: list[bytes]) -> None:
        with (folder / f"{partition}.jsonl").open("ab") as file:
            file.write(b"".join(value + b"\n" for value in values))

    return Source(str(folder), put)


def reader_of(pushlane: Pushlane, source: Source, mapping: str) -> Callable[[], Running]:
    """What starts a process that reads the source for the stream orders."""
    file = pushlane.folder / "m.toml"
    file.write_text(f'recipient = "device"\ntitle = {{ value = "Hi" }}\n{mapping}')
    words = ("--stream", "orders", "--mapping", file, "--log-format", "json")
    return lambda: pushlane.start("ingest", *source.words, *words)


def test_each_record_is_sent_once_while_processes_are_killed_and_scaled(
    pushlane: Pushlane, receiver: Received, source: Source
) -> None:
    reader = reader_of(pushlane, source, "")
    sending = pushlane.dispatch("--sink", receiver.sink)
    sending.until("started")
    pushlane("streams", "put", "orders", "--level", "high", "--app", "shop")

    first, second = reader(), reader()
    source.add(100)
    receiver.until(source.count // 2, sending)
    first.kill()
    source.add(50)
    third = reader()
    receiver.until(source.count, sending)
    source.add(50)
    assert second.stop() == 0, second.text
    receiver.until(source.count, sending)
    shown: list[dict[str, int]] = []

    def all_read() -> bool:  # a partition that is between two processes has no lag
        shown[:] = pushlane.json("ingest", "status", "orders")
        return all(one["lag"] == 0 for one in shown)

    until(all_read)
    assert third.stop() == 0, third.text
    assert sending.stop() == 0

    assert (receiver.count(), receiver.duplicates) == (source.count, 0)
    assert len(shown) == PARTITIONS
    assert all(one["bad"] == 0 and one["seen_at_ms"] for one in shown)


@pytest.mark.parametrize("source", ["kafka"], indirect=True)
def test_levels_and_keys_hold_while_a_process_is_killed(
    pushlane: Pushlane, receiver: Received, source: Source
) -> None:
    reader = reader_of(pushlane, source, 'level = "urgency"\nkey = "id"\n')
    sending = pushlane.dispatch("--sink", receiver.sink)
    sending.until("started")
    pushlane("streams", "put", "orders", "--level", "medium", "--app", "shop")

    def tasks() -> list[dict[str, Any]]:
        return pushlane.json("tasks", "--all")

    first, second = reader(), reader()
    source.add(100)
    receiver.until(source.count // 2, sending)
    first.kill()
    source.repeat(40)
    source.add(50)
    receiver.until(source.count, sending)
    until(lambda: sum(task["dropped"] for task in tasks()) == 40)
    [shown, *others] = pushlane.json("ingest", "status", "orders")
    assert second.stop() == 0, second.text
    assert sending.stop() == 0

    levels = Counter(arrival.level for arrival in receiver.arrivals)
    each = source.count // len(LEVELS)
    assert (receiver.count(), receiver.duplicates) == (source.count, 0)
    assert levels == {"high": each, "medium": 2 * each, "low": each}
    assert len(others) == PARTITIONS - 1
    assert [task["level"] for task in shown["tasks"]] == ["medium", "high", "medium", "low"]
