"""Topics of the broker of all tests, and processes that read them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.ingest.bad_records import BadRecordFile
from pushlane.ingest.ingest import Ingest
from pushlane.ingest.kafka import KafkaSource
from pushlane.ingest.kafka_topic import Place
from pushlane.ingest.mapping import Made
from tests.core.support import until
from tests.ingest.sources import STREAM, TO_DEVICE

Headers = Sequence[tuple[str, str | bytes | None]]

_ASK_S = 30.0
FAST = {
    "topic.metadata.refresh.interval.ms": "500",
    "reconnect.backoff.max.ms": "500",
    "fetch.wait.max.ms": "100",
}
CLASSIC = {**FAST, "heartbeat.interval.ms": "300", "session.timeout.ms": "6000"}
CONSUMER = {**FAST, "group.protocol": "consumer"}
PROTOCOLS = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])


class Topic:
    """A topic of a test's own."""

    def __init__(self, servers: str) -> None:
        self.place = Place(servers, f"orders-{uuid.uuid4().hex[:12]}")
        self.group = f"group-{uuid.uuid4().hex[:12]}"
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def make(self, partitions: int, largest: int = 1 << 20) -> None:
        config = {"max.message.bytes": str(largest)}
        new = NewTopic(self.place.topic, partitions, 1, config=config)
        self._admin.create_topics([new])[self.place.topic].result(_ASK_S)
        end = time.monotonic() + _ASK_S
        while self._admin.list_topics(timeout=_ASK_S).topics.get(self.place.topic) is None:
            assert time.monotonic() < end

    def widen(self, partitions: int) -> None:
        new = NewPartitions(self.place.topic, partitions)
        self._admin.create_partitions([new])[self.place.topic].result(_ASK_S)

    def delete(self) -> None:
        self._admin.delete_topics([self.place.topic])[self.place.topic].result(_ASK_S)

    def make_anew(self, partitions: int) -> None:
        self.delete()
        end = time.monotonic() + _ASK_S
        while True:  # the name is free once the broker has let go of it
            try:
                return self.make(partitions)
            except KafkaException:
                assert time.monotonic() < end

    def delete_records(self, partition: int, below: int) -> None:
        [asked] = self._admin.delete_records(
            [TopicPartition(self.place.topic, partition, below)]
        ).values()
        asked.result(_ASK_S)

    def add(
        self, partition: int, *values: bytes | None, at_ms: int = 0, headers: Headers = ()
    ) -> None:
        """Append records, each durable when this returns; of this Unix time, or of now."""
        producer = Producer(
            {
                "bootstrap.servers": self.place.servers,
                "message.max.bytes": 40 << 20,
                "log_level": 0,
            }
        )
        name, end = self.place.topic, time.monotonic() + _ASK_S
        while partition not in producer.list_topics(name, _ASK_S).topics[name].partitions:
            assert time.monotonic() < end
        for value in values:
            producer.produce(
                name, value, partition=partition, timestamp=at_ms, headers=list(headers)
            )
        assert producer.flush(_ASK_S) == 0

    def committed(self) -> dict[str, int]:
        """What the group has committed, as Kafka's own tools see it."""
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.group)])[
            self.group
        ].result(_ASK_S)
        return {str(one.partition): one.offset for one in asked.topic_partitions}

    def members(self) -> set[str]:
        """The `group.instance.id` of each member that the group has, of which some may be away."""
        found = self._admin.describe_consumer_groups([self.group])[self.group].result(_ASK_S)
        return {member.group_instance_id for member in found.members}

    def source(self, settings: Mapping[str, str] = CLASSIC) -> KafkaSource:
        return KafkaSource(self.place, self.group, settings)


class Reading:
    """A process that reads a topic."""

    def __init__(self, ingest: Ingest, running: asyncio.Task[None]) -> None:
        self.ingest = ingest
        self.running = running

    @property
    def partitions(self) -> set[str]:
        return set(self.ingest.held)

    async def until_pushes(self, count: int) -> None:
        """Wait until so many have become pushes of this process. Raises what ends it."""
        await self.until(lambda: self.ingest.counted.pushes >= count)

    async def until_kept(self, partition: str, at: int) -> None:
        """Wait until the position of a partition is kept as this, or a later one."""

        def is_kept() -> bool:
            held = self.ingest.held.get(partition)
            kept = held and held.partition.lane.kept.position
            return bool(kept and kept.at >= at)

        await self.until(is_kept)

    async def until(self, is_so: Any) -> None:
        await until(lambda: self.running.done() or is_so())
        if self.running.done():
            await self.running
        assert is_so()

    async def end(self) -> None:
        self.ingest.stop()
        await self.running


@asynccontextmanager
async def reading(
    backend: Backend,
    settings: Settings,
    source: KafkaSource,
    *,
    mapping: Made = TO_DEVICE,
    bad: Path | None = None,
    **options: Any,
) -> AsyncIterator[Reading]:
    """A process that reads a topic; it is ended if it still runs."""
    file = BadRecordFile(source.name, bad)
    ingest = Ingest(backend, settings, STREAM, source, mapping, file, **options)
    running = asyncio.create_task(ingest.run())
    try:
        yield Reading(ingest, running)
    finally:
        ingest.stop()
        await asyncio.gather(running, return_exceptions=True)
