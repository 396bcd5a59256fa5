"""Says to people what an alert means, and which command looks for the cause of what fires."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from pushlane.pipeline.alerts.alert_rule import AlertRule, Metric

_QUOTED = re.compile(r'[",\r\n]')
_BY_REASON = "pushlane report --since 1h --by sink,reason"


class _Meaning(NamedTuple):
    """The meaning of a figure, why it may be alarming, and the command that looks for the cause.

    One that `takes_where` is asked of just the pushes of the group. The figure is a part of 1 if it
    `is_part`, else it is in a `unit`. `why_under` says why it may be too low.
    """

    figure: str
    why: str
    command: str
    takes_where: str | None = None
    is_part: bool = False
    unit: str = ""
    why_under: str = ""


_MEANINGS: Mapping[Metric, _Meaning] = {
    Metric.FAILURE_RATE: _Meaning(
        "the part of tried pushes that die",
        "A sink refuses them for good, or they run out of attempts: look at the reasons.",
        _BY_REASON,
        "outcome=dead",
        is_part=True,
    ),
    Metric.RETRY_RATE: _Meaning(
        "the part of attempts that are tried again",
        "A sink does not answer, or refuses for now: look at the reasons.",
        _BY_REASON,
        "outcome=retry",
        is_part=True,
    ),
    Metric.DEAD: _Meaning(
        "the number of pushes that die",
        "A sink refuses them for good, or they run out of attempts: look at the reasons.",
        _BY_REASON,
        "outcome=dead",
    ),
    Metric.EXPIRED: _Meaning(
        "the number of pushes that expire",
        "Their turn comes too late: a limit, too few slots, or a sink that rests.",
        "pushlane why",
    ),
    Metric.DROPPED: _Meaning(
        "the number of pushes that are dropped",
        "Recipients are suppressed, their addresses are dead, or they have had their pushes.",
        _BY_REASON,
        "outcome=dropped",
    ),
    Metric.RATE: _Meaning(
        "the number of attempts a second",
        "More is sent than usual: see which apps and tasks send.",
        "pushlane why",
        why_under="Nothing is submitted, or something holds it.",
    ),
    Metric.P99_WAIT_MS: _Meaning(
        "the wait for a slot, of the slowest 1 %,",
        "There is more to send than slots, limits and sinks let through.",
        "pushlane why",
        unit=" ms",
    ),
    Metric.P99_DELIVERY_MS: _Meaning(
        "the time until the sink answers, of the slowest 1 %,",
        "A sink answers slowly: ask its provider, or give it more slots.",
        "pushlane processes",
        unit=" ms",
    ),
    Metric.SHARE_ERROR: _Meaning(
        "the part of its share that somebody does not get while waiting",
        "Its deliveries are slow, a limit holds it, or not all processes read its lanes.",
        "pushlane levels",
        is_part=True,
    ),
    Metric.LAG_S: _Meaning(
        "the time by which the store of reports is behind the log of receipts",
        "`pushlane pipeline run` does not run, or is too slow; no other alert is judged meanwhile.",
        "pushlane pipeline status",
        unit=" s",
    ),
}


def meaning_of(rule: AlertRule) -> str:
    """Return two sentences: when the alert fires, and why that may be."""
    means, when = _MEANINGS[rule.metric], rule.when
    if when.is_change:
        bound = f"{when.limit:g} times that of the window before"
    elif means.is_part:
        bound = f"{100 * when.limit:g} %"
    else:
        bound = f"{when.limit:,g}{means.unit}"
    over = "over" if when.is_over else "under"
    time = "" if rule.metric is Metric.LAG_S else f" in {rule.window_s // 60} min"
    by = " and ".join(one.heading for one in rule.dimensions)
    each = f", for each {by}" if by else ""
    why = means.why if when.is_over else means.why_under or means.why
    return f"It fires when {means.figure} is {over} {bound}{time}{each}. {why}"


def command_of(rule: AlertRule, group: Mapping[str, str]) -> str:
    """Return the command that looks for the cause of what a group fires about."""
    means = _MEANINGS[rule.metric]
    if means.takes_where is None:
        return means.command
    # a condition cannot say that a value has a `|`, which stands between alternatives there
    own = (condition(name, value) for name, value in group.items() if "|" not in value)
    where = [one for text in (means.takes_where, *rule.where, *own) for one in ("--where", text)]
    return f"{means.command} {shlex.join(where)}"


def condition(dimension: str, value: str) -> str:
    """Return the condition that a push has this value, in quotes where a report needs them."""
    quoted = value.replace('"', '""')
    return f'"{dimension}={quoted}"' if _QUOTED.search(value) else f"{dimension}={value}"
