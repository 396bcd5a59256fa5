"""The series that Prometheus may have of a pushlane."""

from __future__ import annotations

from pushlane.util.metrics import MetricKind
from scripts.metrics import METRICS
from scripts.monitoring.known import OF_EACH_PROCESS, OF_PROMETHEUS
from scripts.monitoring.recorded import RECORDED


def series_names() -> set[str]:
    """The name of each series that there is."""
    names = {rule.metric.name for rule in RECORDED}
    for metric in (*METRICS, *OF_EACH_PROCESS, *OF_PROMETHEUS):
        parts = ("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
        names.update(metric.name + part for part in parts)
    return names
