"""What a line of a dispatcher counts, and the reasons that it counts by.

Counts are plain integers on the hot path; `metrics` shows them to Prometheus. Nothing here names a
recipient or a push, and each dictionary has a bounded number of keys. A processor may answer "no
such number +49…", or one reason for a whole batch that names a single push of it. Reasons are
logged and shown, and stand in receipts and beside dead pushes: so what pushes hold is taken out of
them before anybody sees one.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from pushlane.backends.guard_ports import ClaimResult
from pushlane.core.intake import STALE_S
from pushlane.core.lane import Job
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, EXPIRED, Kind, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.model.due import eligible_ms
from pushlane.model.limits import KINDS
from pushlane.model.reasons import DEAD_ADDRESS, MOST_REASONS, OTHER
from pushlane.model.waits import Cause
from pushlane.util.buckets import SHORT_BUCKETS_S, Buckets
from pushlane.util.texts import MASK

log = logging.getLogger("pushlane.intake")

OF_CODE = "processor"
"""Stands in metrics for whatever a function of a user's own gave as its reason."""

_LONGEST_LABEL = 64
_GAVE_UP = re.compile(r"gave up after \d+ attempts?: ")
_DETAIL = re.compile(r": |; | \(")
_OURS = re.compile(r"processor (?:raised [A-Za-z_]\w{0,50}|returned False)(?!\w)", re.ASCII)
_SHORT = 4  # such a value may be a part of any word or number
_LEAST = 6  # of content: what is shorter tells nothing, and may be a word of the reason
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*")  # what nobody escapes


def _tells_pace(outcome: Outcome) -> bool:
    """Tell whether how long an answer took says what the sink can take.

    A failure that may be the sink's own, as a refused connection, comes at once and does not. One
    for want of time held its slot for all of that.
    """
    is_own = outcome.kind is not Kind.RETRY or outcome.scope in (Scope.PUSH, Scope.RECIPIENT)
    return is_own or outcome.is_silent


def without_values(outcomes: Sequence[Outcome], batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Return the outcomes with recipients, addresses and content of the batch masked in reasons."""
    reasons = {outcome.reason for outcome in outcomes if outcome.reason}
    if not reasons:
        return outcomes
    forms = _forms_in(reasons, batch)
    if not forms:
        return outcomes
    cleaned = {reason: _cleaned(reason, forms) for reason in reasons}
    return [
        replace(outcome, reason=cleaned[outcome.reason]) if outcome.reason else outcome
        for outcome in outcomes
    ]


def as_label(reason: str, *, is_own_words: bool) -> str:
    """Return what of a reason tells its kind, for a metric: nothing that somebody else has written.

    `is_own_words` says that it is a reason of a user's own function. The details behind a colon, a
    semicolon or a bracket are left out, as there are too many of them.
    """
    if is_own_words:
        return OF_CODE
    kind = _DETAIL.split(_GAVE_UP.sub("", reason), maxsplit=1)[0]
    return "".join(filter(str.isprintable, kind))[:_LONGEST_LABEL] or "none"


def reason_class(reason: str, *, is_own_words: bool) -> str:
    """Return the same for logs and counts of a task, which tell apart how a function failed.

    What it raised is named by us; its own words are not told.
    """
    ours = _OURS.match(_GAVE_UP.sub("", reason)) if is_own_words else None
    return ours[0] if ours else as_label(reason, is_own_words=is_own_words)


def _forms_in(reasons: Collection[str], batch: Sequence[Delivery]) -> list[str]:
    """Return what stands in any of the reasons of the values of the batch, the longest first.

    There may be thousands of each. Most stand nowhere, which their first or last characters tell.
    """
    text, longest = "\n".join(reasons), max(map(len, reasons))
    parts = {text[place : place + _SHORT] for place in range(len(text))}

    def stands(form: str) -> bool:
        may = len(form) < _SHORT or (form[:_SHORT] in parts and form[-_SHORT:] in parts)
        return may and form in text

    found = {value for one in batch for value in _values(one.push) if len(value) <= longest}
    forms = {form for value in found for form in _forms(value) if stands(form)}
    return sorted(forms, key=len, reverse=True)


def _cleaned(reason: str, forms: Sequence[str]) -> str:
    for form in forms:
        if form not in reason:
            continue
        if len(form) < _SHORT:
            reason = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, reason)
        else:
            reason = reason.replace(form, MASK)
    return reason


def _forms(value: str) -> Iterator[str]:
    """Yield a text as it is, and as it stands in a URL, in JSON and in Python's own words."""
    yield value
    if _PLAIN.fullmatch(value):
        return
    yield quote(value, safe="", errors="replace")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]


def _values(push: Push) -> Iterator[str]:
    """Yield the texts that identify a recipient, and those of the content that are no mere word."""
    yield from filter(None, (push.recipient, *(push.addresses or {}).values()))
    for text in _texts((push.title, push.body, push.data, push.payloads)):
        if len(text) >= _LEAST:
            yield text


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a value, however deep it is."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, int | float):
            yield str(one)


DUPLICATE = "duplicate"
DUPLICATE_KEY = "duplicate key"
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


class ReceiptLoss(StrEnum):
    """Why an outcome that was settled has no receipt in the log."""

    FULL = "full"
    """The log was behind, and what waits in memory had to make room."""
    KEY = "key"
    """The key of the hashes could not be learnt."""
    STOPPED = "stopped"
    """The log was still behind when its process stopped."""


class Stats:
    """Counts of one line since it started.

    `held_s` adds up for how long each of the `released` pushes has held its slot: those whose
    answer tells the sink's pace. Of very many apps the first are counted. `hosts_code` says that
    the sink's reasons are somebody's own words. `dead` counts dead pushes as metrics tell them
    apart, `died_of` by class, as logs do.
    """

    def __init__(self, *, hosts_code: bool = False) -> None:
        self._hosts_code = hosts_code
        self._is_slow = False
        self.picked = dict.fromkeys(Level, 0)
        self.picked_of_app: dict[str, int] = {}
        self.outcomes = {(level, kind): 0 for level in Level for kind in Kind}
        self.waited = {level: Buckets() for level in Level}
        self.waits_ms = {(cause, level): 0 for cause in Cause for level in Level}
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
        self.receipts_lost = dict.fromkeys(ReceiptLoss, 0)
        self.out_of_order = 0
        self.dropped = dict.fromkeys((DUPLICATE, DUPLICATE_KEY, SUPERSEDED, SUPPRESSED, CAPPED), 0)
        self.dead_addresses = ByReason()
        self.retries = ByReason()
        self.dead = ByReason()
        self.died_of = ByReason()
        self.probes = 0
        self.spared = 0
        self.limited = dict.fromkeys(KINDS, 0)
        self.limit_waits = {kind: Buckets() for kind in KINDS}
        self.decode = Buckets(SHORT_BUCKETS_S)

    def __repr__(self) -> str:
        """Return what became of pushes: `<Stats delivered 3, dead 1>`."""
        counts: Counter[str] = Counter()
        for (_, kind), count in self.outcomes.items():
            counts[kind.value] += count
        return f"<Stats {', '.join(f'{kind} {n:,}' for kind, n in counts.items() if n) or 'none'}>"

    def read(self, took_s: float) -> None:
        """Count the reading of the pushes of one message."""
        self.decode.add(took_s)

    def asked(self, took_s: float) -> None:
        """Log when the registry begins to answer too late to let anything go, and when no more."""
        was_slow, self._is_slow = self._is_slow, took_s > STALE_S
        if self._is_slow and not was_slow:
            log.warning(
                "the registry took %.1f s to say which pushes are over, or this process was "
                "stopped meanwhile: pushes that wait for its answers go once these take less "
                "than %g s",
                took_s,
                STALE_S,
                extra={"action": "registry_slow"},
            )
        elif was_slow and not self._is_slow:
            log.info("the registry answers in time again", extra={"action": "registry_in_time"})

    def answered(self, took_s: float) -> None:
        """Count one call of the sink."""
        self.delivery.add(took_s)

    def freed(self, outcomes: Sequence[Outcome], held_s: float) -> None:
        """Count answers that tell the pace of the sink, and the seconds that these took."""
        told = len(outcomes)
        if outcomes.count(DELIVERED) < told:  # else, as nearly always, each tells it
            told = sum(map(_tells_pace, outcomes))
        self.released += told
        self.held_s += held_s * told

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
        self.died_of.add("malformed")

    def address_died(self, reason: str) -> None:
        """Count an address that was recorded as dead."""
        self.dead_addresses.add(self._label(reason))

    def retried(self, level: Level, outcome: Outcome) -> None:
        """Count a push that is tried again, here or at another sink."""
        self.outcomes[level, Kind.RETRY] += 1
        self.retries.add(self._label(outcome.reason))

    def why(self, outcome: Outcome) -> str:
        """Count a push that ended so; return the class of the reason, which names nobody."""
        reason = self._class(outcome)
        if outcome.kind is Kind.DEAD:
            self.dead.add(self._label(outcome.reason))
            self.died_of.add(reason)
        return reason

    def _class(self, outcome: Outcome) -> str:
        if outcome.kind is Kind.DEAD:
            if outcome.scope is Scope.RECIPIENT:
                return DEAD_ADDRESS
        elif outcome.reason in ("", EXPIRED.reason):
            return outcome.reason
        return reason_class(outcome.reason, is_own_words=self._hosts_code)

    def _label(self, reason: str) -> str:
        return as_label(reason, is_own_words=self._hosts_code)

    def sent(self, level: Level, app: str) -> None:
        """Count a push that is sent."""
        self.picked[level] += 1
        if app in self.picked_of_app:
            self.picked_of_app[app] += 1
        elif len(self.picked_of_app) < _MOST_APPS:
            self.picked_of_app[app] = 1
