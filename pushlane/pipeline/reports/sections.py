"""The sections of a report: counts, latencies, distinct recipients, shares of the sinks.

A breakdown by outcome has one number a row; any other has a number for each outcome. Counts from a
sample of detail rows are estimates, each with the half-width of its 95 % interval.

Quantiles of waits and deliveries come from log buckets. A bucket's geometric middle stands for all
in it, so that a quantile is at most 5 % off: the square root of 1.1, the buckets' step. Less than a
millisecond counts as 0. The parts of a wait are summed from the same buckets.

Recipients are counted by uniting the store's sketches, of one minute and key each. The estimate is
within 3.3 % in 95 of 100 cases, and cut to the number of pushes, since none has two recipients.
With attributes there are no sketches: then the recipients of detail rows are counted, and a sample
shows only some of them.

In shares of the sinks every tried delivery counts, whatever its outcome, since each took a slot.
Within a minute, a level is entitled to its weight among the levels that sent anything, and a task
to its quota among the tasks of its level. One that had little to send takes less than that, and
others then take more.

Each function raises CorruptStore if a file cannot be read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from datasketches import hll_sketch, hll_union

from pushlane.core.push import Kind
from pushlane.model.counted import CAUSE_STAGE, LATENCY_BASE, STAGES
from pushlane.model.wait_words import WAITED, WaitPart
from pushlane.pipeline.reports.answers import (
    OUTCOMES,
    UNDER_A_MS,
    Buckets,
    Count,
    CountRows,
    Key,
    Lateness,
    Share,
    lateness_of,
    wait_parts_of,
)
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.query import TIMES_MS, Period, Query
from pushlane.pipeline.reports.sources import (
    NO_EVENT,
    counted,
    finished_rows,
    key_columns,
    where_clause,
    with_minute,
    within,
)
from pushlane.pipeline.store.schema import SKETCH_LG_K

_NORMAL_95 = 1.96


def count(engine: Engine, query: Query, limit: int) -> CountRows:
    """Count, and return the first `limit` rows of the answer."""
    found = engine.rows(_count_sql(query, counted(engine, query), limit))
    width = len(query.by)
    rows = [_count(row[:width], row[width:-1]) for row in found]
    is_estimate = any(row.plus_minus for row in rows)
    return CountRows(query.by, rows, found[0][-1] if found else 0, is_estimate)


def _count_sql(query: Query, source: Sql, limit: int) -> Sql:
    wanted = where_clause(query)
    outcomes = [f"coalesce(sum(n) filter (outcome = '{one}'), 0) as {one}" for one in OUTCOMES]
    columns = [*key_columns(query), "sum(n) as n", "sum(variance) as variance", *outcomes]
    names = [f"d{place}" for place in range(len(query.by))]
    times = [name for name, each in zip(names, query.by, strict=True) if each.step_ms]
    others = [name for name in names if name not in times]
    grouped = ", ".join(names)
    text = (
        f"select *, count(*) over () from (select {', '.join(columns)} from ({source.text}) "
        f"where {wanted.text} {f'group by {grouped}' if grouped else ''} having sum(n) > 0.5) "
        f"order by {', '.join([*times, 'n desc', *others])} limit $most"
    )
    return Sql(text, {**source.values, **wanted.values, "most": limit})


def _count(key: Key, found: tuple[Any, ...]) -> Count:
    n, variance, *outcomes = found
    numbers = {name: round(value) for name, value in zip(OUTCOMES, outcomes, strict=True)}
    by_outcome = {name: number for name, number in numbers.items() if number}
    return Count(key, round(n), by_outcome, math.ceil(_NORMAL_95 * math.sqrt(variance)))


def lateness(engine: Engine, query: Query) -> list[Lateness]:
    """Return the quantiles of every stage, for every row of the answer."""
    return lateness_of(_buckets(engine, query, _of_detail, is_of_waits=False))


def wait_parts(engine: Engine, query: Query) -> list[tuple[Key, WaitPart]]:
    """Return the parts of the waits by cause, for every row of the answer."""
    return wait_parts_of(_buckets(engine, query, _waits_of_detail, is_of_waits=True))


def _buckets(
    engine: Engine,
    query: Query,
    of_detail: Callable[[Engine, Query, str], str],
    *,
    is_of_waits: bool,
) -> Buckets:
    """Return the buckets of these stages, from detail rows where the counts are not enough."""
    wanted = where_clause(query)
    stages = ", ".join(f"'{stage}'" for stage in STAGES)
    columns = ", ".join([*key_columns(query), "stage", "bucket"])
    text = (
        of_detail(engine, query, wanted.text)
        if query.attributes or query.asks_reason
        else f"select {columns}, sum(n) from {engine.table('latency')} "
        f"where {within('minute_ms')} and {wanted.text} "
        f"and stage {'not in' if is_of_waits else 'in'} ({stages}) group by all"
    )
    buckets: dict[tuple[Key, str], list[tuple[int, float]]] = defaultdict(list)
    for *key, stage, bucket, n in engine.rows(Sql(text, wanted.values)):
        buckets[tuple(key), stage].append((bucket, n))
    return buckets


def _of_detail(engine: Engine, query: Query, wanted: str) -> str:
    """Return a query for buckets of detail rows.

    The rows are read once: grouped by the buckets of all stages, then counted stage by stage.
    """
    rows = with_minute(query, finished_rows(engine))
    buckets = [f"{_stage_bucket(*times)} as {stage}" for stage, times in STAGES.items()]
    columns = ", ".join([*key_columns(query), *buckets])
    grouped = f"select {columns}, sum(sample_weight) as n from ({rows}) where {wanted} group by all"
    keys = "".join(f"d{place}, " for place in range(len(query.by)))
    parts = (
        f"select {keys}'{stage}' as stage, {stage} as bucket, sum(n) from grouped "
        f"where {stage} is not null group by all"
        for stage in STAGES
    )
    return f"with grouped as materialized ({grouped}) {' union all '.join(parts)}"


def _waits_of_detail(engine: Engine, query: Query, wanted: str) -> str:
    """Return a query for buckets of the parts of waits in detail rows."""
    rows = with_minute(query, finished_rows(engine))
    whole = "coalesce(list_sum(map_values(waits)), 0)::bigint"
    columns = ", ".join(
        [
            *key_columns(query),
            f"unnest(list_concat(['{WAITED}'], map_keys(waits))) as cause",
            f"unnest(list_concat([{whole}], map_values(waits))) as took",
        ]
    )
    keys = "".join(f"d{place}, " for place in range(len(query.by)))
    stage = f"case cause when '{WAITED}' then cause else '{CAUSE_STAGE}' || cause end"
    return (
        f"select {keys}{stage} as stage, {_bucket('took')} as bucket, sum(sample_weight) "
        f"from (select {columns}, sample_weight from ({rows}) where {wanted} and waits is not null)"
        " group by all"
    )


def _stage_bucket(start: str, end: str) -> str:
    """Return the SQL of a stage's bucket, which is null for a push that was not in the stage."""
    was = f"{start} > 0 and {end} > 0"
    return f"case when {was} then {_bucket(f'({end} - {start})')} end"


def _bucket(took: str) -> str:
    return (
        f"case when {took} < 1 then {UNDER_A_MS} "
        f"else floor(ln({took}) / ln({LATENCY_BASE}))::int end"
    )


_PAGE = 10_000


def recipients(engine: Engine, query: Query) -> dict[Key, int]:
    """Return the number of distinct recipients for each row of the answer."""
    return _in_detail(engine, query) if query.attributes else _in_sketches(engine, query)


def _in_sketches(engine: Engine, query: Query) -> dict[Key, int]:
    wanted = where_clause(query)
    columns = ", ".join([*key_columns(query), f"outcome = '{Kind.RETRY}'", "n", "recipients"])
    text = (
        f"select {columns} from {engine.table(COUNTED)} "
        f"where {within('minute_ms')} and {wanted.text} and {NO_EVENT}"
    )
    found: dict[Key, _Recipients] = defaultdict(_Recipients)
    for page in engine.pages(Sql(text, wanted.values), _PAGE):
        for *key, is_retry, n, sketch in page:
            found[tuple(key)].add(hll_sketch.deserialize(sketch), n, is_retry)
    return {key: each.number for key, each in found.items()}


class _Recipients:
    """The recipients of one row: of pushes that have finished, and of those that will go again.

    A push that was retried has finished later, as a rule. So only those recipients count in
    addition of whom no push has finished.
    """

    def __init__(self) -> None:
        self._finished, self._all = hll_union(SKETCH_LG_K), hll_union(SKETCH_LG_K)
        self._pushes = self._retries = 0

    def add(self, sketch: hll_sketch, receipts: int, is_retry: bool) -> None:
        self._all.update(sketch)
        if is_retry:
            self._retries += receipts
        else:
            self._pushes += receipts
            self._finished.update(sketch)

    @property
    def number(self) -> int:
        """The estimate, which is never more than there are pushes."""
        finished = round(float(self._finished.get_estimate()))
        # One sketch alone is estimated in another way; only of merged ones equal means equal.
        more = _merged_estimate(self._all) - _merged_estimate(self._finished)
        waiting = min(max(0, round(more)), self._retries)
        return min(finished, self._pushes) + waiting


def _merged_estimate(union: hll_union) -> float:
    """Return the estimate of the union, merged with itself so that it is of two sketches."""
    merged = hll_union(SKETCH_LG_K)
    for _ in range(2):
        merged.update(union.get_result())
    return float(merged.get_estimate())


def _in_detail(engine: Engine, query: Query) -> dict[Key, int]:
    wanted = where_clause(query)
    columns = ", ".join([*key_columns(query), "count(distinct recipient_hash)"])
    rows = with_minute(query, finished_rows(engine))
    text = f"select {columns} from ({rows}) where {wanted.text} group by all"
    found = engine.rows(Sql(text, wanted.values))
    return {tuple(key): n for *key, n in found}


TRIED = ("delivered", "retry", "dead")
_MOST_STEPS = 120
_STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440))


class SentByLevel(NamedTuple):
    """The pushes of a task at a level in a minute; their mean wait tells whether they queued."""

    minute_ms: int
    level: str
    task_id: str
    n: int
    weight: float
    quota: float
    wait_ms_sum: int


def sent(engine: Engine, query: Query) -> list[SentByLevel]:
    """Return what was sent by minute, level and task; conditions on attributes are not possible."""
    wanted = where_clause(query)
    tried = ", ".join(f"'{outcome}'" for outcome in TRIED)
    text = (
        "select minute_ms, level, task_id, sum(n), sum(weight * n) / sum(n), "
        f"sum(quota * n) / sum(n), sum(wait_ms_sum) from {engine.table(COUNTED)} "
        f"where {within('minute_ms')} and outcome in ({tried}) and {wanted.text} "
        "group by all having sum(n) > 0 order by 1, 2, 3"
    )
    return [SentByLevel(*row) for row in engine.rows(Sql(text, wanted.values))]


def step_ms(period: Period) -> int:
    """Return a length of steps that gives a plot of this period at most 120 of them."""
    enough = (step for step in _STEPS_MS if period.length_ms <= step * _MOST_STEPS)
    return next(enough, _STEPS_MS[-1])


def by_level(rows: Iterable[SentByLevel], step: int = TIMES_MS["minute"]) -> list[Share]:
    """Return the share of each level in each step."""
    return _in_steps(rows, step, lambda row: row.level)


def by_task(rows: Iterable[SentByLevel], step: int = TIMES_MS["minute"]) -> list[Share]:
    """Return the share of each task in each step."""
    return _in_steps(rows, step, lambda row: row.task_id)


def _in_steps(
    rows: Iterable[SentByLevel], step: int, name_of: Callable[[SentByLevel], str]
) -> list[Share]:
    """Add up the minutes of each step.

    In a minute in which a name sent nothing it is entitled to nothing, but the minute counts in
    what all sent.
    """
    minutes: dict[int, list[SentByLevel]] = defaultdict(list)
    for row in rows:
        minutes[row.minute_ms].append(row)
    totals: dict[int, int] = defaultdict(int)
    sums: dict[tuple[int, str], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for minute_ms, sent_then in minutes.items():
        at = minute_ms - minute_ms % step
        for row, entitled_n in _entitled(sent_then):
            totals[at] += row.n
            n, entitled = sums[at, name_of(row)]
            sums[at, name_of(row)] = (n + row.n, entitled + entitled_n)
    return [
        Share(at, name, n, totals[at], entitled / totals[at])
        for (at, name), (n, entitled) in sorted(sums.items())
    ]


def _entitled(minute: Sequence[SentByLevel]) -> Iterator[tuple[SentByLevel, float]]:
    """Yield each row of a minute with how many of all its pushes that row was entitled to."""
    total = sum(row.n for row in minute)
    levels: dict[str, list[SentByLevel]] = defaultdict(list)
    for row in minute:
        levels[row.level].append(row)
    weights = [sum(r.weight * r.n for r in of) / sum(r.n for r in of) for of in levels.values()]
    for rows, of_level in zip(levels.values(), _parts(weights), strict=True):
        for row, of_task in zip(rows, _parts([row.quota for row in rows]), strict=True):
            yield row, total * of_level * of_task


def _parts(weights: Sequence[float]) -> list[float]:
    """Return the part of each of these weights, which are equal if all weights are 0."""
    total = sum(weights)
    return [weight / total if total else 1 / len(weights) for weight in weights]
