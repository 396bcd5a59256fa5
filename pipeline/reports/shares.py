"""Computes who got which share of the sinks over time, and what each was entitled to.

Every tried delivery counts, whatever its outcome, since each took a slot. Within a minute, a level
is entitled to its weight among the levels that sent anything, and a task to its quota among the
tasks of its level. One that had little to send takes less than that, and others then take more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pushlane.pipeline.reports import clauses
from pushlane.pipeline.reports.dimensions import TIMES_MS
from pushlane.pipeline.reports.engine import COUNTED, Engine, Sql
from pushlane.pipeline.reports.query import Period, Query
from pushlane.pipeline.reports.sources import bound, within

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
    wanted = clauses.condition(query)
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
    return _in_steps(_minutes(rows, _level_parts), step)


def by_task(rows: Iterable[SentByLevel], step: int = TIMES_MS["minute"]) -> list[Share]:
    """Return the share of each task in each step."""
    return _in_steps(_minutes(rows, _task_parts), step)


class _MinuteShare(NamedTuple):
    minute_ms: int
    name: str
    n: int
    of: int
    entitled_n: float


def _minutes(rows: Iterable[SentByLevel], parts: Any) -> list[_MinuteShare]:
    minutes: dict[int, list[SentByLevel]] = defaultdict(list)
    for row in rows:
        minutes[row.minute_ms].append(row)
    return [part for minute in minutes.values() for part in parts(minute)]


def _level_parts(rows: Sequence[SentByLevel]) -> list[_MinuteShare]:
    total = sum(row.n for row in rows)
    weights = _weights(rows)
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.level] += row.n
    return [
        _MinuteShare(rows[0].minute_ms, level, n, total, total * weights[level])
        for level, n in counts.items()
    ]


def _task_parts(rows: Sequence[SentByLevel]) -> list[_MinuteShare]:
    total = sum(row.n for row in rows)
    weights = _weights(rows)
    quotas: dict[str, float] = defaultdict(float)
    for row in rows:
        quotas[row.level] += row.quota
    return [
        _MinuteShare(
            row.minute_ms,
            row.task_id,
            row.n,
            total,
            total * weights[row.level] * row.quota / (quotas[row.level] or 1),
        )
        for row in rows
    ]


def _weights(rows: Sequence[SentByLevel]) -> dict[str, float]:
    """Return the part of each level that sent anything; parts are equal if all weights are 0."""
    sums: dict[str, tuple[float, int]] = {}
    for row in rows:
        weighted, n = sums.get(row.level, (0.0, 0))
        sums[row.level] = (weighted + row.weight * row.n, n + row.n)
    means = {level: weighted / n for level, (weighted, n) in sums.items()}
    total = sum(means.values())
    return {level: mean / total if total else 1 / len(means) for level, mean in means.items()}


def _in_steps(parts: Iterable[_MinuteShare], step: int) -> list[Share]:
    """Add up the minutes of each step.

    In a minute in which a name sent nothing it is entitled to nothing, but the minute counts in
    what all sent.
    """
    totals: dict[int, dict[int, int]] = defaultdict(dict)
    sums: dict[tuple[int, str], tuple[int, float]] = {}
    for part in parts:
        at = part.minute_ms - part.minute_ms % step
        totals[at][part.minute_ms] = part.of
        n, entitled_n = sums.get((at, part.name), (0, 0.0))
        sums[at, part.name] = (n + part.n, entitled_n + part.entitled_n)
    of = {at: sum(minutes.values()) for at, minutes in totals.items()}
    return [
        Share(at, name, n, of[at], entitled_n / of[at])
        for (at, name), (n, entitled_n) in sorted(sums.items())
    ]
