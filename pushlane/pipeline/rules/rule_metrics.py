"""What a scheduler of rules counts, and the metrics that it shows."""

from __future__ import annotations

import time

from pushlane.pipeline.rules.history import Run, RunState
from pushlane.util.metrics import Exporter, Labels, MetricMaker, ReadMetric

_MOST_RULES = 100
_OTHER = "other"
_RESULTS = (RunState.DONE, RunState.WAITING, RunState.FAILED, RunState.REFUSED)


class RuleStats:
    """The counts of one scheduler since it started; rules behind the first hundred count as one."""

    def __init__(self) -> None:
        self.leads = False
        self.looked_at_s = 0.0
        self.due = 0
        self.events: dict[tuple[str, str], int] = {}
        self.pushes: dict[str, int] = {}

    def looked(self, due: int, *, leads: bool) -> None:
        """Note a look at all rules, of which so many runs are due or under way."""
        self.leads, self.due = leads, due
        self.looked_at_s = time.time()

    def ran(self, rule: str, run: Run) -> None:
        """Note how an attempt at a run of a rule came out."""
        name = rule if rule in self.pushes or len(self.pushes) < _MOST_RULES else _OTHER
        self.pushes[name] = self.pushes.get(name, 0) + (run.total or 0)
        event = (name, run.state)
        self.events[event] = self.events.get(event, 0) + 1


_RULE: Labels = {"rule": ()}

_make: MetricMaker[RuleStats] = MetricMaker(Exporter.RULES)

RULE_METRICS: tuple[ReadMetric[RuleStats], ...] = (
    _make.gauge(
        "rules_leader",
        "0 or 1",
        "1 in the process that runs the rules; others stand by",
        lambda stats: stats.leads,
    ),
    _make.gauge(
        "rules_looked_at_seconds",
        "Unix seconds",
        "When the rules were looked at last",
        lambda stats: stats.looked_at_s,
    ),
    _make.gauge("rules_due", "runs", "Runs that are due or under way", lambda stats: stats.due),
    _make.counter(
        "rules_events_total",
        "attempts",
        "Attempts at runs, by how they came out: `waiting` is tried again",
        lambda stats: stats.events,
        {**_RULE, "result": tuple(map(str, _RESULTS))},
    ),
    _make.counter(
        "rules_pushes_total",
        "pushes",
        "Pushes that runs have put on a lane",
        lambda stats: stats.pushes,
        _RULE,
    ),
)
"""All metrics of a scheduler of rules, in the order in which they are shown."""
