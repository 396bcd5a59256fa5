"""Computes who got which share of the sinks over time, and what each was entitled to.

Every tried delivery counts, whatever its outcome, since each took a slot. Within a minute, a level
is entitled to its weight among the levels that sent anything, and a task to its quota among the
tasks of its level. One that had little to send takes less than that, and others then take more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pushlane.pipeline.reports.dimensions import TIMES_MS
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.query import Period, Query
from pushlane.pipeline.reports.sources import bound, where_clause, within

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


@dataclass(frozen=True)
class Share:
    """The share that one name sent in one step of time, and the one it was entitled to."""

    at_ms: int
    name: str
    n: int
    of: int
    entitled: float

    @property
    def share(self) -> float:
        return self.n / self.of


def sent(engine: Engine, query: Query) -> list[SentByLevel]:
    """Return what was sent by minute, level and task; conditions on attributes are not possible.

    Raises:
        CorruptStore: a file cannot be read.
    """
    wanted = where_clause(query)
    tried = ", ".join(f"'{outcome}'" for outcome in TRIED)
    text = (
        "select minute_ms, level, task_id, sum(n), sum(weight * n) / sum(n), "
        f"sum(quota * n) / sum(n), sum(wait_ms_sum) from {engine.table(COUNTED)} "
        f"where {within('minute_ms')} and outcome in ({tried}) and {wanted.text} "
        "group by all having sum(n) > 0 order by 1, 2, 3"
    )
    return [SentByLevel(*row) for row in engine.rows(Sql(text, {**bound(query), **wanted.values}))]


def step_ms(period: Period) -> int:
    """Return a length of steps that gives a plot of this period at most 120 of them."""
    return next(
        (step for step in _STEPS_MS if period.length_ms <= step * _MOST_STEPS), _STEPS_MS[-1]
    )


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
