"""Counts receipts, events and recipients in any breakdown.

A breakdown by outcome has one number a row; any other has a number for each outcome. Counts from a
sample of detail rows are estimates, each with the half-width of its 95 % interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pushlane.pipeline.reports.dimensions import Dimension
from pushlane.pipeline.reports.engine import Engine, Sql
from pushlane.pipeline.reports.query import Query
from pushlane.pipeline.reports.sources import OUTCOMES, counted, key_columns, where_clause

_NORMAL_95 = 1.96
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Count:
    """The counts for one value of each dimension.

    `n` is the number of all receipts and events; `by_outcome` leaves out zeros. `plus_minus` is 0
    for exact counts.
    """

    key: Key
    n: int
    by_outcome: dict[str, int]
    plus_minus: int = 0

    @property
    def failure_rate(self) -> float | None:
        """Return the share of dead among dead and delivered; None if there are neither."""
        dead, delivered = self.by_outcome.get("dead", 0), self.by_outcome.get("delivered", 0)
        return dead / (dead + delivered) if dead + delivered else None


@dataclass(frozen=True)
class CountRows:
    """The rows of an answer, in order of time if they are by a time, else the largest first.

    Rows beyond the limit are left out, and `rows_in_all` counts them too.
    """

    by: tuple[Dimension, ...]
    rows: list[Count]
    rows_in_all: int
    is_estimate: bool


def count(engine: Engine, query: Query, limit: int) -> CountRows:
    """Count, and return the first `limit` rows of the answer.

    Raises:
        CorruptStore: a file cannot be read.
    """
    found = engine.rows(_sql(query, counted(engine, query), limit))
    width = len(query.by)
    rows = [_count(row[:width], row[width:-1]) for row in found]
    is_estimate = any(row.plus_minus for row in rows)
    return CountRows(query.by, rows, found[0][-1] if found else 0, is_estimate)


def _sql(query: Query, source: Sql, limit: int) -> Sql:
    wanted = where_clause(query)
    outcomes = [
        f"coalesce(sum(n) filter (outcome = '{outcome}'), 0) as {outcome}" for outcome in OUTCOMES
    ]
    columns = [*key_columns(query), "sum(n) as n", "sum(variance) as variance", *outcomes]
    grouped = ", ".join(f"d{place}" for place in range(len(query.by)))
    text = (
        f"select *, count(*) over () from (select {', '.join(columns)} from ({source.text}) "
        f"where {wanted.text} {f'group by {grouped}' if grouped else ''} having sum(n) > 0.5) "
        f"order by {_order(query)} limit $most"
    )
    return Sql(text, {**source.values, **wanted.values, "most": limit})


def _order(query: Query) -> str:
    """Return the order of rows: by time first, then the largest, then by name."""
    times = [f"d{place}" for place, each in enumerate(query.by) if each.step_ms]
    names = [f"d{place}" for place, each in enumerate(query.by) if not each.step_ms]
    return ", ".join([*times, "n desc", *names])


def _count(key: Key, found: tuple[Any, ...]) -> Count:
    n, variance, *outcomes = found
    numbers = {name: round(value) for name, value in zip(OUTCOMES, outcomes, strict=True)}
    by_outcome = {name: number for name, number in numbers.items() if number}
    return Count(key, round(n), by_outcome, math.ceil(_NORMAL_95 * math.sqrt(variance)))
