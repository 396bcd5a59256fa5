"""Carries out one run: stores that it begins, expands it, and stores how it ended.

After a kill at any point, the next leader carries it out again under the same key. The function
that expands an audience is passed in.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pushlane.backends.ports import Registry
from pushlane.core.errors import PushlaneError, TaskConflict, UserError
from pushlane.pipeline.fanout import AudienceTooLarge, EmptyAudience
from pushlane.pipeline.rules import history
from pushlane.pipeline.rules.history import Edit, Run, RunState, iso_utc
from pushlane.pipeline.rules.rule import Rule
from pushlane.pipeline.rules.rule_store import RuleStore
from pushlane.util.errors import UnknownTask
from pushlane.util.metrics import Exporter, Labels, MetricMaker, ReadMetric

_MOST_RULES = 100
_OTHER = "other"
_RESULTS = (RunState.DONE, RunState.WAITING, RunState.FAILED, RunState.REFUSED)


@dataclass(eq=False)
class RuleStats:
    """The counts of one scheduler since it started; rules behind the first hundred count as one."""

    leads: bool = False
    looked_at_s: float = 0.0
    due: int = 0
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    pushes: Counter[str] = field(default_factory=Counter)

    def looked(self, due: int, *, leads: bool) -> None:
        """Note a look at all rules, of which so many runs are due or under way."""
        self.leads, self.due = leads, due
        self.looked_at_s = time.time()

    def ran(self, rule: str, run: Run) -> None:
        """Note how an attempt at a run of a rule came out."""
        name = rule if rule in self.pushes or len(self.pushes) < _MOST_RULES else _OTHER
        self.pushes[name] += run.total or 0
        self.events[name, run.state] += 1


_RULE: Labels = {"rule": ()}

_make: MetricMaker[RuleStats] = MetricMaker(Exporter.RULES)

RULE_METRICS: tuple[ReadMetric[RuleStats], ...] = (
    _make.gauge(
        "rules_leader",
        "0 or 1",
        "1 in the process that runs the rules, 0 in a standby",
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

log = logging.getLogger("pushlane.rules")


@dataclass(frozen=True)
class RunOrder:
    """An order to expand a rule, which is refused with AudienceTooLarge above `most` pushes.

    An order of the same key resumes where the last one stopped, with the audience it had then.
    """

    rule: Rule
    key: str
    most: int | None


@dataclass(frozen=True)
class Expanded:
    """The sealed task of a run, and how many pushes it has."""

    task_id: str
    total: int


Expand = Callable[[RunOrder], Awaitable[Expanded]]


@dataclass(frozen=True, eq=False)
class Runner:
    """Carries out runs that are noted in the store; `stats` is told how each came out."""

    store: RuleStore
    registry: Registry
    expand: Expand
    now_ms: Callable[[], int]
    stats: RuleStats = field(default_factory=RuleStats)

    async def carry_out(self, name: str, at_ms: int, fence: int) -> None:
        """Carry out the run of this rule and time, as the leader of this fence.

        Raises Superseded if another leader has taken the run over, and Unreachable if the shelf
        does not answer: the run is then still as it was last written down.
        """
        rule = (await self.store.record(name)).rule
        started = history.begin(rule, at_ms, fence, self.now_ms())
        run = (await self.store.change_history(name, started)).find(at_ms)
        if run is not None and run.state is RunState.RUNNING and run.rule is not None:
            _log_run(name, run)
            order = RunOrder(run.rule, history.run_key(name, at_ms), run.most)
            ended = await self._expanded(order, run)
            run = (await self.store.change_history(name, ended)).find(at_ms)
            if run is not None:
                self.stats.ran(name, run)
        if run is not None:
            _log_run(name, run)

    async def _expanded(self, order: RunOrder, run: Run) -> Edit:
        try:
            made = await self.expand(order)
        except EmptyAudience as error:
            return self._ended(run, RunState.DONE, str(error), total=0)
        except AudienceTooLarge as error:
            return self._ended(run, RunState.REFUSED, str(error), total=0)
        except PushlaneError as error:
            may_pass = isinstance(error, TaskConflict) or not isinstance(error, UserError)
            return await self._failed(order, run, str(error), may_pass=may_pass)
        except Exception as error:  # noqa: BLE001 - other rules go on; its text may quote rows
            reason = f"unexpected {type(error).__name__}; please report it"
            return await self._failed(order, run, reason, may_pass=True)
        return self._ended(run, RunState.DONE, task_id=made.task_id, total=made.total)

    async def _failed(self, order: RunOrder, run: Run, reason: str, *, may_pass: bool) -> Edit:
        if may_pass and run.failures + 1 < history.MOST_FAILURES:
            return history.retry_later(run.at_ms, run.fence, self.now_ms(), reason)
        task_id, total = await self._published(order.key)
        return self._ended(run, RunState.FAILED, reason, task_id=task_id, total=total)

    async def _published(self, key: str) -> tuple[str, int | None]:
        """Return the task that the run has made, and its pushes, None if that is not known."""
        try:
            task = await self.registry.get(key)
        except UnknownTask:
            return "", 0
        return (task.id, task.total) if task.key == key else ("", 0)

    def _ended(
        self,
        run: Run,
        state: RunState,
        reason: str = "",
        *,
        task_id: str = "",
        total: int | None,
    ) -> Edit:
        now_ms = self.now_ms()
        return history.end(
            run.at_ms, run.fence, now_ms, state, reason=reason, task_id=task_id, total=total
        )


def _log_run(name: str, run: Run) -> None:
    why = f": {run.reason}" if run.reason and run.state is not RunState.RUNNING else ""
    level = logging.WARNING if run.state in _TROUBLE else logging.INFO
    extra = {"action": f"run_{run.state}", "rule": name, "task": run.task_id}
    due = iso_utc(run.at_ms)
    log.log(level, "rule %s, run of %s: %s%s", name, due, run.state, why, extra=extra)


_TROUBLE = (RunState.WAITING, RunState.FAILED, RunState.REFUSED)
