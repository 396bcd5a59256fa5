"""Shows alerts in a terminal and as JSON. Of a webhook only its host is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pushlane.cli.render import Column
from pushlane.cli.times import time_text

if TYPE_CHECKING:
    from pushlane.pipeline.alerts.alert_rule import AlertRule
    from pushlane.pipeline.alerts.firing import AlertGroup
    from pushlane.pipeline.alerts.measure import Measured
    from pushlane.pipeline.alerts.watch import AlertCheck

COLUMNS = (
    Column("NAME", elastic=True),
    Column("METRIC"),
    Column("WHEN"),
    Column("BY", elastic=True),
    Column("WHERE", elastic=True),
    Column("WINDOW", number=True),
    Column("TO", elastic=True),
)
FOUND_COLUMNS = (
    Column("GROUP", elastic=True),
    Column("VALUE", number=True),
    Column("BEFORE", number=True),
    Column("RECEIPTS", number=True),
    Column("ALARMING"),
)


def rule_row(rule: AlertRule) -> list[str]:
    where = " ".join(rule.where)
    window = f"{rule.window_s // 60} min"
    return [rule.name, rule.metric.value, str(rule.when), rule.by, where, window, rule.host]


def rule_json(rule: AlertRule) -> dict[str, Any]:
    return {
        "name": rule.name,
        "metric": rule.metric.value,
        "when": str(rule.when),
        "by": rule.by,
        "where": list(rule.where),
        "window_s": rule.window_s,
        "for_s": rule.for_s,
        "at_least": rule.at_least,
        "remind_s": rule.remind_s,
        "to": rule.host,
    }


def group_fields(groups: Mapping[str, AlertGroup]) -> list[tuple[str, str]]:
    """Return since when each group is alarming, and whether that was told."""
    return [(f"group {name}", _group_text(group)) for name, group in sorted(groups.items())]


def _group_text(group: AlertGroup) -> str:
    since = f"alarming since {time_text(group.since_ms)}"
    if group.pending:
        return f"{since}; {group.pending.status} is still to be told"
    return (
        f"{since}; told {time_text(group.told_at_ms)}" if group.told else f"{since}; not told yet"
    )


def found_rows(rule: AlertRule, found: Mapping[tuple[Any, ...], Measured]) -> list[dict[str, Any]]:
    """Return what was measured, the alarming groups first."""
    from pushlane.pipeline.alerts.firing import is_alarming

    rows = [
        {
            "group": ", ".join(map(str, key)) or "all",
            "value": round(each.value, 4),
            "before": "-" if each.before is None else round(each.before, 4),
            "receipts": each.n,
            "alarming": "yes" if is_alarming(rule, each) else "no",
        }
        for key, each in found.items()
    ]
    return sorted(rows, key=lambda row: (row["alarming"] == "no", str(row["group"])))


def look_line(look: AlertCheck) -> Iterator[str]:
    """Yield lines on what was told, and on what went wrong."""
    for message in look.told:
        yield f"told {look.rule.host}: {message.text}"
    if look.problem:
        yield f"alert {look.rule.name}: {look.problem}"
