"""What the process that looks after alerts counts, and the metrics that it shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pushlane.util.metrics import Exporter, MetricMaker, ReadMetric

if TYPE_CHECKING:
    from pushlane.pipeline.alerts.watch import AlertCheck

_MOST_ALERTS = 100


class AlertStats:
    """The counts of one process since it started; of very many alerts the first are shown."""

    def __init__(self, clock_s: Callable[[], float] = time.time) -> None:
        self._clock_s = clock_s
        self.looked_at_s = 0.0
        self.evaluations = {"ok": 0, "failed": 0}
        self.told = 0
        self.firing: dict[str, int] = {}

    def looked(self, checks: Sequence[AlertCheck]) -> None:
        """Note a look at all alerts. One that could not be measured fires as it did before."""
        before = self.firing
        self.firing = {}
        for check in checks:
            name = check.rule.name
            self.evaluations["failed" if check.problem else "ok"] += 1
            self.told += len(check.told)
            if len(self.firing) < _MOST_ALERTS:
                now = check.firing
                self.firing[name] = before.get(name, 0) if now is None else now
        self.looked_at_s = self._clock_s()


_make: MetricMaker[AlertStats] = MetricMaker(Exporter.ALERTS)

ALERT_METRICS: tuple[ReadMetric[AlertStats], ...] = (
    _make.counter(
        "alerts_evaluations_total",
        "looks",
        "Looks at one alert: `failed` if it could not be measured, or its webhook not told",
        lambda stats: stats.evaluations,
        {"result": ("ok", "failed")},
    ),
    _make.gauge(
        "alerts_firing",
        "groups",
        "Groups of an alert that fire now",
        lambda stats: stats.firing,
        {"rule": ()},
    ),
    _make.counter(
        "alerts_told_total",
        "messages",
        "Messages that webhooks have taken",
        lambda stats: stats.told,
    ),
    _make.gauge(
        "alerts_looked_at_seconds",
        "Unix seconds",
        "When all alerts were looked at last",
        lambda stats: stats.looked_at_s,
    ),
)
"""All metrics of a process that looks after alerts, in the order in which they are shown."""
