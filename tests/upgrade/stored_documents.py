"""A rule and an alert as 0.2.0 has stored them."""

from __future__ import annotations

from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric, Threshold
from pushlane.pipeline.rules.rule import Rule

AT = 1_790_000_000_000

RULE = Rule(
    name="weekly",
    audience="/data/people.parquet",
    where="plan = 'gold'",
    cron="0 9 * * 1",
    task={"level": "low", "title": "Hello"},
    budget_day=1000,
    since_ms=AT,
)
ALERT = AlertRule(
    name="dead",
    metric=Metric.DEAD,
    when=Threshold(True, 5.0),
    url="https://example.com/a",
    by="app",
    where=("level=high",),
    window_s=600,
    remind_s=60,
)
