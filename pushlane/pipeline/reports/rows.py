"""Reads single receipts and events, the last first, to show what a number is made of.

Recipients are masked already in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pushlane.pipeline.reports.engine import Engine, Sql
from pushlane.pipeline.reports.query import Period, Query
from pushlane.pipeline.reports.sources import bound, detailed, where_clause, with_minute

COLUMNS = (
    "at_ms",
    "task_id",
    "task_name",
    "seq",
    "app",
    "level",
    "sink",
    "outcome",
    "reason",
    "attempt",
    "recipient",
    "submitted_at_ms",
    "eligible_at_ms",
    "dispatched_at_ms",
    "responded_at_ms",
    "trace_id",
    "attributes",
    "sample_weight",
)


@dataclass(frozen=True)
class ReceiptRows:
    """Receipts as rows of `COLUMNS`; a sampled row stands for `sample_weight` of its kind."""

    rows: list[dict[str, Any]]

    @property
    def is_sampled(self) -> bool:
        return any(row["sample_weight"] > 1 for row in self.rows)


def last_rows(engine: Engine, query: Query, limit: int) -> ReceiptRows:
    """Return the last `limit` rows that meet the conditions; `by` has no meaning here.

    Raises:
        CorruptStore: a file cannot be read.
    """
    since_ms = _first_ms(engine, query, limit)
    if since_ms is None:
        return ReceiptRows([])
    narrow = replace(query, period=Period(since_ms, query.period.until_ms))
    found = engine.rows(_sql(engine, narrow, ", ".join(COLUMNS), limit))
    return ReceiptRows([dict(zip(COLUMNS, row, strict=True)) for row in found])


def _first_ms(engine: Engine, query: Query, limit: int) -> int | None:
    """Return the time of the first wanted row, so that whole rows are read only from there on."""
    last = _sql(engine, query, "at_ms", limit)
    [found] = engine.rows(Sql(f"select min(at_ms) from ({last.text})", last.values))
    first_ms: int | None = found[0]
    return first_ms


def _sql(engine: Engine, query: Query, columns: str, limit: int) -> Sql:
    wanted = where_clause(query)
    text = (
        f"select {columns} from ({with_minute(query, detailed(engine, query))}) "
        f"where {wanted.text} order by at_ms desc, task_id, seq, attempt limit $most"
    )
    return Sql(text, {**bound(query), **wanted.values, "most": limit})
