"""The dashboard and the rules, asked of a real Prometheus that scrapes a real run.

Two workers dispatch tasks of all levels, some of whose pushes are tried again or die. What needs
Spark is shown by its collectors, with counts that are made up here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, start_http_server

from dev.stack.services import free_port
from pushlane import Producer
from pushlane.pipeline.alerts.watch import ALERT_METRICS, AlertStats
from pushlane.pipeline.receipts.job import JOB_METRICS, JobStats
from pushlane.pipeline.rules.runner import RULE_METRICS, RuleStats
from pushlane.settings import Settings
from pushlane.util.metrics import MetricCollector, ReadMetric
from scripts.monitoring.files import CHART
from tests.processes import Pushlane, Running, until
from tests.prometheus import OwnPrometheus
from tests.series import series_names

NOT_IN_THIS_RUN = {"Alerts": "none fires"}
"""Panels that may be empty, and why."""

_DEADLINE_S = 45.0
PUSHES = 20_000  # a minute's work: there is a backlog for as long as the test looks at it
VARIABLES = {
    "$__rate_interval": "5s",
    **dict.fromkeys(("$namespace", "$job", "$sink", "$level"), ".*"),
}
PROCESSOR = """
import asyncio

from pushlane import Outcome, Push


async def send(push: Push) -> Outcome | None:
    await asyncio.sleep(0.02)
    if push.seq % 20 == 0:
        return Outcome.gone("no such device")
    if push.seq % 7 == 0 and push.attempt == 1:
        return Outcome.retry("busy", after_s=0.1)
"""

Queries = list[tuple[str, str]]


@pytest.fixture
def dispatching(pushlane: Pushlane) -> tuple[Running, int]:
    """Two workers with enough to do, one app held back, and the port of their metrics."""
    (pushlane.folder / "shop.py").write_text(PROCESSOR)
    for level in ("high", "medium", "low"):
        pushlane.submit(level, PUSHES, "--app", f"shop-{level}")
    pushlane("limit", "app/shop-low", "--rate", "50/s")
    port = free_port()
    workers = ("--workers", "2", "--slots", "10", "--metrics-port", str(port))
    return pushlane.dispatch("--sink", "shop:send", *workers), port


@pytest.fixture
def other_port(pushlane: Pushlane) -> Iterator[int]:
    """Where a rule, an alert, a receipts job and a producer are shown."""
    rules, alerts, job = RuleStats(), AlertStats(), JobStats()
    rules.events["every-day", "done"], rules.pushes["every-day"] = 1, 100
    rules.looked(0, leads=True)
    alerts.firing["too-many-die"] = 1
    job.stored_batch(100, 0.5, took_all=True)
    registry = CollectorRegistry()
    registry.register(shown(RULE_METRICS, rules))
    registry.register(shown(ALERT_METRICS, alerts))
    registry.register(shown(JOB_METRICS, job))
    settings = Settings(data_dir=Path(pushlane.settings["data_dir"]))
    with Producer("orders", settings=settings) as producer:
        registry.register(producer.collector())
        server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        yield server.server_port
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def ingest_port(pushlane: Pushlane) -> Iterator[int]:
    """Where an ingest of a folder is shown."""
    folder = pushlane.folder / "events"
    folder.mkdir()
    (folder / "0.jsonl").write_text('{"device": "d"}\n' * 3)
    mapping = pushlane.folder / "mapping.toml"
    mapping.write_text('recipient = "device"\ntitle = { value = "Hi" }\n')
    pushlane("streams", "put", "events", "--level", "low")
    port = free_port()
    words = ("--stream", "events", "--mapping", mapping, "--metrics-port", str(port))
    ingest = pushlane.start("ingest", folder, *words)
    yield port
    assert ingest.stop() == 0, ingest.text


def shown(metrics: Sequence[ReadMetric[Any]], stats: object) -> MetricCollector[Any]:
    return MetricCollector(metrics, lambda: [(stats, ())])


def panel_queries() -> Queries:
    """Each panel with each of its expressions, as Grafana would ask."""
    panels = json.loads((CHART / "dashboards" / "pushlane.json").read_text())["panels"]
    return [
        (panel["title"], re.sub(r"\$\w+", lambda name: VARIABLES[name[0]], target["expr"]))
        for panel in panels
        for target in panel.get("targets", ())
    ]


def unanswered(prometheus: OwnPrometheus, queries: Queries) -> Queries:
    return [one for one in queries if not prometheus.query(one[1])]


@pytest.mark.parametrize("pushlane", ["embedded"], indirect=True)
def test_every_panel_has_an_answer_and_every_metric_is_scraped(
    pushlane: Pushlane,
    dispatching: tuple[Running, int],
    other_port: int,
    ingest_port: int,
    prometheus: OwnPrometheus,
) -> None:
    dispatch, port = dispatching
    targets = [f"127.0.0.1:{one}" for one in (port, other_port, ingest_port)]
    prometheus.start(targets, CHART / "rules" / "pushlane.yaml")
    missing = [one for one in panel_queries() if one[0] not in NOT_IN_THIS_RUN]
    assert missing

    def all_answered() -> bool:
        missing[:] = unanswered(prometheus, missing)
        return not missing or dispatch.has_ended

    try:
        until(all_answered, _DEADLINE_S)
    except AssertionError as late:
        raise AssertionError(f"no answer: {missing}") from late
    assert missing == [], dispatch.text
    for _, expression in panel_queries():
        prometheus.query(expression)
    until(lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"})
    ours = {name for name in prometheus.names() if "pushlane_" in name}
    assert ours == {name for name in series_names() if "pushlane_" in name}
    assert dispatch.stop() == 0
