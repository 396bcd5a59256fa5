"""What a line of a dispatcher counts, in plain integers on the hot path.

Nothing here names a recipient or a push, and each dictionary has a bounded number of keys.
`line_metrics` shows these counts to Prometheus.
"""

from __future__ import annotations

from pushlane.lanes.death_reasons import MOST_REASONS, OTHER
from pushlane.lanes.limits import KINDS
from pushlane.lanes.metric import SHORT_BUCKETS_S, Buckets
from pushlane.lanes.ports import ClaimResult
from pushlane.lanes.push import Kind
from pushlane.lanes.task import Level

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
    """Counts of one dispatcher since it started.

    `held_s` adds up for how long each of the `released` pushes has held its slot. Of very many apps
    the first are counted.
    """

    def __init__(self) -> None:
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

    def pick(self, level: Level, app: str) -> None:
        """Count a push that is sent."""
        self.picked[level] += 1
        if app in self.picked_of_app:
            self.picked_of_app[app] += 1
        elif len(self.picked_of_app) < _MOST_APPS:
            self.picked_of_app[app] = 1
