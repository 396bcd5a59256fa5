"""Shows an answer as one table: a heading for each column, and values as a program wants them.

Times are texts in UTC, to the minute. Unknown values are None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pushlane.pipeline.reports.counts import Count, CountRows, Key
from pushlane.pipeline.reports.dimensions import Dimension
from pushlane.pipeline.reports.latency import QUANTILES, Lateness
from pushlane.pipeline.reports.sources import OUTCOMES
from pushlane.pipeline.store.schema import STAGES

_SHOWN_QUANTILES = (0.5, 0.99)


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first `labels` columns name what a row is about."""

    headings: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    labels: int


def table(
    counts: CountRows,
    names: Mapping[str, str],
    recipients: Mapping[Key, int] | None = None,
    latency: Sequence[Lateness] | None = None,
) -> Table:
    """Make a table of the counts, and of what else is known of the same rows."""
    labels = [(heading, get) for each in counts.by for heading, get in _labels(each, counts, names)]
    numbers = _by_outcome(counts)
    if recipients is not None:
        numbers.append(("recipients", lambda row: recipients.get(row.key, 0)))
    columns = [*labels, *numbers, *_lateness(latency)]
    rows = [tuple(get(row) for _, get in columns) for row in counts.rows]
    return Table(tuple(heading for heading, _ in columns), rows, len(labels))


def time_text(at_ms: int) -> str:
    """Return the time in UTC to the minute, in ISO format."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def second_text(at_ms: int) -> str:
    """Return the time in UTC to the second, in ISO format."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_Column = tuple[str, Callable[[Count], Any]]


def _labels(dimension: Dimension, counts: CountRows, names: Mapping[str, str]) -> list[_Column]:
    place = counts.by.index(dimension)
    if dimension.step_ms:
        return [(dimension.heading, lambda row: time_text(row.key[place]))]
    own: _Column = (dimension.heading, lambda row: row.key[place])
    if dimension.word != "task":
        return [own]
    return [own, ("task_name", lambda row: names.get(row.key[place], ""))]


def _by_outcome(counts: CountRows) -> list[_Column]:
    """Return the number of each row, and one for each outcome unless that is a dimension."""
    columns: list[_Column] = [("n", lambda row: row.n)]
    if counts.is_estimate:
        columns.append(("plus_minus", lambda row: row.plus_minus))
    if any(dimension.word == "outcome" for dimension in counts.by):
        return columns
    outcomes: list[_Column] = [(name, _of(name)) for name in OUTCOMES]
    return [*columns, *outcomes, ("failure_rate", _failure_rate)]


def _of(outcome: str) -> Callable[[Count], int]:
    return lambda row: row.by_outcome.get(outcome, 0)


def _failure_rate(row: Count) -> float | None:
    rate = row.failure_rate
    return None if rate is None else round(rate, 6)


def _lateness(found: Sequence[Lateness] | None) -> list[_Column]:
    if found is None:
        return []
    known = {(each.key, each.stage): each for each in found}
    return [
        (f"{stage}_p{quantile * 100:g}_ms", _quantile(known, stage, quantile))
        for stage in STAGES
        for quantile in _SHOWN_QUANTILES
    ]


def _quantile(
    known: Mapping[tuple[Key, str], Lateness], stage: str, quantile: float
) -> Callable[[Count], float | None]:
    place = QUANTILES.index(quantile)

    def value(row: Count) -> float | None:
        found = known.get((row.key, stage))
        return round(found.quantiles_ms[place], 1) if found else None

    return value
