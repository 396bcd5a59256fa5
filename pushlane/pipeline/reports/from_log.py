"""Answers questions from the log of receipts itself, where there is no store of reports.

The log is read by position, and nothing is committed: once to find out which receipts count
(`model.counted`), and once to count those. Counts are exact, quantiles come from the buckets that
the store has, and an event counts with the attributes that it brought.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import Any

from pushlane.backends.ports import ReceiptReader
from pushlane.backends.queries import receipts_since
from pushlane.core.errors import BadInput
from pushlane.model.counted import CAUSE_STAGE, LATENCY_BASE, STAGES, kind_of
from pushlane.model.read_bounds import NO_BOUNDS, ReadBounds
from pushlane.model.receipt import Event, ReceiptBatch, TaskLabel, waits_of
from pushlane.model.wait_words import WAITED, WaitPart
from pushlane.pipeline.reports.answers import (
    COLUMNS,
    MOST_REASONS,
    UNDER_A_MS,
    Answer,
    AnswerOptions,
    Buckets,
    Count,
    CountRows,
    Key,
    Lateness,
    Names,
    ReceiptRows,
    Report,
    Table,
    by_id,
    funnel,
    lateness_of,
    table,
    title_of,
    wait_parts_of,
)
from pushlane.pipeline.reports.query import Condition, Dimension, Query

_NOTE = "from the log of receipts: there is no store of reports (`pushlane pipeline run` makes one)"
_STEP_S = 0.02
_EVENTS = frozenset(Event)
_DELIVERED = Condition(Dimension("outcome"), ("delivered",))
_DEAD = Condition(Dimension("outcome"), ("dead",))


async def counts_of(
    log: ReceiptReader, query: Query, options: AnswerOptions, bounds: ReadBounds = NO_BOUNDS
) -> Answer:
    """Return the breakdown that is asked for, and nothing else.

    Raises:
        BadInput: there are more receipts than can be counted so.
        UnknownTask: the query names a task of which there are none.
    """
    reading = await _begun(log, query, bounds)
    tally = _Tally(reading.query, options.with_latency, options.with_recipients)
    async for batch, rows in reading.counted():
        tally.add(batch, rows)
    counts = tally.counts(options.limit)
    return Answer(counts, _table(tally, counts, reading.names, options), [_NOTE])


async def report_of(
    log: ReceiptReader,
    query: Query,
    options: AnswerOptions,
    submitted: int | None = None,
    bounds: ReadBounds = NO_BOUNDS,
) -> tuple[Report, Table]:
    """Return a report without what only pictures show; raises what `counts_of` does."""
    reading = await _begun(log, query, bounds)
    query = reading.query
    main = _Tally(query, options.with_latency, options.with_recipients)
    whole = _Tally(query.broken_down_by(), with_recipients=True)
    late = _Tally(query.broken_down_by(Dimension("level")).filtered(_DELIVERED), with_latency=True)
    deaths = _Tally(query.broken_down_by(Dimension("reason")).filtered(_DEAD))
    async for batch, rows in reading.counted():
        for tally in (main, whole, late, deaths):
            tally.add(batch, rows)
    total = next(iter(whole.counts(1).rows), Count((), 0, {}))
    counts = main.counts(options.limit)
    made = Report(
        title=title_of(query, reading.names),
        query=query,
        span=None,
        names=reading.names,
        counts=counts,
        total=total,
        levels=[],
        recipients=len(whole.recipients.get((), ())),
        funnel=funnel(total.by_outcome, submitted),
        latency=late.lateness(),
        waits=late.wait_parts(),
        deaths=deaths.counts(MOST_REASONS).rows,
        step_ms=0,
        level_shares=[],
        task_shares=[],
        hours=[],
        notes=[_NOTE],
    )
    return made, _table(main, counts, reading.names, options)


async def rows_of(
    log: ReceiptReader, query: Query, limit: int, bounds: ReadBounds = NO_BOUNDS
) -> ReceiptRows:
    """Return the last receipts that meet the conditions; raises what `counts_of` does."""
    reading = await _begun(log, query, bounds)
    last: list[tuple[int, int, dict[str, Any]]] = []
    places = numbers()
    async for batch, rows in reading.counted():
        for row in _fitting(reading.query, batch, rows):
            at_ms = batch.responded_at_ms[row]
            if len(last) < limit:
                heapq.heappush(last, (at_ms, next(places), _row(batch, row)))
            elif at_ms > last[0][0]:
                heapq.heapreplace(last, (at_ms, next(places), _row(batch, row)))
    return ReceiptRows([row for _, _, row in sorted(last, key=lambda one: one[:2], reverse=True)])


@dataclass
class _Reading:
    """One question, and which receipts count for it: the times of the first, by push and kind."""

    log: ReceiptReader
    query: Query
    bounds: ReadBounds
    names: Names = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)
    _first_ms: dict[int, int] = field(default_factory=dict)

    async def begin(self) -> None:
        first_ms, most = self._first_ms, self.bounds.most_receipts
        async for batch in self._batches():
            for label in filter(self._is_of_apps, batch.tasks):
                self.names[label.task_id] = label.name or self.names.get(label.task_id, "")
            for key, at_ms in zip(self._keys(batch), batch.responded_at_ms, strict=True):
                if key >= 0 and at_ms < first_ms.get(key, math.inf):
                    first_ms[key] = at_ms
            if len(first_ms) > most:
                raise BadInput(
                    f"there are more than {most:,} receipts: `pushlane pipeline run` reads them "
                    "into a store of reports, which answers this at once; or ask about a TASK, "
                    "or a shorter time (--since)"
                )

    async def counted(self) -> AsyncIterator[tuple[ReceiptBatch, list[int]]]:
        """Yield the batches, each with its rows that count and lie in the period: only once."""
        first_ms, period = self._first_ms, self.query.period
        async for batch in self._batches():
            rows = []
            for row, (key, at_ms) in enumerate(
                zip(self._keys(batch), batch.responded_at_ms, strict=True)
            ):
                if first_ms.get(key) == at_ms:
                    del first_ms[key]
                    if period.since_ms <= at_ms < period.until_ms:
                        rows.append(row)
            if rows:
                yield batch, rows

    async def _batches(self) -> AsyncIterator[ReceiptBatch]:
        """Yield the batches. Where others are to have as much time as it takes, it sleeps as long,
        in steps of 20 ms: one sleep takes a millisecond more than it should, however short it is.
        """
        owed_s = 0.0
        async for batch in receipts_since(self.log, self.query.period.since_ms):
            if batch is None:
                continue
            begun_s = time.monotonic()
            yield batch
            owed_s += time.monotonic() - begun_s
            if self.bounds.gives_way and owed_s >= _STEP_S:
                await asyncio.sleep(owed_s)
                owed_s = 0.0

    def _keys(self, batch: ReceiptBatch) -> Iterator[int]:
        """Yield a number for each push and what its receipt says; -1 for one that is not asked."""
        places = self._places
        of_task = [
            places.setdefault(label.task_id, len(places)) if self._is_asked(label) else -1
            for label in batch.tasks
        ]
        columns = zip(batch.task, batch.seq, batch.outcome, batch.attempt, strict=True)
        for task, seq, outcome, attempt in columns:
            place = of_task[task]
            yield place << 44 | kind_of(outcome, attempt) << 32 | seq if place >= 0 else -1

    def _is_of_apps(self, label: TaskLabel) -> bool:
        return all(
            (label.app in each.values) is not each.negated
            for each in self.query.where
            if each.dimension.word == "app"
        )

    def _is_asked(self, label: TaskLabel) -> bool:
        return self._is_of_apps(label) and all(
            (label.task_id in each.values or label.name in each.values) is not each.negated
            for each in self.query.where
            if each.dimension.word == "task"
        )


async def _begun(log: ReceiptReader, query: Query, bounds: ReadBounds) -> _Reading:
    reading = _Reading(log, query, bounds)
    await reading.begin()
    reading.query = by_id(query, reading.names)
    return reading


class _Tally:
    """Counts the receipts that a query asks for, in one pass."""

    def __init__(
        self, query: Query, with_latency: bool = False, with_recipients: bool = False
    ) -> None:
        self._query = query
        self._with_latency = with_latency
        self._with_recipients = with_recipients
        self._counts: Counter[tuple[Key, str]] = Counter()
        self._buckets: Counter[tuple[Key, str, int]] = Counter()
        self.recipients: defaultdict[Key, set[int]] = defaultdict(set)

    def add(self, batch: ReceiptBatch, rows: Sequence[int]) -> None:
        columns = [_column(each, batch) for each in self._query.by]
        for row in _fitting(self._query, batch, rows):
            key = tuple(column(row) for column in columns)
            outcome = batch.outcome[row]
            self._counts[key, outcome] += 1
            if outcome in _EVENTS:
                continue
            if self._with_recipients:
                self.recipients[key].add(batch.recipient_hash[row])
            if self._with_latency:
                for stage, took_ms in _stages(batch, row):
                    self._buckets[key, stage, _bucket(took_ms)] += 1

    def counts(self, limit: int) -> CountRows:
        """Return the rows in their order, the first `limit` of them."""
        by_key: defaultdict[Key, dict[str, int]] = defaultdict(dict)
        for (key, outcome), n in self._counts.items():
            by_key[key][outcome] = n
        rows = [Count(key, sum(found.values()), found) for key, found in by_key.items()]
        times = [place for place, each in enumerate(self._query.by) if each.step_ms]
        rows.sort(key=lambda row: ([row.key[place] for place in times], -row.n, row.key))
        return CountRows(self._query.by, rows[:limit], len(rows), is_estimate=False)

    def lateness(self) -> list[Lateness]:
        return lateness_of(self._by_stage())

    def wait_parts(self) -> list[tuple[Key, WaitPart]]:
        return wait_parts_of(self._by_stage())

    def _by_stage(self) -> Buckets:
        buckets: defaultdict[tuple[Key, str], list[tuple[int, float]]] = defaultdict(list)
        for (key, stage, bucket), n in self._buckets.items():
            buckets[key, stage].append((bucket, n))
        return buckets


def _table(tally: _Tally, counts: CountRows, names: Names, options: AnswerOptions) -> Table:
    recipients = {key: len(found) for key, found in tally.recipients.items()}
    return table(
        counts,
        names,
        recipients if options.with_recipients else None,
        tally.lateness() if options.with_latency else None,
    )


def _fitting(query: Query, batch: ReceiptBatch, rows: Sequence[int]) -> Sequence[int]:
    """Return the rows that meet all conditions."""
    for each in query.where:
        value, values, negated = _column(each.dimension, batch), each.values, each.negated
        rows = [row for row in rows if (value(row) in values) is not negated]
    return rows


def _column(dimension: Dimension, batch: ReceiptBatch) -> Callable[[int], Any]:
    """Return what tells the value of the dimension in a row of the batch."""
    if step := dimension.step_ms:
        return lambda row: batch.responded_at_ms[row] // step * step
    if name := dimension.attribute:
        attributes = batch.attributes
        return lambda row: (attributes[row] or {}).get(name, "") if attributes else ""
    if dimension.word == "task":
        return lambda row: batch.tasks[batch.task[row]].task_id
    if dimension.word == "app":
        return lambda row: batch.tasks[batch.task[row]].app
    if dimension.word == "sink":
        return lambda row: batch.sink
    column: list[str] = getattr(batch, dimension.word)
    return column.__getitem__


def _stages(batch: ReceiptBatch, row: int) -> Iterator[tuple[str, int]]:
    """Yield each stage that a push was in, and each part of its wait, with how many ms it took."""
    for stage, (start, end) in STAGES.items():
        since_ms, until_ms = getattr(batch, start)[row], getattr(batch, end)[row]
        if since_ms > 0 and until_ms > 0:
            yield stage, until_ms - since_ms
    if (waits := waits_of(batch, row)) is not None:
        yield WAITED, sum(waits.values())
        yield from ((CAUSE_STAGE + cause, ms) for cause, ms in waits.items())


def _bucket(took_ms: int) -> int:
    return UNDER_A_MS if took_ms < 1 else math.floor(math.log(took_ms) / math.log(LATENCY_BASE))


def _row(batch: ReceiptBatch, row: int) -> dict[str, Any]:
    label = batch.tasks[batch.task[row]]
    own = {
        "at_ms": batch.responded_at_ms[row],
        "task_id": label.task_id,
        "task_name": label.name,
        "app": label.app,
        "sink": batch.sink,
        "trace_id": batch.trace_ids[row] if batch.trace_ids else "",
        "attributes": batch.attributes[row] if batch.attributes else None,
        "sample_weight": 1.0,
        "waits": waits_of(batch, row),
    }
    return {name: own[name] if name in own else getattr(batch, name)[row] for name in COLUMNS}
