"""Measures the rates of Kafka by its own tools and by confluent-kafka: some records, some topics.

`acks=all` on one node means that a record is in the page cache, as with the Pulsar of a benchmark
(journalSyncData=false). Batches wait for 10 ms, as those of Pulsar's client do.
"""

from __future__ import annotations

import re
import secrets
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from confluent_kafka import Consumer, KafkaError, Message, Producer

from bench.backlog import push_of
from bench.counting import Mark, steady_rate
from bench.peers.venv import MissingPeer
from dev.stack import default_cache_dir
from dev.stack.kafka import kafka_jars
from pushlane.core.errors import PushlaneError
from pushlane.core.push import encode

_WRITES = {"acks": "all", "linger.ms": "10"}
_IN_TURN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
_TOOLS = "org.apache.kafka.tools"
_HEAP = "-Xmx512m"  # as the scripts that Kafka has for them
_STEADY = re.compile(r"^\d+ steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
_ALL = re.compile(r"^(\d+) records sent, .* 99\.9th", re.MULTILINE)
_TOOL_S = 300.0
_EVERY_MS = 100
_AT_ONCE = 1_000
_LOOK_S = 0.1
_PATIENCE_S = 30.0
_FLUSH_S = 120.0
_LAST_CHARACTERS = 300


def record(seq: int) -> bytes:
    """Return a record that is a push of the benchmarks' own, as other systems get it, too."""
    return encode(push_of("rival", seq))


def in_turn(topics: Sequence[str], records: int) -> Iterator[tuple[str, bytes]]:
    """A record to each topic, then the next to each."""
    for seq in range(1, records + 1):
        body = record(seq)
        for topic in topics:
            yield topic, body


def by_topic(topics: Sequence[str], records: int) -> Iterator[tuple[str, bytes]]:
    """All records of a topic, then those of the next."""
    bodies = [record(seq) for seq in range(1, records + 1)]
    for topic in topics:
        for body in bodies:
            yield topic, body


def produced_s(servers: str, topics: Sequence[str], records: Iterable[tuple[str, bytes]]) -> float:
    """Seconds that one producer takes until the last of the records is acknowledged.

    Each topic has got one record before, so that the producer knows where it is.

    Raises:
        PushlaneError: the broker did not take all.
    """
    refused: list[KafkaError] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": servers, **_WRITES})
    for topic in topics:
        producer.produce(topic, record(0), on_delivery=answered)
    left = producer.flush(_FLUSH_S)
    began_s = time.perf_counter()
    for topic, body in records:
        while True:
            try:
                producer.produce(topic, body, on_delivery=answered)
                break
            except BufferError:
                producer.poll(_LOOK_S)
        producer.poll(0)
    left += producer.flush(_FLUSH_S)
    if refused or left:
        raise PushlaneError(f"Kafka did not take {len(refused) + left} records: {refused[:1]}")
    return time.perf_counter() - began_s


def consumed(servers: str, topics: Sequence[str], records: int) -> tuple[float, int]:
    """Records a second of a consumer that begins with the first one; how many it did not get."""
    group = {"group.id": secrets.token_hex(4), "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    consumer.subscribe(list(topics))
    marks = [Mark(time.perf_counter(), 0)]
    try:
        while marks[-1].delivered < records and _waited_s(marks) < _PATIENCE_S:
            got = consumer.consume(_AT_ONCE, _LOOK_S)
            for message in got:
                if (error := message.error()) is not None:
                    raise PushlaneError(f"Kafka gave no record: {error}")
            if got:
                marks.append(Mark(time.perf_counter(), marks[-1].delivered + len(got)))
    finally:
        consumer.close()
    return _steady(marks, records), records - marks[-1].delivered


def _waited_s(marks: Sequence[Mark]) -> float:
    return time.perf_counter() - marks[-1].at_s


def perf_produced(servers: str, topic: str, records: int) -> float:
    """Records a second of ProducerPerformance after the first quarter of them.

    It writes to one topic alone, so that has a partition for each topic of the others: as many
    logs, which it fills in turn.

    Raises:
        MissingPeer: it failed, or the broker did not take all.
    """
    sizes = f"--num-records {records} --record-size {len(record(1))} --throughput -1"
    settings = [f"{name}={value}" for name, value in _WRITES.items()]
    said = _tool(
        "ProducerPerformance",
        *("--bootstrap-server", servers, "--topic", topic, *sizes.split()),
        *("--warmup-records", str(records // 4)),
        *("--command-property", *settings, f"partitioner.class={_IN_TURN}"),
    )
    return perf_produced_rate(said, records)


def perf_produced_rate(said: str, records: int) -> float:
    """Return its rate in its steady state, if the broker took all."""
    every, steady = _ALL.search(said), _STEADY.search(said)
    if every is None or steady is None:
        raise MissingPeer("ProducerPerformance said no rate")
    if (taken := int(every[1])) < records:
        raise MissingPeer(f"ProducerPerformance got rid of {taken:,} of {records:,} records only")
    return float(steady[1])


def perf_consumed(servers: str, prefix: str, records: int) -> float:
    """Records a second of ConsumerPerformance over all topics whose names begin so.

    Raises:
        MissingPeer: it failed, got less, or was done too soon.
    """
    said = _tool(
        "ConsumerPerformance",
        *("--bootstrap-server", servers, "--include", f"{prefix}.*"),
        *("--num-records", str(records), "--hide-header"),
        *("--show-detailed-stats", "--reporting-interval", str(_EVERY_MS)),
    )
    return perf_consumed_rate(said, records)


def perf_consumed_rate(said: str, records: int) -> float:
    """By its lines of how many it had read when, without the first fifth and the last tenth."""
    if "Exiting before" in said:
        raise MissingPeer(f"ConsumerPerformance did not get all of {records:,} records")
    cells = [line.split(", ") for line in said.splitlines() if line[:2] == "20"]
    marks = [Mark(_second(line[0]), int(line[4])) for line in cells]
    if not (rate := _steady(marks, records)):
        raise MissingPeer("ConsumerPerformance was done before it was warm: give more --records")
    return rate


def _second(said: str) -> float:
    return datetime.strptime(said, "%Y-%m-%d %H:%M:%S:%f").timestamp()


def _steady(marks: Sequence[Mark], records: int) -> float:
    return steady_rate(marks, records // 5, records * 9 // 10)


def _tool(name: str, *words: str) -> str:
    jars = kafka_jars(default_cache_dir(), lambda _: None)
    try:
        ended = subprocess.run(
            ["java", _HEAP, "-cp", f"{jars}/*", f"{_TOOLS}.{name}", *words],
            capture_output=True,
            text=True,
            timeout=_TOOL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingPeer(f"{name} was not done after {_TOOL_S:g} s") from error
    if ended.returncode:
        last = " ".join((ended.stderr or ended.stdout)[-_LAST_CHARACTERS:].split())
        raise MissingPeer(f"{name} ended with exit code {ended.returncode}: {last}")
    return ended.stdout
