"""Runs queries on a store, and starts anew if the store was rewritten meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pushlane.pipeline.reports import caveats, tasks
from pushlane.pipeline.reports.counts import CountRows, count
from pushlane.pipeline.reports.engine import Engine, FilesMoved
from pushlane.pipeline.reports.latency import lateness
from pushlane.pipeline.reports.query import Period, Query
from pushlane.pipeline.reports.recipients import recipients
from pushlane.pipeline.reports.report import Report, build_report
from pushlane.pipeline.reports.rows import ReceiptRows, last_rows
from pushlane.pipeline.reports.table import Table, table
from pushlane.pipeline.store import Store, open_store

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

    Raises:
        BadInput: there is no store, or the question is too large.
        UnknownTask: it names a task without receipts.
        CorruptStore: a file cannot be read.
    """

    def work(store: Store, engine: Engine) -> Answer:
        names = tasks.names(engine)
        resolved = tasks.by_id(query, names)
        counts = count(engine, resolved, options.limit)
        return Answer(
            counts,
            _table(engine, resolved, options, counts, names),
            caveats.notes(store, query.period),
        )

    return run_query(root, query.period, work)


def report_of(
    root: Path, query: Query, options: AnswerOptions, submitted: int | None = None
) -> tuple[Report, Table]:
    """Return a whole report, and its breakdown as a table; raises what `counts_of` does."""

    def work(store: Store, engine: Engine) -> tuple[Report, Table]:
        made = build_report(store, engine, query, limit=options.limit, submitted=submitted)
        return made, _table(engine, made.query, options, made.counts, made.names)

    return run_query(root, query.period, work)


def rows_of(root: Path, query: Query, limit: int) -> ReceiptRows:
    """Return single receipts; raises what `counts_of` does."""

    def work(_store: Store, engine: Engine) -> ReceiptRows:
        return last_rows(engine, tasks.by_id(query, tasks.names(engine)), limit)

    return run_query(root, query.period, work)


def _table(
    engine: Engine, query: Query, options: AnswerOptions, counts: CountRows, names: tasks.Names
) -> Table:
    found = recipients(engine, query) if options.with_recipients else None
    late = lateness(engine, query) if options.with_latency else None
    return table(counts, names, found, late)


def run_query(root: Path, period: Period, work: Callable[[Store, Engine], T]) -> T:
    """Return what `work` returns; it starts anew, a few times, if files were removed meanwhile."""
    for _ in range(_MOST_TRIES - 1):
        try:
            return _once(root, period, work)
        except FilesMoved:
            continue
    return _once(root, period, work)


def _once(root: Path, period: Period, work: Callable[[Store, Engine], T]) -> T:
    store = open_store(root)
    with Engine(store, root, period) as engine:
        return work(store, engine)
