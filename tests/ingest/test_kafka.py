"""Topics of a real Kafka as a source: each record once, through whatever becomes of the group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from pushlane import Settings
from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput, PushlaneError, Unreachable
from pushlane.core.task import now_ms
from pushlane.ingest import ingest, kafka, kafka_topic, partition
from pushlane.ingest.ingest import OnGap
from pushlane.ingest.kafka import KafkaSource, _Thread
from pushlane.ingest.kafka_topic import Place, client_settings
from pushlane.ingest.mapping import compiled
from pushlane.ingest.source import SourceChanged
from pushlane.ingest.steering import Seek, ask_for
from pushlane.util.errors import Denied
from tests.certificates import Authority
from tests.ingest.kafka_topics import CLASSIC, PROTOCOLS, Topic, reading
from tests.ingest.sources import STREAM, pushes, recipients, value
from tests.services import SecureKafka

Client = dict[str, str]


@pytest.fixture
def topic(kafka_servers: str) -> Topic:
    return Topic(kafka_servers)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "_COMMIT_EVERY_S", 0.1)


def devices(first: int, last: int) -> list[bytes]:
    return [value(f"d{n}") for n in range(first, last)]


def named(*spans: tuple[int, int]) -> Counter[str]:
    return Counter(f"d{n}" for span in spans for n in range(*span))


@PROTOCOLS
async def test_each_record_is_a_push_and_kafkas_own_tools_see_how_far_it_is(
    settings: Settings, topic: Topic, protocol: Client
) -> None:
    topic.make(2)
    topic.add(0, *devices(0, 500))
    topic.add(1, *devices(500, 700))
    async with connect(settings) as backend:
        async with reading(backend, settings, topic.source(protocol)) as one:
            await one.until_pushes(700)
            topic.add(1, *devices(700, 710))
            await one.until_pushes(710)
            ends = await one.ingest.source.ends()
        assert topic.committed() == {"0": 500, "1": 210} == ends
        assert Counter(await recipients(backend)) == named((0, 710))


async def test_a_record_of_kafka_goes_on_in_the_trace_of_its_header(
    settings: Settings, topic: Topic
) -> None:
    topic.make(1)
    span = f"00-{'a' * 32}-{'b' * 16}-01"
    topic.add(0, value("a"), headers=[("traceparent", span)])
    topic.add(0, value("b"), headers=[("traceparent", "none"), ("other", None)])
    async with connect(settings) as backend:
        async with reading(backend, settings, topic.source()) as one:
            await one.until_pushes(2)

        assert [push.trace_id for push in await pushes(backend)] == [span, ""]


@PROTOCOLS
async def test_who_comes_and_goes_takes_partitions_over_and_sends_nothing_twice(
    settings: Settings, topic: Topic, protocol: Client
) -> None:
    topic.make(4)
    for n in range(4):
        topic.add(n, *devices(n * 100, n * 100 + 100))
    async with (
        connect(settings) as backend,
        reading(backend, settings, topic.source(protocol)) as first,
    ):
        await first.until_pushes(400)
        async with reading(backend, settings, topic.source(protocol)) as second:
            await second.until(lambda: len(first.partitions) == len(second.partitions) == 2)
            assert not first.partitions & second.partitions
            for n in range(4):
                topic.add(n, *devices(400 + n * 10, 410 + n * 10))
            await first.until_pushes(420)
            await second.until_pushes(20)
        await first.until(lambda: len(first.partitions) == 4)
        topic.add(3, *devices(440, 450))
        await first.until_pushes(430)

        assert Counter(await recipients(backend)) == named((0, 450))
        assert second.ingest.counted.repeated == 0


@PROTOCOLS
async def test_a_process_that_is_back_under_its_name_within_the_session_moves_no_partition(
    settings: Settings, topic: Topic, protocol: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[object] = []

    def source(name: str) -> KafkaSource:
        session = {} if "group.protocol" in protocol else {"session.timeout.ms": "45000"}
        return topic.source({**protocol, **session, "group.instance.id": name})

    async def noted(partitions: Sequence[object]) -> dict[str, int]:
        moved.extend(partitions)
        return {}

    topic.make(4)
    async with connect(settings) as backend, reading(backend, settings, source("one")) as stays:
        async with reading(backend, settings, source("two")) as left:
            await left.until(lambda: len(stays.partitions) == len(left.partitions) == 2)
            had = left.partitions
        monkeypatch.setattr(stays.ingest, "given", noted)
        assert topic.members() == {"one", "two"}
        async with reading(backend, settings, source("two")) as back:
            await back.until(lambda: back.partitions == had)
            for n in range(4):
                topic.add(n, *devices(n * 10, n * 10 + 10))
            await stays.until_pushes(20)
            await back.until_pushes(20)

    assert moved == []


@PROTOCOLS
async def test_a_partition_that_is_added_is_read_too(
    settings: Settings, topic: Topic, protocol: Client
) -> None:
    topic.make(1)
    topic.add(0, *devices(0, 5))
    async with (
        connect(settings) as backend,
        reading(backend, settings, topic.source(protocol)) as one,
    ):
        await one.until_pushes(5)
        topic.widen(2)
        topic.add(1, *devices(5, 8))
        await one.until_pushes(8)

        assert Counter(await recipients(backend)) == named((0, 8))


async def test_a_full_partition_is_paused_and_goes_on(
    settings: Settings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "MOST_RECORDS", 64)
    topic.make(2)
    topic.add(0, *devices(0, 5_000))
    topic.add(1, *devices(5_000, 6_000))
    async with connect(settings) as backend:
        async with reading(backend, settings, topic.source()) as one:
            await one.until_pushes(6_000)
        found = await recipients(backend)
        assert sorted(found, key=lambda name: int(name[1:]) >= 5_000) == [*named((0, 6_000))]


@PROTOCOLS
async def test_a_topic_made_anew_stops_it_before_it_is_taken_for_the_old_one(
    settings: Settings, topic: Topic, protocol: Client
) -> None:
    topic.make(1)
    topic.add(0, *devices(0, 10))
    async with connect(settings) as backend:
        async with reading(backend, settings, topic.source(protocol)) as one:
            await one.until_kept("0", 10)
            topic.make_anew(1)
            topic.add(0, *devices(100, 105))
            with pytest.raises(SourceChanged, match=r"was recreated|was deleted"):
                await one.running
        topic.add(0, *devices(105, 120))  # now it is longer than what was read of the old one
        with pytest.raises(SourceChanged, match="recreated after it was read up to 10"):
            async with reading(backend, settings, topic.source(protocol)) as one:
                await one.running

        assert Counter(await recipients(backend)) == named((0, 10))


@PROTOCOLS
async def test_a_topic_that_is_deleted_or_was_never_made_stops_it(
    settings: Settings, topic: Topic, protocol: Client
) -> None:
    async with connect(settings) as backend:
        with pytest.raises(SourceChanged, match=f"there is no topic {topic.place.topic}"):
            async with reading(backend, settings, topic.source(protocol)) as one:
                await one.running
        topic.make(1)
        topic.add(0, *devices(0, 10))
        async with reading(backend, settings, topic.source(protocol)) as one:
            await one.until_pushes(10)
            topic.delete()
            with pytest.raises(SourceChanged, match="was deleted"):
                await one.running


async def test_records_that_are_gone_stop_it_unless_they_may_be(
    settings: Settings, topic: Topic
) -> None:
    topic.make(1)
    topic.add(0, *devices(0, 10))
    async with connect(settings) as backend:
        async with reading(backend, settings, topic.source()) as one:
            await one.until_pushes(10)
        topic.add(0, *devices(10, 20))
        topic.delete_records(0, 15)
        with pytest.raises(BadInput, match="begins at 15, and was read up to 10: the 5 records"):
            async with reading(backend, settings, topic.source()) as one:
                await one.running
        async with reading(backend, settings, topic.source(), on_gap=OnGap.GO) as one:
            await one.until_pushes(5)

        assert Counter(await recipients(backend)) == named((0, 10), (15, 20))


async def test_records_that_go_while_they_are_waited_for_are_a_gap_too(
    settings: Settings, topic: Topic
) -> None:
    topic.make(1)
    topic.add(0, *devices(0, 5))
    async with connect(settings) as backend:
        async with reading(backend, settings, topic.source(), on_gap=OnGap.GO) as one:
            await one.until_kept("0", 5)
            one.ingest.source.pause("0")
            await one.ingest.source.offset_at("0", 0)  # answered behind the pause: it holds
            topic.add(0, *devices(5, 10))
            topic.delete_records(0, 8)
            one.ingest.source.seek("0", 6)  # as if it were behind: these are gone
            one.ingest.source.resume("0")
            await one.until_pushes(7)
        assert Counter(await recipients(backend)) == named((0, 5), (8, 10))


async def test_a_seek_to_a_time_sends_what_came_since_once_more(
    settings: Settings, topic: Topic
) -> None:
    topic.make(1)
    hour_ago = now_ms() - 3_600_000
    topic.add(0, *devices(0, 5), at_ms=hour_ago - 60_000)
    topic.add(0, *devices(5, 10), at_ms=hour_ago + 60_000)
    async with (
        connect(settings) as backend,
        reading(backend, settings, topic.source()) as one,
    ):
        await one.until_pushes(10)
        await ask_for(backend.documents, STREAM, ["0"], Seek(at_ms=hour_ago))
        await one.until(lambda: one.ingest.counted.repeated == 5)
        await ask_for(backend.documents, STREAM, ["0"], Seek(at_ms=hour_ago, again=True))
        await one.until_pushes(15)
        await ask_for(backend.documents, STREAM, ["0"], Seek(at_ms=now_ms(), again=True))
        topic.add(0, *devices(10, 12))
        await one.until_pushes(17)

        assert Counter(await recipients(backend)) == named((0, 12), (5, 10))


def secure(there: SecureKafka, **more: object) -> Client:
    """Settings as the command line gives them."""
    settings = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": there.ca,
        "ssl.certificate.location": there.cert,
        "ssl.key.location": there.key,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "pushlane",
        "sasl.password": f"@{there.password}",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return {**CLASSIC, **client_settings([f"{n}={value}" for n, value in settings.items()])}


async def test_a_topic_behind_tls_and_a_password_is_read(
    settings: Settings, topic: Topic, secure_kafka: SecureKafka
) -> None:
    topic.make(1)
    topic.add(0, *devices(0, 5))
    place = Place(secure_kafka.servers, topic.place.topic)
    source = KafkaSource(place, topic.group, secure(secure_kafka))
    async with connect(settings) as backend, reading(backend, settings, source) as one:
        await one.until_pushes(5)


@pytest.mark.parametrize("what", ["password", "authority", "certificate"])
async def test_what_broker_and_client_do_not_accept_of_each_other_is_told(
    settings: Settings,
    secure_kafka: SecureKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    monkeypatch.setattr(kafka_topic, "ASK_S", 3.0)
    other = Authority(tmp_path / "other")
    wrong = tmp_path / "wrong"
    wrong.write_text("hunter2")
    stranger = other.sign("client")
    given: dict[str, Client] = {
        "password": secure(secure_kafka, sasl_password=f"@{wrong}"),
        "authority": secure(secure_kafka, ssl_ca_location=other.ca),
        "certificate": secure(
            secure_kafka, ssl_certificate_location=stranger.cert, ssl_key_location=stranger.key
        ),
    }
    source = KafkaSource(Place(secure_kafka.servers, "orders"), "group", given[what])
    async with connect(settings) as backend:
        with pytest.raises(Denied, match=_DENIED[what]) as error:
            async with reading(backend, settings, source) as one:
                await one.running
    assert "hunter2" not in str(error.value)


_DENIED = {
    "password": "Authentication failed",
    "authority": "certificate verify failed",
    "certificate": "certificate",
}


async def test_a_record_of_20_mib_is_a_bad_one(
    settings: Settings, topic: Topic, tmp_path: Path
) -> None:
    topic.make(1, largest=30 << 20)
    topic.add(0, value("d0"), value("big", body="x" * (20 << 20)), value("d1"))
    bad = tmp_path / "bad.jsonl"
    mapping = compiled({"recipient": "device", "body": {"field": "body", "default": ""}}, "one")
    async with (
        connect(settings) as backend,
        reading(backend, settings, topic.source(), mapping=mapping, bad=bad) as one,
    ):
        await one.until_pushes(2)
        assert await recipients(backend) == ["d0", "d1"]
    [line] = bad.read_bytes().splitlines()
    assert b'"offset":1' in line
    assert len(line) < 100_000


async def test_a_broker_that_is_not_there_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topic, "ASK_S", 1.0)
    source = KafkaSource(Place("127.0.0.1:1", "orders"), "group", CLASSIC)
    async with connect(settings) as backend:
        with pytest.raises(Unreachable, match=r"Kafka at 127\.0\.0\.1:1 does not answer"):
            async with reading(backend, settings, source) as one:
                await one.running


def thread(source: KafkaSource, consumer: Any) -> _Thread:
    """The thread of a source, not begun, with a consumer in place of the client's."""
    made = _Thread(source._place, source._settings, source._topic, Mock())
    made._consumer = consumer
    source._thread = made
    return made


async def test_a_time_that_a_broker_gives_no_answer_for_is_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "ASK_S", 0.01)
    consumer = Mock()
    found = Mock(offset=-1001, error=KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    consumer.offsets_for_times.return_value = [found]
    consumer.get_watermark_offsets.return_value = 0, 10
    source = KafkaSource(Place("127.0.0.1:1", "orders"), "group", CLASSIC)
    there = thread(source, consumer)

    asking = asyncio.create_task(source.offset_at("0", 1))
    await asyncio.sleep(0)
    there._obey()

    with pytest.raises(Unreachable, match="has not answered with the offset of that time"):
        await asking


async def test_a_seek_that_cannot_be_done_ends_it() -> None:
    consumer = Mock()
    error = KafkaException(KafkaError(KafkaError._STATE, "gone"))
    consumer.seek.side_effect = consumer.incremental_unassign.side_effect = error
    source = KafkaSource(Place("127.0.0.1:1", "orders"), "group", CLASSIC)
    there = thread(source, consumer)
    there._names[0], there.ends["0"] = "0", 10

    source.seek("0", 4)

    with pytest.raises(PushlaneError, match="gone"):
        there._obey()
