"""Counts receipts, events and recipients in any breakdown.

A breakdown by outcome has one number a row; any other has a number for each outcome. Counts from a
sample of detail rows are estimates, each with the half-width of its 95 % interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from datasketches import hll_sketch, hll_union

from pushlane.pipeline.reports.dimensions import Dimension
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.query import Query
from pushlane.pipeline.reports.sources import (
    NO_EVENT,
    OUTCOMES,
    bound,
    counted,
    finished_rows,
    key_columns,
    where_clause,
    with_minute,
    within,
)
from pushlane.pipeline.store.schema import SKETCH_LG_K

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


_PAGE = 10_000


def recipients(engine: Engine, query: Query) -> dict[Key, int]:
    """Return the number of distinct recipients for each row of the answer.

    Sketches of each minute and key are united, so that a recipient counts once; the estimate is
    within 3.3 % in 95 of 100 cases. With attributes there are no sketches: then the recipients of
    detail rows are counted, and a sample shows only some of them.

    Raises:
        CorruptStore: a file cannot be read.
    """
    return _in_detail(engine, query) if query.attributes else _in_sketches(engine, query)


def _in_sketches(engine: Engine, query: Query) -> dict[Key, int]:
    wanted = where_clause(query)
    columns = ", ".join([*key_columns(query), "recipients"])
    text = (
        f"select {columns} from {engine.table(COUNTED)} "
        f"where {within('minute_ms')} and {wanted.text} and {NO_EVENT}"
    )
    unions: dict[Key, hll_union] = defaultdict(lambda: hll_union(SKETCH_LG_K))
    for page in engine.pages(Sql(text, {**bound(query), **wanted.values}), _PAGE):
        for *key, sketch in page:
            unions[tuple(key)].update(hll_sketch.deserialize(sketch))
    return {key: round(union.get_estimate()) for key, union in unions.items()}


def _in_detail(engine: Engine, query: Query) -> dict[Key, int]:
    wanted = where_clause(query)
    columns = ", ".join([*key_columns(query), "count(distinct recipient_hash)"])
    rows = with_minute(query, finished_rows(engine))
    text = f"select {columns} from ({rows}) where {wanted.text} group by all"
    found = engine.rows(Sql(text, {**bound(query), **wanted.values}))
    return {tuple(key): n for *key, n in found}
