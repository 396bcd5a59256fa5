"""Runs queries on a store, and gives their answers as rows or as one table.

Rows are single receipts and events, the last first, to show what a number is made of; recipients
are masked already in the store. In a table times are texts in UTC, to the minute, and unknown
values are None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from pushlane.core.push import Kind
from pushlane.core.task import now_ms
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.model.wait_words import WaitPart
from pushlane.pipeline.reports import report, sections
from pushlane.pipeline.reports.answers import (
    COLUMNS,
    Answer,
    AnswerOptions,
    CountRows,
    Names,
    ReceiptRows,
    Report,
    Share,
    Table,
    by_id,
    table,
)
from pushlane.pipeline.reports.engine import Engine, FilesMoved, Sql
from pushlane.pipeline.reports.query import TIMES_MS, Condition, Dimension, Period, Query
from pushlane.pipeline.reports.sections import count, lateness, recipients
from pushlane.pipeline.reports.sources import detailed, where_clause, with_minute
from pushlane.pipeline.store import Store, open_store


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


class TaskShares(NamedTuple):
    """The shares of a task in steps of so many ms, and what a reader has to know of them."""

    step_ms: int
    shares: Sequence[Share]
    notes: Sequence[str]


_MOST_TRIES = 3
T = TypeVar("T")


def counts_of(
    root: Path, query: Query, options: AnswerOptions, bounds: ReadBounds = NO_BOUNDS
) -> Answer:
    """Return the breakdown that is asked for, and nothing else.

    Raises BadInput if there is no store, or the question is too large; UnknownTask if it names a
    task without receipts; CorruptStore if a file cannot be read.
    """

    def work(store: Store, engine: Engine) -> Answer:
        names = report.names(engine, query)
        resolved = by_id(query, names)
        counts = count(engine, resolved, options.limit)
        shown = _table(engine, resolved, options, counts, names)
        return Answer(counts, shown, report.notes(store, query.period))

    return run_query(root, query.period, work, bounds)


def report_of(
    root: Path,
    query: Query,
    options: AnswerOptions,
    submitted: int | None = None,
    bounds: ReadBounds = NO_BOUNDS,
) -> tuple[Report, Table]:
    """Return a whole report, and its breakdown as a table; raises what `counts_of` does."""

    def work(store: Store, engine: Engine) -> tuple[Report, Table]:
        made = report.build_report(store, engine, query, limit=options.limit, submitted=submitted)
        return made, _table(engine, made.query, options, made.counts, made.names)

    return run_query(root, query.period, work, bounds)


def shares_of(
    root: Path, task_id: str, sinks: Sequence[str], bounds: ReadBounds = NO_BOUNDS
) -> TaskShares:
    """Return what a task got of its sinks beside what it was entitled to, over all of its life.

    Raises BadInput if there is no store, or the question is too large; CorruptStore.
    """
    of_sinks = (Condition(Dimension("sink"), tuple(sinks)),)
    own = Query(Period.of(0, now_ms()), where=(*of_sinks, Condition(Dimension("task"), (task_id,))))

    def work(store: Store, engine: Engine) -> TaskShares:
        span = report.extent(engine, own)
        if span is None:
            return TaskShares(0, [], [])
        step_ms = sections.step_ms(span)
        shares = sections.by_task(sections.sent(engine, Query(span, where=of_sinks)), step_ms)
        found = [one for one in shares if one.name == task_id]
        return TaskShares(step_ms, found, report.notes(store, span))

    return run_query(root, own.period, work, bounds)


def waits_of(
    root: Path, task_id: str, since_ms: int, bounds: ReadBounds = NO_BOUNDS
) -> list[WaitPart]:
    """Return where the wait of a task's delivered pushes went, the whole first, by counts alone.

    Nothing is before `since_ms`. Empty where no receipt tells; raises what `counts_of` does.
    """
    where = (
        Condition(Dimension("task"), (task_id,)),
        Condition(Dimension("outcome"), (Kind.DELIVERED.value,)),
    )
    own = Query(Period.of(since_ms, now_ms() + TIMES_MS["minute"]), where=where)

    def work(_store: Store, engine: Engine) -> list[WaitPart]:
        return [part for _, part in sections.wait_parts(engine, own)]

    return run_query(root, own.period, work, bounds)


def rows_of(root: Path, query: Query, limit: int, bounds: ReadBounds = NO_BOUNDS) -> ReceiptRows:
    """Return single receipts; raises what `counts_of` does."""

    def work(_store: Store, engine: Engine) -> ReceiptRows:
        return last_rows(engine, by_id(query, report.names(engine, query)), limit)

    return run_query(root, query.period, work, bounds)


def _table(
    engine: Engine, query: Query, options: AnswerOptions, counts: CountRows, names: Names
) -> Table:
    found = recipients(engine, query) if options.with_recipients else None
    late = lateness(engine, query) if options.with_latency else None
    return table(counts, names, found, late)


def run_query(
    root: Path,
    period: Period,
    work: Callable[[Store, Engine], T],
    bounds: ReadBounds = NO_BOUNDS,
) -> T:
    """Return what `work` returns; it starts anew, a few times, if files were removed meanwhile."""
    tries = 0
    while True:
        tries += 1
        store = open_store(root)
        try:
            with Engine(store, root, period, bounds) as engine:
                return work(store, engine)
        except FilesMoved:
            if tries == _MOST_TRIES:
                raise
