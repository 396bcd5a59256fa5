"""Kafka beside Pulsar: what is made of its tools' words, and of the rounds."""

from __future__ import annotations

import argparse

import pytest

from bench.kafka_rates import by_topic, in_turn, perf_consumed_rate, perf_produced_rate, record
from bench.kafka_topics import SYSTEMS, Round, figures, judge, run
from bench.peers.venv import MissingPeer
from pushlane.core.errors import BadInput

PRODUCED = """Warmup first 25 records.
60 records sent, 79.3 records/sec (15.13 MB/sec), 474.4 ms avg latency, 501.0 ms max latency.
In steady state.
100 records sent, 58.96 records/sec (11.25 MB/sec), 8.91 ms avg latency, 6.00 ms max latency, \
5 ms 50th, 2 ms 95th, 4 ms 99th, 6 ms 99.9th.
75 steady state records sent, 67.87 records/sec (12.95 MB/sec), 9.31 ms avg latency, \
6.00 ms max latency, 6 ms 50th, 3 ms 95th, 5 ms 99th, 6 ms 99.9th.
"""
MEMORY = {
    "kafka_heap_mib": 512,
    "kafka_resident_mib": 400,
    "kafka_disk_mib": 200,
    "page_cache_mib": 3_000,
}


def read(*counts: int) -> str:
    """What ConsumerPerformance prints when it has so many every 100 ms."""
    return "".join(
        f"2026-11-27 09:13:56:{place}00, 0, 7.5, 73.8, {count}, 387254.9, 0, 102, 73.8, 387254.9\n"
        for place, count in enumerate(counts)
    )


def one_round(rate: float | str, **more: float | str) -> Round:
    return Round({**dict.fromkeys(SYSTEMS, rate), **more}, MEMORY, lost=1, duplicates=2)


def test_the_rate_of_producer_performance_is_that_of_its_steady_state() -> None:
    assert perf_produced_rate(PRODUCED, 100) == 67.87


def test_records_that_the_broker_did_not_take_are_no_rate() -> None:
    with pytest.raises(MissingPeer, match="100 of 120 records"):
        perf_produced_rate(PRODUCED, 120)


def test_a_producer_that_said_nothing_has_no_rate() -> None:
    with pytest.raises(MissingPeer, match="no rate"):
        perf_produced_rate("Warmup first 25 records.\n", 100)


def test_the_rate_of_consumer_performance_leaves_out_its_start_and_its_end() -> None:
    said = "WARNING: something\n" + read(10, 200, 500, 800, 950)
    assert perf_consumed_rate(said, 1_000) == pytest.approx(3_000)


def test_a_consumer_that_did_not_get_all_has_no_rate() -> None:
    said = read(200, 500, 800) + "WARNING: Exiting before consuming the expected number of records"
    with pytest.raises(MissingPeer, match="1,000 records"):
        perf_consumed_rate(said, 1_000)


def test_a_consumer_that_was_done_at_once_has_no_rate() -> None:
    with pytest.raises(MissingPeer, match="give more --records"):
        perf_consumed_rate(read(300), 1_000)


def test_one_producer_writes_to_topics_in_turn_or_one_after_the_other() -> None:
    assert list(in_turn("ab", 2)) == [
        ("a", record(1)),
        ("b", record(1)),
        ("a", record(2)),
        ("b", record(2)),
    ]
    assert [topic for topic, _ in by_topic("ab", 2)] == ["a", "a", "b", "b"]
    assert sorted(by_topic("ab", 2)) == sorted(in_turn("ab", 2))


def test_medians_are_of_the_rounds_that_have_a_rate() -> None:
    rounds = [one_round(100.0), one_round(300.0), one_round(200.0, kafka_consumer="no Java")]

    rates = judge({64: rounds})["rates"]

    assert (rates["kafka_producer"], rates["kafka_consumer"]) == ({"64": 200}, {"64": 200})


def test_a_drop_is_from_the_fewest_topics_to_the_most() -> None:
    few, many = [one_round(100.0)], [one_round(60.0, kafka_perf_consumer="no Java")]

    result = judge({64: few, 256: [one_round(10.0)], 1_024: many})

    assert result["drop"]["kafka_producer"] == 0.4
    assert result["drop"]["kafka_perf_consumer"] is None
    assert (result["lost"], result["duplicates"]) == (3, 6)


def test_a_figure_has_the_rates_of_a_system_in_the_order_of_topics() -> None:
    result = judge({64: [one_round(10_000.0)], 1_024: [one_round(5_000.0, pushlane="no Pulsar")]})

    shown = {one.name: one.measured for one in figures(result)}

    assert shown[f"{SYSTEMS['kafka_producer']}: records a second, 64 / 1,024 topics"] == (
        "10,000 / 5,000; drop 0.5"
    )
    assert shown[f"{SYSTEMS['pushlane']}: records a second, 64 / 1,024 topics"] == (
        "10,000 / no Pulsar"
    )
    assert shown["Kafka's heap, MiB at most"] == "512 / 512"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topics": [0, 64]}, "--topics 0"),
        ({"rounds": 0}, "--rounds 0"),
        ({"records": 8_191}, "give 8,192 or more"),
    ],
)
def test_sizes_that_measure_nothing_are_refused(wrong: dict[str, object], said: str) -> None:
    given = {"topics": [64, 1_024], "records": 8_192, "rounds": 3, **wrong}
    with pytest.raises(BadInput, match=said):
        run(argparse.Namespace(**given))
