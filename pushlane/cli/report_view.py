"""Prints a report on a terminal, as CSV and as JSON. Recipients are masked at their source.

Nothing here asks the store.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from pushlane.cli.render import Column, print_fields, print_table

if TYPE_CHECKING:
    from pushlane.pipeline.reports.latency import Lateness
    from pushlane.pipeline.reports.report import Report
    from pushlane.pipeline.reports.table import Table

_MINUTE_MS = 60_000
_STAGES = ("wait", "delivery", "total")
_LATENCY_COLUMNS: tuple[Column[Lateness], ...] = (
    Column("LEVEL", lambda each: each.key[0]),
    Column("DELIVERED AFTER", lambda each: each.stage),
    Column("P50", lambda each: duration_text(each.quantiles_ms[0]), number=True),
    Column("P90", lambda each: duration_text(each.quantiles_ms[1]), number=True),
    Column("P95", lambda each: duration_text(each.quantiles_ms[2]), number=True),
    Column("P99", lambda each: duration_text(each.quantiles_ms[3]), number=True),
)
_ROW_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("AT", lambda row: _at(row)),
    Column("PUSH", lambda row: f"{row['task_id']}-{row['seq']}"),
    Column("TASK", lambda row: row["task_name"] or "", elastic=True, spare=4),
    Column("LEVEL", lambda row: row["level"] or "", spare=5),
    Column("SINK", lambda row: row["sink"] or "", spare=4),
    Column("OUTCOME", lambda row: row["outcome"] or ""),
    Column("REASON", lambda row: row["reason"] or "", elastic=True),
    Column("TRY", lambda row: str(row["attempt"] or ""), number=True, spare=5),
    Column("RECIPIENT", lambda row: row["recipient"] or "", elastic=True),
    Column(
        "WAIT MS",
        lambda row: _between(row["eligible_at_ms"], row["dispatched_at_ms"]),
        number=True,
        spare=2,
    ),
    Column(
        "DELIVERY MS",
        lambda row: _between(row["dispatched_at_ms"], row["responded_at_ms"]),
        number=True,
        spare=2,
    ),
    Column("ATTRIBUTES", lambda row: _attributes_text(row["attributes"]), elastic=True, spare=1),
)


def print_counts(table: Table) -> None:
    """Print the table on a terminal: labels, then numbers."""
    columns = [_column(table, place) for place in range(len(table.headings))]
    print_table(columns, table.rows)


def _column(table: Table, place: int) -> Column[Sequence[Any]]:
    heading = table.headings[place]
    if place < table.labels:
        return Column(heading.upper(), lambda row: str(row[place]) or "(none)", elastic=True)
    shown = heading.upper().replace("_", " ")
    return Column(shown, lambda row: _number(heading, row[place]), number=True)


def print_csv(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the table as CSV with a heading; what is not known is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)


def print_csv_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print single receipts as CSV, their attributes as one text."""
    from pushlane.pipeline.reports.rows import COLUMNS

    texts = ({**row, "attributes": _attributes_text(row["attributes"])} for row in rows)
    print_csv(COLUMNS, [[row[name] for name in COLUMNS] for row in texts])


def print_summary(report: Report) -> None:
    """Print the figures above the table."""
    whole = report.funnel.submitted
    steps = [(name, f"{n:,}{_part(n, whole)}") for name, n in report.funnel.steps()]
    others = [
        (name, f"{report.total.by_outcome[name]:,}")
        for name in ("dead", "expired", "dropped", "retry")
        if name in report.total.by_outcome
    ]
    print_fields([*steps, *others, ("recipients", f"about {report.recipients:,}")])
    typer.echo()
    if report.latency:
        stages = sorted(report.latency, key=lambda each: (each.key, _STAGES.index(each.stage)))
        print_table(_LATENCY_COLUMNS, stages)
        typer.echo()


def as_json(report: Report, table: Table) -> dict[str, Any]:
    """Return all of a report except what only a picture shows."""
    period = report.query.period
    return {
        "title": report.title,
        "since_ms": period.since_ms,
        "until_ms": period.until_ms,
        "by": [dimension.heading for dimension in report.query.by],
        "where": [str(condition) for condition in report.query.where],
        "rows": [dict(zip(table.headings, row, strict=True)) for row in table.rows],
        "rows_in_all": report.counts.rows_in_all,
        "is_estimate": report.counts.is_estimate,
        "total": {"n": report.total.n, **report.total.by_outcome},
        "funnel": dict(report.funnel.steps()),
        "recipients": report.recipients,
        "latency": [_latency_json(each) for each in report.latency],
        "deaths": {row.key[0]: row.n for row in report.deaths},
        "notes": report.notes,
    }


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print single receipts on a terminal."""
    print_table(_ROW_COLUMNS, rows)


def _number(heading: str, value: float | None) -> str:
    if value is None:
        return "-"
    if heading == "failure_rate":
        return f"{value:.2%}"
    return f"{value:,.0f}"


def _part(n: int, whole: int) -> str:
    return f" ({n / whole:.1%})" if whole else ""


def duration_text(ms: float) -> str:
    """Return a duration as exact as a quantile of buckets is."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < _MINUTE_MS else f"{ms / _MINUTE_MS:.1f} min"


def _latency_json(each: Lateness) -> dict[str, Any]:
    from pushlane.pipeline.reports.latency import QUANTILES

    return {
        "level": each.key[0],
        "stage": each.stage,
        "n": each.n,
        **{
            f"p{quantile * 100:g}_ms": round(value, 1)
            for quantile, value in zip(QUANTILES, each.quantiles_ms, strict=True)
        },
    }


def _at(row: dict[str, Any]) -> str:
    from pushlane.pipeline.reports.table import second_text

    return second_text(row["at_ms"])


def _attributes_text(attributes: dict[str, str] | None) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted((attributes or {}).items()))


def _between(start_ms: int | None, end_ms: int | None) -> str:
    return f"{end_ms - start_ms:,}" if start_ms and end_ms else "-"
