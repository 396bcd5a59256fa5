"""Twenty kills, each with rebalances, while a topic of Kafka is read: nothing lost or twice."""

from __future__ import annotations

import msgspec

from tests.ingest.kafka_topics import Topic
from tests.processes import Pushlane, Received, Running

KILLS = 20
PARTITIONS = 4
EACH = 25


def test_kills_and_rebalances_lose_nothing_and_send_nothing_twice(
    pushlane: Pushlane, receiver: Received, kafka_servers: str
) -> None:
    topic = Topic(kafka_servers)
    topic.make(PARTITIONS)
    mapping = pushlane.folder / "m.toml"
    mapping.write_text('recipient = "device"\ntitle = { value = "Hi" }\n')
    sending = pushlane.dispatch("--sink", receiver.sink)
    sending.until("started")
    pushlane("streams", "put", "orders", "--level", "high", "--app", "shop")
    count = 0

    def reader() -> Running:
        quick = ("--kafka", "session.timeout.ms=2000", "--kafka", "heartbeat.interval.ms=300")
        words = ("--stream", "orders", "--mapping", mapping, "--log-format", "json")
        return pushlane.start("ingest", topic.place.url, *words, *quick)

    readers = [reader(), reader()]
    for _ in range(KILLS):
        for partition in range(PARTITIONS):
            numbers = range(count, count + EACH)
            topic.add(partition, *(msgspec.json.encode({"device": f"d{n}"}) for n in numbers))
            count += EACH
        receiver.until(count - EACH, sending)  # in the midst of what was added
        readers.pop(0).kill()
        readers.append(reader())
    receiver.until(count, sending)

    assert sending.stop() == 0
    assert (receiver.count(), receiver.duplicates) == (count, 0)
