"""Counts of one line of a dispatcher, in plain integers on the hot path.

Nothing here names a recipient or a push, and each dictionary has a bounded number of keys.
`line_metrics` shows these counts to Prometheus.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pushlane.core.lane import Job
from pushlane.core.push import Kind, Outcome, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.reasons import as_label, death_class
from pushlane.lanes.death_reasons import DEAD_ADDRESS, MOST_REASONS, OTHER
from pushlane.lanes.deferral import eligible_ms
from pushlane.lanes.ports import ClaimResult
from pushlane.model.limits import KINDS
from pushlane.util.metrics import SHORT_BUCKETS_S, Buckets

DUPLICATE = "duplicate"
SUPERSEDED = "superseded"
SUPPRESSED = "suppressed"
CAPPED = "capped"

_MOST_APPS = 10_000


class ByReason(dict[str, int]):
    """Counts by reason, of which the first few are told apart and all behind them are one."""

    def add(self, reason: str) -> None:
        """Count one more."""
        if reason not in self and len(self) >= MOST_REASONS:
            reason = OTHER
        self[reason] = self.get(reason, 0) + 1


class Stats:
    """Counts of one line since it started.

    `held_s` adds up for how long each of the `released` pushes has held its slot. Of very many apps
    the first are counted. `hosts_code` says that the sink's reasons are somebody's own words.
    """

    def __init__(self, *, hosts_code: bool = False) -> None:
        self._hosts_code = hosts_code
        self.picked = dict.fromkeys(Level, 0)
        self.picked_of_app: dict[str, int] = {}
        self.outcomes = {(level, kind): 0 for level in Level for kind in Kind}
        self.waited = {level: Buckets() for level in Level}
        self.delivery = Buckets()
        self.held_s = 0.0
        self.released = 0
        self.forwarded = 0
        self.malformed = 0
        self.unknown_format = 0
        self.in_doubt = 0
        self.deferred = 0
        self.repeats = 0
        self.claims = dict.fromkeys(ClaimResult, 0)
        self.degraded = 0
        self.receipts = Buckets()
        self.receipts_written = 0
        self.receipts_left_out = 0
        self.out_of_order = 0
        self.dropped = dict.fromkeys((DUPLICATE, SUPERSEDED, SUPPRESSED, CAPPED), 0)
        self.dead_addresses = ByReason()
        self.retries = ByReason()
        self.dead = ByReason()
        self.probes = 0
        self.spared = 0
        self.limited = dict.fromkeys(KINDS, 0)
        self.limit_waits = {kind: Buckets() for kind in KINDS}
        self.decode = Buckets(SHORT_BUCKETS_S)

    def read(self, took_s: float) -> None:
        """Count the reading of the pushes of one message."""
        self.decode.add(took_s)

    def answered(self, took_s: float) -> None:
        """Count one call of the sink."""
        self.delivery.add(took_s)

    def freed(self, slots: int, held_s: float) -> None:
        """Count slots that are free again, and for how many seconds they were held together."""
        self.released += slots
        self.held_s += held_s

    def waited_since(self, job: Job) -> int:
        """Return since when (Unix ms) a push could go: what was asked for is no delay."""
        push, task = job.push, job.task
        if push.not_before_ms or task.not_before_ms or task.quiet:
            return eligible_ms(task, push)
        return push.submitted_at_ms

    def delivered(self, jobs: Sequence[Job]) -> None:
        """Count pushes that are delivered."""
        for level, count in Counter([job.lane.level for job in jobs]).items():
            self.outcomes[level, Kind.DELIVERED] += count

    def count_waits(self, jobs: Sequence[Job], at_ms: int) -> None:
        """Count for how long pushes had waited that were tried for the first time."""
        for job in jobs:
            push = job.push
            if push.submitted_at_ms and push.attempt == 1:
                waited_s = max(0, at_ms - self.waited_since(job)) / 1000
                self.waited[job.lane.level].add(waited_s)

    def ended(self, level: Level, kind: Kind) -> None:
        """Count a push that has ended."""
        self.outcomes[level, kind] += 1

    def unreadable(self, level: Level) -> None:
        """Count a push that died as it cannot be read."""
        self.outcomes[level, Kind.DEAD] += 1
        self.dead.add("malformed")

    def retried(self, level: Level, outcome: Outcome) -> None:
        """Count a push that is tried again, here or at another sink."""
        self.outcomes[level, Kind.RETRY] += 1
        self.retries.add(as_label(outcome.reason, is_own_words=self._hosts_code))

    def died(self, outcome: Outcome) -> str:
        """Count a push that died of this; return the class of the reason, which names nobody."""
        self.dead.add(as_label(outcome.reason, is_own_words=self._hosts_code))
        if outcome.scope is Scope.RECIPIENT:
            return DEAD_ADDRESS
        return death_class(outcome.reason, is_own_words=self._hosts_code)

    def sent(self, level: Level, app: str) -> None:
        """Count a push that is sent."""
        self.picked[level] += 1
        if app in self.picked_of_app:
            self.picked_of_app[app] += 1
        elif len(self.picked_of_app) < _MOST_APPS:
            self.picked_of_app[app] = 1
