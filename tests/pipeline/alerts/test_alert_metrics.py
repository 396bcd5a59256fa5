"""What the process that looks after alerts counts."""

from __future__ import annotations

from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric, Threshold
from pushlane.pipeline.alerts.watch import AlertCheck, AlertStats


def check_of(name: str, firing: int | None, problem: str = "") -> AlertCheck:
    rule = AlertRule(
        name=name,
        metric=Metric.FAILURE_RATE,
        when=Threshold.parse("> 5%"),
        url="https://example.com/x",
    )
    return AlertCheck(rule, {}, [], problem, firing)


def test_an_alert_that_cannot_be_measured_fires_as_it_did() -> None:
    stats = AlertStats(lambda: 7.0)
    stats.looked([check_of("a", 2), check_of("b", 0)])
    stats.looked([check_of("a", None, "the store is damaged"), check_of("c", 1)])

    assert stats.firing == {"a": 2, "c": 1}
    assert stats.evaluations == {"ok": 3, "failed": 1}
    assert stats.looked_at_s == 7.0
