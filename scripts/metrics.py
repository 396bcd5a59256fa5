"""Gathers the definitions of all metrics that any process shows."""

from __future__ import annotations

from pushlane.backends.process_metrics import PROCESS_METRICS
from pushlane.cli.workers_health import WORKER_METRICS
from pushlane.dispatcher.metrics import DISPATCHER_METRICS, LEADER_METRICS, LINE_METRICS
from pushlane.ingest.metrics import INGEST_METRICS
from pushlane.pipeline.alerts.watch import ALERT_METRICS
from pushlane.pipeline.receipts.job import JOB_METRICS
from pushlane.pipeline.rules.runner import RULE_METRICS
from pushlane.producers.outbox.buffer import PRODUCER_METRICS
from pushlane.util.metrics import MetricDefinition

METRICS: tuple[MetricDefinition, ...] = tuple(
    one.metric
    for group in (
        DISPATCHER_METRICS,
        LINE_METRICS,
        WORKER_METRICS,
        LEADER_METRICS,
        PROCESS_METRICS,
        JOB_METRICS,
        RULE_METRICS,
        ALERT_METRICS,
        INGEST_METRICS,
        PRODUCER_METRICS,
    )
    for one in group
)
"""All of them, those of one kind of process together."""
