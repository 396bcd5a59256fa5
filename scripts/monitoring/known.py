"""Every metric that a panel or an alert may name: ours, and what Prometheus and its client give."""

from __future__ import annotations

from functools import partial

from pushlane.util.metrics import Exporter, MetricDefinition, MetricKind
from scripts.metrics import METRICS

_gauge = partial(MetricDefinition, Exporter.EVERY, MetricKind.GAUGE)

OF_EACH_PROCESS = (
    _gauge("process_resident_memory_bytes", "bytes", "Memory that a process holds"),
    _gauge("process_open_fds", "files", "Files and sockets that a process has open"),
    _gauge("process_max_fds", "files", "Files and sockets that a process may have open"),
    MetricDefinition(
        Exporter.EVERY,
        MetricKind.COUNTER,
        "process_cpu_seconds_total",
        "seconds",
        "Time that a process had of a CPU",
    ),
)
"""The metrics that prometheus-client's ProcessCollector shows."""

OF_PROMETHEUS = (
    _gauge("up", "0 or 1", "1 for a process that Prometheus could read"),
    _gauge(
        "ALERTS",
        "1",
        "1 for each alert that waits for its time or fires",
        {"alertname": (), "alertstate": ("pending", "firing"), "severity": ()},
    ),
)
"""The metrics that Prometheus makes itself."""

_KNOWN = {one.name: one for one in (*METRICS, *OF_EACH_PROCESS, *OF_PROMETHEUS)}


def known(name: str) -> MetricDefinition:
    """Return the definition of a metric. Raises KeyError if nobody shows one of this name."""
    return _KNOWN[name]
