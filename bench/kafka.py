"""A Kafka broker of a benchmark's own: one node on this machine, gone with its data in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.figures import say
from dev.stack import default_cache_dir
from dev.stack.kafka import KafkaProcess, kafka_answers
from dev.stack.services import HOST, free_ports, wait_until
from pushlane.core.errors import Unreachable

_ASK_S = 60.0
_LOOK_S = 0.1
_KEPT_DELETED_MS = "1000"


@contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    """Give HOST:PORT of a broker whose files lie in the folder.

    Raises:
        UserError: there is no Java, or no jars.
        Unreachable: it does not come up; shows the end of its log.
    """
    process = KafkaProcess(folder)
    port, inner = free_ports(2)
    cache_dir = default_cache_dir()
    cache_dir.mkdir(parents=True, exist_ok=True)
    try:
        process.start(cache_dir, (port, inner), say)
        wait_until(
            lambda: kafka_answers(port),
            what="kafka",
            deadline_s=_ASK_S,
            is_running=lambda: process.is_running("kafka"),
            log_tail=lambda: process.log_tail("kafka"),
        )
        yield f"{HOST}:{port}"
    finally:
        process.stop(delete_data=True)


def make_topics(
    servers: str, names: Sequence[str], partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Make them, with this configuration, and wait until each partition takes records.

    A broker tells of partitions before it leads them: an idempotent producer whose first batches
    are refused then, while later ones are taken, tries the first ones again in vain. What is
    deleted of the topics is off the disk soon after.

    Raises:
        Unreachable: they take none in time.
    """
    given = {"file.delete.delay.ms": _KEPT_DELETED_MS, **(config or {})}
    new = [NewTopic(name, partitions, 1, config=given) for name in names]
    admin = _admin(servers)  # lives till the answers are there
    for made in admin.create_topics(new).values():
        made.result(_ASK_S)
    places = [TopicPartition(name, n, 0) for name in names for n in range(partitions)]
    asking = Consumer({"bootstrap.servers": servers, "group.id": "asking", "log_level": 0})
    deadline_s = time.monotonic() + _ASK_S
    try:
        while not _are_led(asking, places):
            if time.monotonic() > deadline_s:
                raise Unreachable(f"Kafka does not lead all of {len(places):,} new partitions")
            time.sleep(_LOOK_S)
    finally:
        asking.close()


def _are_led(asking: Consumer, places: list[TopicPartition]) -> bool:
    """Ask of each partition the first offset since 1970, which only its leader answers."""
    try:
        return all(place.error is None for place in asking.offsets_for_times(places, _ASK_S))
    except KafkaException:
        return False


def delete_topics(servers: str, names: Sequence[str]) -> None:
    admin = _admin(servers)
    for deleted in admin.delete_topics(list(names)).values():
        deleted.result(_ASK_S)


def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})
