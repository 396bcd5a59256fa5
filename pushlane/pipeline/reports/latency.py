"""Computes quantiles of waits and deliveries from log buckets.

A bucket's geometric middle stands for all in it, so that a quantile is at most 5 % off: the square
root of 1.1, the buckets' step. Less than a millisecond counts as 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pushlane.pipeline.reports.counts import Key
from pushlane.pipeline.reports.engine import Engine, Sql
from pushlane.pipeline.reports.query import Query
from pushlane.pipeline.reports.sources import (
    bound,
    finished_rows,
    key_columns,
    where_clause,
    with_minute,
    within,
)
from pushlane.pipeline.store.schema import LATENCY_BASE, STAGES

QUANTILES = (0.5, 0.9, 0.95, 0.99)
_UNDER_A_MS = -1


@dataclass(frozen=True)
class Lateness:
    """The quantiles of one stage in milliseconds over `n` receipts, in the order of `QUANTILES`."""

    key: Key
    stage: str
    n: int
    quantiles_ms: tuple[float, ...]


def lateness(engine: Engine, query: Query) -> list[Lateness]:
    """Return the quantiles of every stage, for every row of the answer.

    Raises:
        CorruptStore: a file cannot be read.
    """
    buckets: dict[tuple[Key, str], list[tuple[int, float]]] = defaultdict(list)
    for *key, stage, bucket, n in engine.rows(_sql(engine, query)):
        buckets[tuple(key), stage].append((bucket, n))
    return [
        Lateness(key, stage, round(sum(n for _, n in counts)), quantiles(counts, QUANTILES))
        for (key, stage), counts in buckets.items()
    ]


def quantiles(buckets: Iterable[tuple[int, float]], wanted: Sequence[float]) -> tuple[float, ...]:
    """Return for each wanted part the value of the first bucket that reaches that part of all."""
    counts = sorted(buckets)
    total = sum(n for _, n in counts)
    return tuple(_quantile(counts, part * total) for part in wanted)


def middle_ms(bucket: int) -> float:
    """Return the value that stands for all receipts in a bucket."""
    return 0.0 if bucket <= _UNDER_A_MS else LATENCY_BASE ** (bucket + 0.5)


def _quantile(counts: Sequence[tuple[int, float]], rank: float) -> float:
    below = 0.0
    for bucket, n in counts:
        below += n
        if below >= rank * (1 - 1e-12):  # a sum of parts may fall short of its whole
            return middle_ms(bucket)
    return math.nan


def _sql(engine: Engine, query: Query) -> Sql:
    wanted = where_clause(query)
    values = {**bound(query), **wanted.values}
    if query.attributes or query.asks_reason:
        return Sql(_of_detail(engine, query, wanted.text), values)
    columns = ", ".join([*key_columns(query), "stage", "bucket"])
    text = (
        f"select {columns}, sum(n) from {engine.table('latency')} "
        f"where {within('minute_ms')} and {wanted.text} group by all"
    )
    return Sql(text, values)


def _of_detail(engine: Engine, query: Query, wanted: str) -> str:
    """Return a query for buckets of detail rows.

    The rows are read once: grouped by the buckets of all stages, then counted stage by stage.
    """
    rows = with_minute(query, finished_rows(engine))
    buckets = [f"{_bucket(*times)} as {stage}" for stage, times in STAGES.items()]
    columns = ", ".join([*key_columns(query), *buckets])
    grouped = f"select {columns}, sum(sample_weight) as n from ({rows}) where {wanted} group by all"
    keys = "".join(f"d{place}, " for place in range(len(query.by)))
    parts = (
        f"select {keys}'{stage}' as stage, {stage} as bucket, sum(n) from grouped "
        f"where {stage} is not null group by all"
        for stage in STAGES
    )
    return f"with grouped as materialized ({grouped}) {' union all '.join(parts)}"


def _bucket(start: str, end: str) -> str:
    """Return the SQL of a stage's bucket, which is null for a push that was not in the stage."""
    took = f"({end} - {start})"
    return (
        f"case when not ({start} > 0 and {end} > 0) then null when {took} < 1 then {_UNDER_A_MS} "
        f"else floor(ln({took}) / ln({LATENCY_BASE}))::int end"
    )
