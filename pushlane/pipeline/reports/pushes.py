"""Reads what became of single pushes off the store, with what may be missing there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pushlane.core.task import now_ms
from pushlane.diagnosis.results import ReceiptRow
from pushlane.diagnosis.story import MOST_ROWS, Known, Wanted
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.model.receipt import Event
from pushlane.pipeline.reports import report
from pushlane.pipeline.reports.engine import Engine, Sql
from pushlane.pipeline.reports.query import TIMES_MS, Period, utc_text
from pushlane.pipeline.reports.query_runner import run_query
from pushlane.pipeline.store import Store
from pushlane.util.trace_context import TRACEPARENT_LIKE, trace_hash, trace_key

_EVENTS = tuple(event.value for event in Event)
_TEXTS = ("reason", "sink", "recipient", "trace_id")
_OF_TRACE = (
    f"(trace_id = $trace_id or (trace_id like '{TRACEPARENT_LIKE}' "
    "and substring(trace_id, 4, 32) = $trace_id))"
)
_NUMBERS = ("attempt", "submitted_at_ms", "dispatched_at_ms", "recipient_hash")


class OfStore(NamedTuple):
    """What the store has; `notes` say what may be missing in it."""

    known: Known
    notes: Sequence[str]


def read_pushes(root: Path, wanted: Wanted, bounds: ReadBounds = NO_BOUNDS) -> OfStore:
    """Return the receipts that are wanted, and the events of their pushes.

    Raises BadInput if there is no store, or it takes too long; CorruptStore if a file cannot be
    read.
    """
    period = Period.of(wanted.since_ms, now_ms() + TIMES_MS["day"])

    def work(store: Store, engine: Engine) -> OfStore:
        found = [engine.rows(_receipts(engine, one)) for one in _conditions(wanted)]
        rows = [_row(one) for part in found for one in part]
        rows += [each for part in found for one in part for each in _merged_events(one)]
        rows += _events(engine, wanted, rows)
        is_cut = any(len(part) > MOST_ROWS for part in found)
        known = Known(rows, store.state.positions, is_cut)
        return OfStore(known, [*_notes(store, period)])

    return run_query(root, period, work, bounds)


def _receipts(engine: Engine, chosen: Sql) -> Sql:
    columns = ", ".join(_column(name) for name in ReceiptRow._fields)
    events = ", ".join(f"{event}_at_ms" for event in _EVENTS)
    text = (
        f"select {columns}, {events} from {engine.table('detail')} where {chosen.text} "
        f"order by responded_at_ms desc limit {MOST_ROWS + 1}"
    )
    return Sql(text, chosen.values)


def _column(name: str) -> str:
    if name in _TEXTS:
        return f"coalesce({name}, '')"
    return f"coalesce({name}, 0)" if name in _NUMBERS else name


def _conditions(wanted: Wanted) -> list[Sql]:
    """Return what has to hold of a receipt: any of these, each for a scan of its own.

    In a scan DuckDB reads the column of an equation first, and the others only where it holds; of
    two equations with an `or` between it reads all columns of all rows.
    """
    given = [*_of_push(wanted), *_of_recipient(wanted)]
    of_trace = [*_of_trace(wanted)]
    if wanted.either:
        ways = [[one] for one in (*given, *of_trace)]
    else:
        ways = [[*given, one] for one in of_trace] or [given]
    return [_all_of([*way, *_within(wanted)]) for way in ways]


def _of_push(wanted: Wanted) -> Iterator[Sql]:
    if wanted.seq is not None:
        values = {"task_id": wanted.task_id, "seq": wanted.seq}
        yield Sql("task_id = $task_id and seq = $seq", values)


def _of_recipient(wanted: Wanted) -> Iterator[Sql]:
    if wanted.recipient_hash is not None:
        values = {"recipient_hash": wanted.recipient_hash}
        yield Sql("recipient_hash = $recipient_hash", values)


def _of_trace(wanted: Wanted) -> Iterator[Sql]:
    """Yield how a trace is found: by its hash, and by its text in files that have no hashes yet."""
    if wanted.trace_id:
        text = {"trace_id": trace_key(wanted.trace_id)}
        by_hash = {**text, "trace_hash": trace_hash(wanted.trace_id)}
        yield Sql(f"trace_hash = $trace_hash and {_OF_TRACE}", by_hash)
        yield Sql(f"trace_hash is null and {_OF_TRACE}", text)


def _within(wanted: Wanted) -> Iterator[Sql]:
    if wanted.task_id and wanted.seq is None:
        yield Sql("task_id = $task_id", {"task_id": wanted.task_id})
    if wanted.apps is not None:
        yield Sql("list_contains($apps, app)", {"apps": sorted(wanted.apps)})


def _all_of(parts: Sequence[Sql]) -> Sql:
    values = {name: value for part in parts for name, value in part.values.items()}
    return Sql(" and ".join(part.text for part in parts), values)


def _row(values: Sequence[Any]) -> ReceiptRow:
    return ReceiptRow(*values[: len(ReceiptRow._fields)])


def _merged_events(values: Sequence[Any]) -> Iterator[ReceiptRow]:
    """Yield the events that compaction has put into a row."""
    row = _row(values)
    for event, at_ms in zip(_EVENTS, values[len(ReceiptRow._fields) :], strict=True):
        if at_ms:
            yield _event(row.task_id, row.seq, event, at_ms)


def _event(task_id: str, seq: int, event: str, at_ms: int) -> ReceiptRow:
    return ReceiptRow(
        task_id=task_id,
        seq=seq,
        outcome=event,
        reason="",
        attempt=0,
        sink="",
        recipient="",
        submitted_at_ms=0,
        dispatched_at_ms=0,
        responded_at_ms=at_ms,
        trace_id="",
        recipient_hash=0,
        waits=None,
    )


def _events(engine: Engine, wanted: Wanted, rows: Sequence[ReceiptRow]) -> list[ReceiptRow]:
    """Return the events of these pushes that compaction has not put into rows yet."""
    pushes = {(row.task_id, row.seq) for row in rows}
    if wanted.is_of_one_push and wanted.seq is not None:
        pushes.add((wanted.task_id, wanted.seq))
    text = (
        "with pushes as (select unnest($tasks) as task_id, unnest($seqs) as seq) "
        f"select task_id, seq, outcome, at_ms from {engine.all_of('events')} "
        "semi join pushes using (task_id, seq)"
    )
    values = {"tasks": [task_id for task_id, _ in pushes], "seqs": [seq for _, seq in pushes]}
    return [_event(*row) for row in engine.rows(Sql(text, values))] if pushes else []


def _notes(store: Store, period: Period) -> Iterator[str]:
    if sampled := report.sampled(store, period):
        yield (
            f"the store keeps a sample of what was delivered in {len(sampled):,} stretches, from "
            f"{utc_text(sampled[0].min_ms)} on: a push may be missing"
        )
    if gaps := [gap for gap in store.state.gaps if gap.at_ms >= period.since_ms]:
        yield (
            "the log dropped receipts at its bound before the store had read them, "
            f"{len(gaps):,} times, last between {utc_text(gaps[-1].since_ms)} and "
            f"{utc_text(gaps[-1].at_ms)}"
        )
    since_ms = report.kept_since_ms(store)
    if since_ms is not None and period.since_ms < since_ms:
        yield f"the store keeps single receipts from {utc_text(since_ms)} on"
