"""Measures the figure that an alert rule watches, and tells whether the alert fires.

The figure is of the last complete window, and of the one before. It is read from the counts alone,
unless a rule's attributes need detail rows. When an alert is told (as it fires, as a reminder, and
when it has recovered) is decided by pure functions from the last state and new measurements to the
next state. A message stays in the state, under an id that does not change, until it is delivered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pushlane.backends.ports import ReceiptLog
from pushlane.core.errors import BadInput
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric
from pushlane.pipeline.alerts.alert_store import (
    NOTHING_KNOWN,
    Acknowledgement,
    Acknowledgements,
    AlertGroup,
    AlertMessage,
    AlertState,
)
from pushlane.pipeline.reports import report, sections
from pushlane.pipeline.reports.answers import QUANTILES, Count, Key, by_id
from pushlane.pipeline.reports.engine import Engine
from pushlane.pipeline.reports.query import Condition, Dimension, Period, Query
from pushlane.pipeline.reports.query_runner import run_query
from pushlane.pipeline.reports.sections import TRIED, SentByLevel, count, lateness
from pushlane.pipeline.store import CorruptStore, Store, open_store
from pushlane.util.errors import ReceiptsGone

MINUTE_MS = 60_000
MOST_GROUPS = 10_000
QUEUED_MS = 1_000
"""A name whose pushes wait less than this has no queue, and so no claim to a share."""
_STAGES = {Metric.P99_WAIT_MS: "wait", Metric.P99_DELIVERY_MS: "delivery"}
_DELIVERED = Condition(Dimension("outcome"), ("delivered",))


@dataclass(frozen=True)
class Measured:
    """The figure of one group over `n` receipts, and the same of the window before."""

    value: float
    n: int
    before: float | None = None
    n_before: int = 0


Figures = dict[Key, tuple[float, int]]


def measure(
    root: Path,
    rule: AlertRule,
    now_ms: int,
    lag: int | None,
    bounds: ReadBounds = NO_BOUNDS,
) -> dict[Key, Measured]:
    """Measure every group that has receipts in one of the two windows, within the bounds of a read.

    `lag` is how many bodies of the log the store has not read; None when that is not known.
    Raises BadInput if there is no store, CorruptStore if a file cannot be read.
    """
    known_ms = open_store(root).state.last_batch_at_ms
    if rule.metric is Metric.LAG_S:
        behind_ms = 0 if lag == 0 else now_ms - known_ms
        return {(): Measured(behind_ms / 1000, lag or 1)}
    # A minute that was read by half counts too low, so the window ends before it.
    end_ms = (now_ms if lag == 0 else min(now_ms, known_ms)) // MINUTE_MS * MINUTE_MS
    length_ms = rule.window_s * 1000
    ends = (end_ms, end_ms - length_ms)
    now, before = (_figures(root, rule, Period.of(end - length_ms, end), bounds) for end in ends)
    return {key: _measured(key, now, before) for key in {**now, **before}}


def _measured(key: Key, now: Figures, before: Figures) -> Measured:
    value, n = now.get(key, (0.0, 0))
    past, n_before = before.get(key, (None, 0))
    return Measured(value, n, past, n_before)


async def lag_of(log: ReceiptLog, root: Path) -> int | None:
    """Return how many bodies of the log the store has not read; None if that cannot be known."""
    try:
        positions = open_store(root).state.positions
        return await log.lag(positions if positions is not None else await log.first())
    except (BadInput, CorruptStore, ReceiptsGone):
        return None


def _figures(root: Path, rule: AlertRule, period: Period, bounds: ReadBounds) -> Figures:
    query = Query(period, rule.dimensions, rule.conditions)

    def work(_: Store, engine: Engine) -> Figures:
        return _answer(engine, rule, _with_ids(engine, query))

    return run_query(root, period, work, bounds)


def _with_ids(engine: Engine, query: Query) -> Query:
    """Replace names of tasks by ids; a task that has no receipts in this window is allowed."""
    known = report.names(engine, query)
    of_tasks = [one for one in query.where if one.dimension.word == "task"]
    named = (name for one in of_tasks for name in one.values)
    absent = dict.fromkeys((name for name in named if name not in known.values()), "")
    return by_id(query, {**absent, **known})


def _answer(engine: Engine, rule: AlertRule, query: Query) -> Figures:
    if rule.metric is Metric.SHARE_ERROR:
        return _share_errors(sections.sent(engine, query.broken_down_by()), rule.dimensions[0].word)
    if stage := _STAGES.get(rule.metric):
        place = QUANTILES.index(0.99)
        late = lateness(engine, query.filtered(_DELIVERED))
        return {one.key: (one.quantiles_ms[place], one.n) for one in late if one.stage == stage}
    rows = count(engine, query, MOST_GROUPS).rows
    return {row.key: _figure(rule.metric, row, rule.window_s) for row in rows}


def _figure(metric: Metric, row: Count, window_s: int) -> tuple[float, int]:
    """Return the figure, and of how many receipts it is."""
    outcomes = Counter(row.by_outcome)
    tried = sum(outcomes[name] for name in TRIED)
    if metric is Metric.FAILURE_RATE:
        return row.failure_rate or 0.0, tried - outcomes["retry"]
    if metric is Metric.RETRY_RATE:
        return outcomes["retry"] / tried if tried else 0.0, tried
    if metric is Metric.RATE:
        return tried / window_s, row.n
    return float(outcomes[metric.value]), row.n


def _share_errors(sent: list[SentByLevel], word: str) -> Figures:
    """Return how much less than its share each name sent in the minutes in which it had to wait."""
    found = sections.by_level(sent) if word == "level" else sections.by_task(sent)
    waited = _waited(sent, word)
    missing: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for each in found:
        if waited[each.at_ms, each.name] >= QUEUED_MS:
            less, of = missing[each.name]
            missing[each.name] = (less + each.entitled * each.of - each.n, of + each.of)
    return {(name,): (max(0.0, less / of), of) for name, (less, of) in missing.items()}


def _waited(sent: Iterable[SentByLevel], word: str) -> dict[tuple[int, str], float]:
    """Return the mean wait in milliseconds of each name in each minute."""
    waits_ms: Counter[tuple[int, str]] = Counter()
    pushes: Counter[tuple[int, str]] = Counter()
    for row in sent:
        key = (row.minute_ms, row.level if word == "level" else row.task_id)
        waits_ms[key] += row.wait_ms_sum
        pushes[key] += row.n
    return {key: wait_ms / pushes[key] for key, wait_ms in waits_ms.items()}


MOST_KEPT = 100
"""The most groups of a rule that are kept; the first to fire keep their places."""


def next_state(
    rule: AlertRule,
    state: Mapping[str, AlertGroup],
    found: Mapping[Key, Measured],
    now_ms: int,
    known: Acknowledgements = NOTHING_KNOWN,
) -> AlertState:
    """Return the state after a measurement, where messages that are still pending come first.

    Of what is `known` nobody is reminded.
    """
    by_name = {group_name(key): (key, measured) for key, measured in found.items()}
    names = sorted(by_name, key=lambda name: name not in state)
    gone = [name for name in state if name not in by_name]
    new: AlertState = {}
    for name in (*gone, *names):
        key, measured = by_name.get(name) or (_key(name), Measured(0.0, 0))
        group = _next(rule, state.get(name), key, measured, now_ms, known.get(name))
        if group and len(new) < MOST_KEPT:
            new[name] = group
    return new


def after_delivery(state: Mapping[str, AlertGroup], name: str, now_ms: int) -> AlertState:
    """Return the state after the webhook has taken the pending message of this group."""
    group = state[name]
    rest = {other: kept for other, kept in state.items() if other != name}
    if group.is_over:
        return rest
    return {**rest, name: AlertGroup(group.since_ms, group.told, now_ms)}


def fires(state: Mapping[str, AlertGroup]) -> int:
    """Return how many groups fire: those that were told, or are about to be, and not recovered."""
    return sum(group.fires for group in state.values())


def is_alarming(rule: AlertRule, measured: Measured, *, is_known: bool = False) -> bool:
    """Return True if the figure crosses the threshold and is of enough receipts.

    A group that falls silent has no receipts to count: too little is alarming if there was enough
    before, and stays so while the group `is_known` to be silent.
    """
    was_enough = measured.n_before >= rule.at_least
    enough = measured.n >= rule.at_least or (not rule.when.is_over and (was_enough or is_known))
    if rule.when.is_change and not was_enough:
        return False
    return enough and rule.when.is_crossed(measured.value, measured.before)


def group_name(key: Key) -> str:
    """Return the group's values as one text, which names it in the state."""
    return msgspec.json.encode([str(value) for value in key]).decode()


def _key(name: str) -> Key:
    return tuple(msgspec.json.decode(name, type=list[str]))


def _next(
    rule: AlertRule,
    group: AlertGroup | None,
    key: Key,
    measured: Measured,
    now_ms: int,
    known: Acknowledgement | None,
) -> AlertGroup | None:
    if group and group.pending:
        return group
    if not is_alarming(rule, measured, is_known=group is not None):
        if group is None or not group.told:
            return None
        return _announced(rule, group, key, measured, now_ms, "recovered")
    group = group or AlertGroup(now_ms)
    if group.told:
        is_due = bool(rule.remind_s) and now_ms - group.told_at_ms >= rule.remind_s * 1000
        is_due = is_due and not (known and known.is_of(group))
    else:
        is_due = now_ms - group.since_ms >= rule.for_s * 1000
    status = "reminder" if group.told else "firing"
    return _announced(rule, group, key, measured, now_ms, status) if is_due else group


def _announced(
    rule: AlertRule, group: AlertGroup, key: Key, measured: Measured, now_ms: int, status: str
) -> AlertGroup:
    labels = [dimension.heading for dimension in rule.dimensions]
    named = dict(zip(labels, map(str, key), strict=True))
    message = AlertMessage(
        id=f"{rule.name}:{group_name(key)}:{group.since_ms}:{status}:{group.told_at_ms}",
        alert=rule.name,
        status=status,
        metric=rule.metric.value,
        when=str(rule.when),
        value=measured.value,
        n=measured.n,
        group=named,
        window_s=rule.window_s,
        since_ms=group.since_ms,
        at_ms=now_ms,
        text=_text(rule, named, measured, status),
    )
    return AlertGroup(group.since_ms, told=True, told_at_ms=group.told_at_ms, pending=message)


def _text(rule: AlertRule, group: Mapping[str, str], measured: Measured, status: str) -> str:
    where = ", ".join(f"{name} {value or '(none)'}" for name, value in group.items())
    before = f", was {measured.before:g}" if rule.when.is_change and measured.before else ""
    return (
        f"{rule.name} {status}: {rule.metric.value} {measured.value:g} ({rule.when}{before})"
        f"{f' of {where}' if where else ''} over {rule.window_s // 60} min, {measured.n:,} receipts"
    )
