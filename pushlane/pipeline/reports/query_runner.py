"""Runs queries on a store, and gives their answers as rows or as one table.

Rows are single receipts and events, the last first, to show what a number is made of; recipients
are masked already in the store. In a table times are texts in UTC, to the minute, and unknown
values are None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pushlane.pipeline.reports import report
from pushlane.pipeline.reports.engine import Engine, FilesMoved, Sql
from pushlane.pipeline.reports.query import Dimension, Period, Query
from pushlane.pipeline.reports.report import Report
from pushlane.pipeline.reports.sections import (
    QUANTILES,
    Count,
    CountRows,
    Key,
    Lateness,
    count,
    lateness,
    recipients,
)
from pushlane.pipeline.reports.sources import OUTCOMES, detailed, where_clause, with_minute
from pushlane.pipeline.store import Store, open_store
from pushlane.pipeline.store.schema import STAGES

_PUSH = ("at_ms", "task_id", "task_name", "seq", "app", "level", "sink")
_ENDED = ("outcome", "reason", "attempt", "recipient")
_TIMES = ("submitted_at_ms", "eligible_at_ms", "dispatched_at_ms", "responded_at_ms")
COLUMNS = (*_PUSH, *_ENDED, *_TIMES, "trace_id", "attributes", "sample_weight")


@dataclass(frozen=True)
class ReceiptRows:
    """Receipts as rows of `COLUMNS`; a sampled row stands for `sample_weight` of its kind."""

    rows: list[dict[str, Any]]

    @property
    def is_sampled(self) -> bool:
        return any(row["sample_weight"] > 1 for row in self.rows)


def last_rows(engine: Engine, query: Query, limit: int) -> ReceiptRows:
    """Return the last `limit` rows that meet the conditions; `by` has no meaning here."""
    # Whole rows are read only from the first wanted one on.
    last = _sql(engine, query, "at_ms", limit)
    [(since_ms,)] = engine.rows(Sql(f"select min(at_ms) from ({last.text})", last.values))
    if since_ms is None:
        return ReceiptRows([])
    narrow = replace(query, period=Period(since_ms, query.period.until_ms))
    found = engine.rows(_sql(engine, narrow, ", ".join(COLUMNS), limit))
    return ReceiptRows([dict(zip(COLUMNS, row, strict=True)) for row in found])


def _sql(engine: Engine, query: Query, columns: str, limit: int) -> Sql:
    wanted = where_clause(query)
    text = (
        f"select {columns} from ({with_minute(query, detailed(engine, query))}) "
        f"where {wanted.text} order by at_ms desc, task_id, seq, attempt limit $most"
    )
    return Sql(text, {**wanted.values, "most": limit})


_SHOWN_QUANTILES = (0.5, 0.99)


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first `labels` columns name what a row is about."""

    headings: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    labels: int


def table(
    counts: CountRows,
    names: Mapping[str, str],
    recipients: Mapping[Key, int] | None = None,
    latency: Sequence[Lateness] | None = None,
) -> Table:
    """Make a table of the counts, and of what else is known of the same rows."""
    labels = [(heading, get) for each in counts.by for heading, get in _labels(each, counts, names)]
    numbers = _by_outcome(counts)
    if recipients is not None:
        numbers.append(("recipients", lambda row: recipients.get(row.key, 0)))
    columns = [*labels, *numbers, *_lateness(latency)]
    rows = [tuple(get(row) for _, get in columns) for row in counts.rows]
    return Table(tuple(heading for heading, _ in columns), rows, len(labels))


def time_text(at_ms: int) -> str:
    """Return the time in UTC to the minute, in ISO format."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def second_text(at_ms: int) -> str:
    """Return the time in UTC to the second, in ISO format."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_Column = tuple[str, Callable[[Count], Any]]


def _labels(dimension: Dimension, counts: CountRows, names: Mapping[str, str]) -> list[_Column]:
    place = counts.by.index(dimension)
    if dimension.step_ms:
        return [(dimension.heading, lambda row: time_text(row.key[place]))]
    own: _Column = (dimension.heading, lambda row: row.key[place])
    if dimension.word != "task":
        return [own]
    return [own, ("task_name", lambda row: names.get(row.key[place], ""))]


def _by_outcome(counts: CountRows) -> list[_Column]:
    """Return the number of each row, and one for each outcome unless that is a dimension."""
    columns: list[_Column] = [("n", lambda row: row.n)]
    if counts.is_estimate:
        columns.append(("plus_minus", lambda row: row.plus_minus))
    if any(dimension.word == "outcome" for dimension in counts.by):
        return columns
    outcomes: list[_Column] = [(name, partial(_of_outcome, name)) for name in OUTCOMES]
    return [*columns, *outcomes, ("failure_rate", lambda row: _rounded(row.failure_rate, 6))]


def _of_outcome(outcome: str, row: Count) -> int:
    return row.by_outcome.get(outcome, 0)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _lateness(found: Sequence[Lateness] | None) -> list[_Column]:
    if found is None:
        return []
    known = {
        (each.key, each.stage, quantile): ms
        for each in found
        for quantile, ms in zip(QUANTILES, each.quantiles_ms, strict=True)
    }
    return [
        (f"{stage}_p{part * 100:g}_ms", partial(_quantile, known, stage, part))
        for stage in STAGES
        for part in _SHOWN_QUANTILES
    ]


def _quantile(
    known: Mapping[tuple[Key, str, float], float], stage: str, part: float, row: Count
) -> float | None:
    return _rounded(known.get((row.key, stage, part)), 1)


_MOST_TRIES = 3
T = TypeVar("T")


@dataclass(frozen=True)
class AnswerOptions:
    """Options of an answer: the most rows, and which extra columns."""

    limit: int
    with_recipients: bool = False
    with_latency: bool = False


@dataclass(frozen=True)
class Answer:
    """A table of counts, with `notes` on what in it is an estimate."""

    counts: CountRows
    table: Table
    notes: list[str]


def counts_of(root: Path, query: Query, options: AnswerOptions) -> Answer:
    """Return the breakdown that is asked for, and nothing else.

    Raises BadInput if there is no store, or the question is too large; UnknownTask if it names a
    task without receipts; CorruptStore if a file cannot be read.
    """

    def work(store: Store, engine: Engine) -> Answer:
        names = report.names(engine)
        resolved = report.by_id(query, names)
        counts = count(engine, resolved, options.limit)
        shown = _table(engine, resolved, options, counts, names)
        return Answer(counts, shown, report.notes(store, query.period))

    return run_query(root, query.period, work)


def report_of(
    root: Path, query: Query, options: AnswerOptions, submitted: int | None = None
) -> tuple[Report, Table]:
    """Return a whole report, and its breakdown as a table; raises what `counts_of` does."""

    def work(store: Store, engine: Engine) -> tuple[Report, Table]:
        made = report.build_report(store, engine, query, limit=options.limit, submitted=submitted)
        return made, _table(engine, made.query, options, made.counts, made.names)

    return run_query(root, query.period, work)


def rows_of(root: Path, query: Query, limit: int) -> ReceiptRows:
    """Return single receipts; raises what `counts_of` does."""

    def work(_store: Store, engine: Engine) -> ReceiptRows:
        return last_rows(engine, report.by_id(query, report.names(engine)), limit)

    return run_query(root, query.period, work)


def _table(
    engine: Engine, query: Query, options: AnswerOptions, counts: CountRows, names: report.Names
) -> Table:
    found = recipients(engine, query) if options.with_recipients else None
    late = lateness(engine, query) if options.with_latency else None
    return table(counts, names, found, late)


def run_query(root: Path, period: Period, work: Callable[[Store, Engine], T]) -> T:
    """Return what `work` returns; it starts anew, a few times, if files were removed meanwhile."""
    tries = 0
    while True:
        tries += 1
        store = open_store(root)
        try:
            with Engine(store, root, period) as engine:
                return work(store, engine)
        except FilesMoved:
            if tries == _MOST_TRIES:
                raise
