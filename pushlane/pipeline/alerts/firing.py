"""Decides when an alert is told: when it fires, as a reminder, and when it has recovered.

These are pure functions from the last state and new measurements to the next state. A message stays
in the state, under an id that does not change, until it is delivered.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pushlane.pipeline.alerts.alert_rule import AlertRule
from pushlane.pipeline.alerts.measure import Measured
from pushlane.pipeline.reports.counts import Key

MOST_KEPT = 100
"""The most groups of a rule that are kept; the first to fire keep their places."""


class AlertMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON that a webhook gets.

    `since_ms` is when the threshold was first crossed, `at_ms` when this message was made.
    """

    id: str
    alert: str
    status: str
    metric: str
    when: str
    value: float
    n: int
    group: dict[str, str]
    window_s: int
    since_ms: int
    at_ms: int
    text: str


class AlertGroup(msgspec.Struct, frozen=True):
    """The state of a group that is alarming, or was until its recovery is told.

    `told` says that its firing was announced, or is about to be, so that its recovery must be
    announced too.
    """

    since_ms: int
    told: bool = False
    told_at_ms: int = 0
    pending: AlertMessage | None = None


AlertState = dict[str, AlertGroup]


def next_state(
    rule: AlertRule, state: Mapping[str, AlertGroup], found: Mapping[Key, Measured], now_ms: int
) -> AlertState:
    """Return the state after a measurement, where messages that are still pending come first."""
    by_name = {group_name(key): (key, measured) for key, measured in found.items()}
    names = sorted(by_name, key=lambda name: name not in state)
    gone = [name for name in state if name not in by_name]
    new: AlertState = {}
    for name in (*gone, *names):
        key, measured = by_name.get(name) or (_key(name), Measured(0.0, 0))
        group = _next(rule, state.get(name), key, measured, now_ms)
        if group and len(new) < MOST_KEPT:
            new[name] = group
    return new


def after_delivery(state: Mapping[str, AlertGroup], name: str, now_ms: int) -> AlertState:
    """Return the state after the webhook has taken the pending message of this group."""
    group = state[name]
    rest = {other: kept for other, kept in state.items() if other != name}
    if group.pending and group.pending.status == "recovered":
        return rest
    return {**rest, name: AlertGroup(group.since_ms, group.told, now_ms)}


def fires(state: Mapping[str, AlertGroup]) -> int:
    """Return how many groups fire: those that were told, or are about to be, and not recovered."""
    return sum(
        group.told and not (group.pending and group.pending.status == "recovered")
        for group in state.values()
    )


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
    rule: AlertRule, group: AlertGroup | None, key: Key, measured: Measured, now_ms: int
) -> AlertGroup | None:
    if group and group.pending:
        return group
    if not is_alarming(rule, measured, is_known=group is not None):
        if group is None or not group.told:
            return None
        return _announced(rule, group, key, measured, now_ms, "recovered")
    group = group or AlertGroup(now_ms)
    if not group.told:
        is_due = now_ms - group.since_ms >= rule.for_s * 1000
        return _announced(rule, group, key, measured, now_ms, "firing") if is_due else group
    is_due = bool(rule.remind_s) and now_ms - group.told_at_ms >= rule.remind_s * 1000
    return _announced(rule, group, key, measured, now_ms, "reminder") if is_due else group


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
