"""What is shown is what is defined, adds up over processes, and has a bounded number of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from pushlane.backends.process_metrics import PROCESS_METRICS
from pushlane.core.push import DELIVERED, Kind, Outcome
from pushlane.core.task import Level
from pushlane.dispatcher.line_report import RecentRates
from pushlane.dispatcher.metrics import DISPATCHER_METRICS, LEADER_METRICS, LINE_METRICS
from pushlane.dispatcher.stats import ByReason, Stats
from pushlane.model.limits import Limit, Subject, change_limit
from pushlane.model.reasons import MOST_REASONS
from pushlane.pipeline.alerts.watch import ALERT_METRICS, AlertStats
from pushlane.pipeline.receipts.job import JOB_METRICS, JobStats
from pushlane.pipeline.rules.runner import RULE_METRICS, RuleStats
from pushlane.producers.outbox.buffer import PRODUCER_METRICS, ProducerStats
from pushlane.util.metrics import MetricCollector, MetricDefinition, MetricKind
from scripts.metrics import METRICS
from tests.core.support import (
    MemorySink,
    add_task,
    backend_in,
    dispatching,
    until,
)

COUNTED = [one for one in LINE_METRICS if one.metric.kind is not MetricKind.GAUGE]
OF_A_DISPATCHER: Any = (DISPATCHER_METRICS, LINE_METRICS, LEADER_METRICS, PROCESS_METRICS)


def labels_shown(metric: Metric) -> list[dict[str, str]]:
    """The labels of its samples, but for the bounds of a histogram."""
    return [
        {name: value for name, value in sample.labels.items() if name != "le"}
        for sample in metric.samples
    ]


def check(shown: Iterable[Metric], defined: Iterable[MetricDefinition]) -> None:
    """Each that is defined is shown, no other is, and each as it is defined."""
    by_name = {_full_name(metric): metric for metric in shown}
    definitions = {one.name: one for one in defined}
    assert by_name.keys() == definitions.keys()
    for name, one in definitions.items():
        metric = by_name[name]
        assert (metric.type, metric.documentation) == (one.kind, one.meaning), name
        for labels in labels_shown(metric):
            assert tuple(labels) == tuple(one.labels), name
            for label, values in one.labels.items():
                assert not values or labels[label] in values, name


def _full_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


async def test_a_leading_dispatcher_shows_all_that_is_defined_as_it_is(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        registry, sink = CollectorRegistry(), MemorySink(lambda _: Outcome.dead("HTTP 400"))
        await add_task(backend, Level.LOW, 3)
        await add_task(backend, Level.HIGH, 3)
        async with dispatching(backend, sink, settings, registry=registry):
            await sink.until_received(6)
            await until(lambda: registry.get_sample_value("pushlane_drain_target_seconds"))
            shown = list(registry.collect())

        check(shown, (one.metric for group in OF_A_DISPATCHER for one in group))


@pytest.mark.parametrize(
    ("metrics", "source", "own"),
    [
        (JOB_METRICS, JobStats(), ()),
        (RULE_METRICS, RuleStats(), ()),
        (ALERT_METRICS, AlertStats(), ()),
        (PRODUCER_METRICS, ProducerStats("", *[0] * 9, (), 0.0, ""), ("orders",)),
    ],
)
def test_others_show_what_is_defined_for_them(metrics: Any, source: Any, own: Any) -> None:
    exporter = metrics[0].metric.exporter
    shown = MetricCollector(metrics, lambda: [(source, own)]).collect()

    check(shown, (one for one in METRICS if one.exporter is exporter))


def test_each_metric_has_one_name_and_that_of_its_kind() -> None:
    names = Counter(one.name for one in METRICS)

    assert set(names.values()) == {1}
    for one in METRICS:
        assert one.name.startswith("pushlane_")
        assert one.name.endswith("_total") == (one.kind is MetricKind.COUNTER), one.name
        if one.kind is MetricKind.HISTOGRAM or one.unit.endswith("seconds"):
            assert one.name.removesuffix("_total").endswith("_seconds"), one.name


# An event: the process it falls to, what it is, and how long that took.
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["picked", "outcome", "retry", "dead", "waited", "decode", "limit"]),
        st.floats(0, 1e4),
    ),
    max_size=60,
)


def happen(stats: Stats, what: str, seconds: float) -> None:
    match what:
        case "picked":
            stats.sent(Level.HIGH, "shop")
        case "outcome":
            stats.outcomes[Level.LOW, Kind.DELIVERED] += 1
        case "retry" | "dead":
            getattr(stats, "retries" if what == "retry" else what).add("HTTP 503")
        case "waited":
            stats.waited[Level.LOW].add(seconds)
        case "decode":
            stats.decode.add(seconds)
        case "limit":
            stats.limit_waits["app"].add(seconds)


def samples_of(*of_processes: Stats) -> dict[tuple[str, str], float]:
    """The samples of all these processes, added up as Prometheus's `sum` does."""
    total: Counter[tuple[str, str]] = Counter()
    for stats in of_processes:
        line: Any = SimpleNamespace(stats=stats)
        for metric in MetricCollector(COUNTED, lambda line=line: [(line, ("fcm",))]).collect():
            for sample in metric.samples:
                total[sample.name, str(sorted(sample.labels.items()))] += sample.value
    return dict(total)


@given(EVENTS)
def test_counters_of_several_processes_add_up_to_those_of_one(
    events: list[tuple[int, str, float]],
) -> None:
    alone, several = Stats(), [Stats() for _ in range(4)]
    for place, what, seconds in events:
        happen(alone, what, seconds)
        happen(several[place], what, seconds)
    of_several = samples_of(*several)

    for sample, value in samples_of(alone).items():
        assert of_several[sample] == pytest.approx(value), sample


@given(EVENTS)
def test_rates_of_several_processes_add_up_to_those_of_one(
    events: list[tuple[int, str, float]],
) -> None:
    now_s = [0.0]
    all_stats = [Stats() for _ in range(5)]
    rates = [RecentRates(stats, lambda: now_s[0]) for stats in all_stats]
    for place, what, seconds in events:
        happen(all_stats[0], what, seconds)
        happen(all_stats[1 + place], what, seconds)
    now_s[0] = 20.0
    alone, *several = [one.read() for one in rates]

    for field in ("sent_per_s", "apps_per_s"):
        parts = [sum(getattr(one, field).values()) for one in several]
        assert sum(parts) == pytest.approx(sum(getattr(alone, field).values()), abs=0.01)
    assert sum(one.ended_per_s for one in several) == pytest.approx(alone.ended_per_s)


def test_shares_are_of_the_last_minute_and_not_since_the_start() -> None:
    stats, now_s = Stats(), [0.0]
    rates = RecentRates(stats, lambda: now_s[0])

    def pass_time(seconds: int, level: Level, app: str, per_s: int) -> None:
        for _ in range(0, seconds, 5):
            for _ in range(5 * per_s):
                stats.sent(level, app)
            now_s[0] += 5.0
            read.append(rates.read())

    read: list[Any] = []
    pass_time(600, Level.HIGH, "shop", 10)
    assert read[-1].sent_per_s == {"high": 10.0}
    pass_time(30, Level.LOW, "news", 10)
    assert read[-1].sent_per_s == {"high": 5.0, "low": 5.0}
    assert read[-1].apps_per_s == {"shop": 5.0, "news": 5.0}
    pass_time(30, Level.LOW, "news", 10)
    assert read[-1].sent_per_s == {"low": 10.0}


def test_of_very_many_apps_the_record_of_a_process_names_twenty() -> None:
    stats, now_s = Stats(), [0.0]
    rates = RecentRates(stats, lambda: now_s[0])
    for number in range(20_000):
        stats.sent(Level.HIGH, f"app-{number}")
    for number in range(30):
        stats.sent(Level.HIGH, f"app-{number}")
    now_s[0] = 10.0

    named = rates.read().apps_per_s
    assert len(named) == 20
    assert set(named) <= {f"app-{number}" for number in range(30)}
    assert len(stats.picked_of_app) == 10_000


def test_of_very_many_reasons_the_first_have_a_label() -> None:
    counts = ByReason()
    for number in range(10_000):
        counts.add(f"HTTP {number}")

    assert len(counts) == MOST_REASONS + 1
    assert counts["other"] == 10_000 - MOST_REASONS


def test_of_very_many_rules_and_alerts_the_first_have_a_label() -> None:
    stats, alerts = RuleStats(), AlertStats()
    for number in range(10_000):
        stats.ran(f"rule-{number}", SimpleNamespace(state="done", total=1))  # type: ignore[arg-type]
    rule = [SimpleNamespace(name=f"alert-{number}") for number in range(10_000)]
    checks: Any = [SimpleNamespace(rule=one, problem="", told=[], firing=1) for one in rule]
    alerts.looked(checks)

    assert len(stats.events) == 101
    assert stats.events["other", "done"] == 9_900
    assert len(alerts.firing) == 100
    assert alerts.evaluations == {"ok": 10_000, "failed": 0}


class TestReasons:
    async def reasons(self, folder: Path, sink: MemorySink, name: str) -> dict[str, float]:
        """The counts by reason when a task's three pushes fail twice and are dead."""
        registry = CollectorRegistry()
        async with backend_in(folder, retry_first_s=0.001) as (backend, settings):
            await add_task(backend, Level.HIGH, 3, max_attempts=2)
            async with dispatching(backend, sink, settings, drain=True, registry=registry):
                await sink.until_received(6)
        shown = {one.name: one for one in registry.collect()}[name]
        return {
            sample.labels["reason"]: sample.value
            for sample in shown.samples
            if sample.name.endswith("_total")
        }

    @pytest.mark.parametrize("name", ["pushlane_retries", "pushlane_dead"])
    async def test_they_are_told_without_their_details(self, tmp_path: Path, name: str) -> None:
        sink = MemorySink(lambda delivery: Outcome.retry(f"HTTP 500: at {delivery.push.seq}"))

        assert await self.reasons(tmp_path, sink, name) == {"HTTP 500": 3}

    @pytest.mark.parametrize("name", ["pushlane_retries", "pushlane_dead"])
    async def test_somebodys_own_words_are_not_shown(self, tmp_path: Path, name: str) -> None:
        sink = MemorySink(lambda _: Outcome.retry("no Mr Smith here"), hosts_code=True)

        assert await self.reasons(tmp_path, sink, name) == {"processor": 3}


async def test_waits_for_a_limit_and_the_reading_of_bundles_are_measured(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    async with backend_in(tmp_path) as (backend, settings):
        await change_limit(
            backend.documents, Subject("app", "shop"), lambda _: Limit(rate_per_s=50)
        )
        await add_task(backend, Level.HIGH, 20, app="shop", bundle=10)
        sink = MemorySink(lambda _: DELIVERED)
        async with dispatching(backend, sink, settings, drain=True, registry=registry):
            await sink.until_received(20)

    waits = {"scope": "app", "sink": "default"}
    assert (registry.get_sample_value("pushlane_limit_wait_seconds_count", waits) or 0) > 0
    read = registry.get_sample_value("pushlane_decode_seconds_count", {"sink": "default"})
    assert read == 2
