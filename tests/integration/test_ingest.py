"""Processes that ingest, killed and scaled while they run: each record is sent once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.ingest.kafka_topics import Topic
from tests.processes import Pushlane, Received, Running, until

PARTITIONS = 4


class Source:
    """What is read, by its name on the command line, and how records come to it."""

    def __init__(self, name: str, put: Callable[[int, list[bytes]], None], *more: str) -> None:
        self.words = (name, *more)
        self._put = put
        self.count = 0

    def add(self, each: int) -> None:
        """Append so many records to each partition."""
        for partition in range(PARTITIONS):
            numbers = range(self.count, self.count + each)
            self._put(partition, [msgspec.json.encode({"device": f"d{n}"}) for n in numbers])
            self.count += each


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


def test_each_record_is_sent_once_while_processes_are_killed_and_scaled(
    pushlane: Pushlane, receiver: Received, source: Source
) -> None:
    mapping = pushlane.folder / "m.toml"
    mapping.write_text('recipient = "device"\ntitle = { value = "Hi" }\n')
    sending = pushlane.dispatch("--sink", receiver.sink)
    sending.until("started")
    pushlane("streams", "put", "orders", "--level", "high", "--app", "shop")

    def reader() -> Running:
        words = ("--stream", "orders", "--mapping", mapping, "--log-format", "json")
        return pushlane.start("ingest", *source.words, *words)

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
