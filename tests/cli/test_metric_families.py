"""Metrics of several origins, shown as one text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client import generate_latest as plain
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as opened
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pushlane.cli.health_server import ProcessMetrics, of_worker, together


class Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def of_process(count: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("picked", "Pushes", ["level"], registry=registry).labels("high").inc(count)
    Gauge("free", "Room", ["worker"], registry=registry).labels("mine").set(count)
    Histogram("took_seconds", "Time", buckets=(1.0,), registry=registry).observe(count)
    return registry


def test_families_of_workers_are_shown_once_with_the_samples_of_all() -> None:
    found = [one for n in (1, 2) for one in of_worker(str(n), of_process(n).collect())]

    text = plain(Families(together(found))).decode()

    assert text.count("# TYPE picked_total counter") == 1
    assert 'picked_total{level="high",worker="1"} 1.0' in text
    assert 'picked_total{level="high",worker="2"} 2.0' in text


def test_a_label_worker_of_somebodys_own_is_kept_under_another_name() -> None:
    [free] = [one for one in of_worker("0", of_process(1).collect()) if one.name == "free"]

    assert free.samples[0].labels == {"exported_worker": "mine", "worker": "0"}


def test_what_workers_say_together_is_right_in_open_metrics_too() -> None:
    found = [one for n in (1, 2) for one in of_worker(str(n), of_process(n).collect())]

    families = list(text_string_to_metric_families(opened(Families(together(found))).decode()))

    assert [one.name for one in families] == ["picked", "free", "took_seconds"]


def test_times_of_creation_are_left_out_but_not_a_gauge_so_named() -> None:
    counted = Metric("picked", "Pushes", "counter")
    families = [
        counted,
        Metric("picked_created", "Pushes", "gauge"),
        Metric("rows_created", "", "gauge"),
    ]

    assert [one.name for one in together(families)] == ["picked", "rows_created"]


def test_one_of_another_type_is_left_out() -> None:
    ours, other = Metric("picked", "Pushes", "counter"), Metric("picked", "Ripe fruit", "gauge")
    other.add_sample("picked", {}, 1.0)

    assert together([ours, other]) == [ours]
    assert ours.samples == []


@pytest.fixture
def of_processor() -> Iterator[Counter]:
    """A metric as a processor's module makes it: in the client's own registry."""
    counter = Counter("shop_sent", "What the shop sent")
    yield counter
    REGISTRY.unregister(counter)


def test_a_processors_metrics_are_shown_beside_ours(of_processor: Counter) -> None:
    of_processor.inc(7)

    text = plain(ProcessMetrics(of_process(1))).decode()

    assert "shop_sent_total 7.0" in text
    assert 'picked_total{level="high"} 1.0' in text
    assert text.count("# TYPE process_resident_memory_bytes gauge") == 1


def test_one_that_cannot_be_read_hides_none_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ValueError("user-1")

    broken = Broken()
    REGISTRY._collector_to_names[broken] = []  # to register it would read it
    try:
        metrics = ProcessMetrics(of_process(1))
        texts = [plain(metrics).decode() for _ in range(2)]
    finally:
        REGISTRY.unregister(broken)

    assert all('picked_total{level="high"} 1.0' in text for text in texts)
    assert [record.action for record in caplog.records] == ["metrics_failed"]
    assert "user-1" not in caplog.text
