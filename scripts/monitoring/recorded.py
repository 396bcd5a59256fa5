"""Results that Prometheus works out once for all who look: each reads a series a bucket, level and
process, some ten thousands where there are many processes.
"""

from __future__ import annotations

from pushlane.util.metrics import MetricDefinition, MetricKind
from scripts.monitoring.expression import INSTALLATION, Selection
from scripts.monitoring.known import known
from scripts.monitoring.rules import RecordingRule

_OVER = "5m"


def _buckets(name: str, *by: str) -> RecordingRule:
    metric = known(name)
    expression = Selection({}, INSTALLATION).buckets(metric, *by, over=_OVER)
    recorded = MetricDefinition(
        metric.exporter,
        MetricKind.GAUGE,
        f"{'_'.join((*by, 'le'))}:{name}_bucket:rate{_OVER}",
        f"{metric.unit} in buckets",
        f"{metric.meaning}, over {_OVER}",
        dict.fromkeys((*by, "le"), ()),
    )
    return RecordingRule(recorded, expression)


WAITED = _buckets("pushlane_waited_seconds", "level", "sink")
DELIVERY = _buckets("pushlane_delivery_seconds", "sink")
LIMIT_WAIT = _buckets("pushlane_limit_wait_seconds", "scope", "sink")

RECORDED = (WAITED, DELIVERY, LIMIT_WAIT)
