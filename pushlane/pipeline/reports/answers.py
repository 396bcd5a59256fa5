"""Answers to a question about receipts, as plain values: the same from a store and from the log.

A breakdown by outcome has one number a row; any other has a number for each outcome. In a table
times are texts in UTC, to the minute, and unknown values are None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pushlane.core.push import Kind
from pushlane.model.counted import CAUSE_STAGE, LATENCY_BASE, STAGES
from pushlane.model.receipt import Event
from pushlane.model.wait_words import WAITED, WaitPart
from pushlane.pipeline.reports.query import Dimension, Period, Query
from pushlane.util.errors import UnknownTask
from pushlane.util.texts import ambiguous_task, did_you_mean

EVENTS = tuple(event.value for event in Event)
OUTCOMES = (*(kind.value for kind in Kind), *EVENTS)
MOST_REASONS = 12
Key = tuple[Any, ...]
Names = dict[str, str]


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


QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
TIMES = ("min", *(f"p{quantile * 100:g}" for quantile in QUANTILES), "max")
UNDER_A_MS = -1


@dataclass(frozen=True)
class Lateness:
    """How long one stage took over `n` receipts: milliseconds, in the order of `TIMES`."""

    key: Key
    stage: str
    n: int
    times_ms: tuple[float, ...]

    @property
    def quantiles_ms(self) -> tuple[float, ...]:
        """In the order of `QUANTILES`."""
        return self.times_ms[1:-1]


Buckets = Mapping[tuple[Key, str], Sequence[tuple[int, float]]]
"""Of every key and stage its buckets, each with how many it has."""


def lateness_of(buckets: Buckets) -> list[Lateness]:
    """Return the quantiles of every key and stage."""
    parts = (0.0, *QUANTILES, 1.0)
    return [
        Lateness(key, stage, round(sum(n for _, n in counts)), quantiles(counts, parts))
        for (key, stage), counts in buckets.items()
        if stage in STAGES
    ]


def wait_parts_of(buckets: Buckets) -> list[tuple[Key, WaitPart]]:
    """Return the parts of waits by key, of each key first the whole, then the largest.

    As buckets are coarse, the total of the whole is that of its parts, so that they add up.
    """
    found: list[tuple[Key, WaitPart]] = []
    totals: Counter[Key] = Counter()
    for (key, stage), counts in buckets.items():
        if stage.startswith(CAUSE_STAGE):
            part = _wait_part(stage.removeprefix(CAUSE_STAGE), counts)
            found.append((key, part))
            totals[key] += part.total_ms
    for (key, stage), counts in buckets.items():
        if stage == WAITED:
            found.append((key, _wait_part(WAITED, counts)._replace(total_ms=totals[key])))
    return sorted(found, key=lambda one: (one[0], one[1].cause != WAITED, -one[1].total_ms))


def _wait_part(cause: str, counts: Sequence[tuple[int, float]]) -> WaitPart:
    p50, p95 = quantiles(counts, (0.5, 0.95))
    total = sum(n * middle_ms(bucket) for bucket, n in counts)
    return WaitPart(cause, *map(round, (sum(n for _, n in counts), total, p50, p95)))


def quantiles(buckets: Iterable[tuple[int, float]], wanted: Sequence[float]) -> tuple[float, ...]:
    """Return for each wanted part the value of the first bucket that reaches that part of all."""
    counts = sorted(buckets)
    total = sum(n for _, n in counts)
    return tuple(_quantile(counts, part * total) for part in wanted)


def middle_ms(bucket: int) -> float:
    """Return the value that stands for all receipts in a bucket."""
    return 0.0 if bucket <= UNDER_A_MS else LATENCY_BASE ** (bucket + 0.5)


def _quantile(counts: Sequence[tuple[int, float]], rank: float) -> float:
    below = 0.0
    for bucket, n in counts:
        below += n
        if below >= rank * (1 - 1e-12):  # a sum of parts may fall short of its whole
            return middle_ms(bucket)
    return math.nan


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


_PUSH = ("at_ms", "task_id", "task_name", "seq", "app", "level", "sink")
_ENDED = ("outcome", "reason", "attempt", "recipient")
_TIMES = ("submitted_at_ms", "eligible_at_ms", "dispatched_at_ms", "responded_at_ms")
COLUMNS = (*_PUSH, *_ENDED, *_TIMES, "trace_id", "attributes", "sample_weight", "waits")


@dataclass(frozen=True)
class ReceiptRows:
    """Receipts as rows of `COLUMNS`; a sampled row stands for `sample_weight` of its kind."""

    rows: list[dict[str, Any]]

    @property
    def is_sampled(self) -> bool:
        return any(row["sample_weight"] > 1 for row in self.rows)


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
    outcomes: list[_Column] = [(name, partial(_of_outcome, name)) for name in OUTCOMES]
    return [*columns, *outcomes, ("failure_rate", lambda row: _rounded(row.failure_rate, 6))]


def _of_outcome(outcome: str, row: Count) -> int:
    return row.by_outcome.get(outcome, 0)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _lateness(found: Sequence[Lateness] | None) -> list[_Column]:
    if found is None:
        return []
    known = {
        (each.key, each.stage, quantile): ms
        for each in found
        for quantile, ms in zip(QUANTILES, each.quantiles_ms, strict=True)
    }
    return [
        (f"{stage}_p{part * 100:g}_ms", partial(_shown_quantile, known, stage, part))
        for stage in STAGES
        for part in _SHOWN_QUANTILES
    ]


def _shown_quantile(
    known: Mapping[tuple[Key, str, float], float], stage: str, part: float, row: Count
) -> float | None:
    return _rounded(known.get((row.key, stage, part)), 1)


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


@dataclass(frozen=True)
class Report:
    """The sections of a report; `counts` is the breakdown, and the rest is of the same receipts.

    `span` is the part of the period that has any receipts. `names` maps ids of tasks to their
    names. `latency` and `waits` are of delivered pushes, by level.
    """

    title: str
    query: Query
    span: Period | None
    names: Names
    counts: CountRows
    total: Count
    levels: list[Count]
    recipients: int
    funnel: Funnel
    latency: list[Lateness]
    waits: list[tuple[Key, WaitPart]]
    deaths: list[Count]
    step_ms: int
    level_shares: list[Share]
    task_shares: list[Share]
    hours: list[Count]
    notes: list[str]


@dataclass(frozen=True)
class Funnel:
    """The steps from submitted to clicked; each counts pushes, none more than the one before.

    `submitted` are the totals of the tasks if the registry knows them, else the pushes that have
    finished. `sent` are pushes whose delivery ended at the sink: delivered, or dead.
    """

    submitted: int
    sent: int
    delivered: int
    displayed: int
    clicked: int
    submitted_is_known: bool = False

    def steps(self) -> list[tuple[str, int]]:
        names = ("submitted", "sent", "delivered", "displayed", "clicked")
        return [(name, getattr(self, name)) for name in names]


def funnel(by_outcome: Mapping[str, int], submitted: int | None = None) -> Funnel:
    """Return the steps of these counts; `submitted` of None is not known.

    Pushes that finished before the period began can be displayed in it, so each step is cut to the
    one before.
    """
    of = Counter(by_outcome)
    sent = of["delivered"] + of["dead"]
    displayed = min(of["displayed"], of["delivered"])
    return Funnel(
        submitted=max(sent + of["expired"] + of["dropped"], submitted or 0),
        sent=sent,
        delivered=of["delivered"],
        displayed=displayed,
        clicked=min(of["clicked"], displayed),
        submitted_is_known=submitted is not None,
    )


def title_of(query: Query, names: Names) -> str:
    """Return a title: the one task that is asked for, or all of them."""
    asked = [each for each in query.where if each.dimension.word == "task" and not each.negated]
    if len(asked) != 1 or len(asked[0].values) != 1:
        return "All tasks"
    [task_id] = asked[0].values
    name = names.get(task_id)
    return f"Task {name} ({task_id})" if name else f"Task {task_id}"


def by_id(query: Query, known: Names) -> Query:
    """Return the question with ids in place of the names of tasks.

    Raises UnknownTask if no task that there are receipts of, or several, have such an id or name.
    """
    where = (
        replace(each, values=tuple(_id_of(value, known) for value in each.values))
        if each.dimension.word == "task"
        else each
        for each in query.where
    )
    return replace(query, where=tuple(where))


def _id_of(word: str, known: Names) -> str:
    if word in known:
        return word
    ids = [task_id for task_id, name in known.items() if name == word]
    if not ids:
        hint = did_you_mean(word, {*known, *known.values()} - {""})
        raise UnknownTask(f"no receipts of a task {word!r} in this period{hint}")
    if len(ids) > 1:
        raise ambiguous_task(word, sorted(ids, reverse=True))
    return ids[0]
