"""What became of single pushes: all that their receipts say, from the first attempt to a click.

A push is found by its id, by whom it was for, or by its trace id. Of each attempt, each end and
each event the receipt is told that counts (`model.counted`). What a store of receipts knows already
is given; then only what the log has behind that is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pushlane.backends.ports import ReceiptReader
from pushlane.backends.queries import receipts_behind, receipts_since
from pushlane.diagnosis.results import ReceiptRow, row_of
from pushlane.model.counted import kind_of
from pushlane.model.receipt import Event, ReceiptBatch
from pushlane.util.trace_context import trace_key

MOST_ROWS = 10_000
_BEFORE_MS = 5_000  # an event may be in the log before the receipt of its push
_EVENTS = frozenset(Event)

PushKey = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which receipts are wanted: those that fit each part that is given.

    An empty `task_id` stands for all tasks. With `either` those are wanted that fit any of three:
    the push (`task_id` and `seq`), the recipient, the trace id. A trace id finds each `traceparent`
    of that trace, too. With `apps` only what is of these. None before `since_ms` (Unix ms) is
    looked for.
    """

    task_id: str = ""
    seq: int | None = None
    recipient_hash: int | None = None
    trace_id: str = ""
    apps: frozenset[str] | None = None
    either: bool = False
    since_ms: int = 0

    @property
    def is_of_one_push(self) -> bool:
        return self.seq is not None and not self.either

    def rows(self, batch: ReceiptBatch) -> Iterator[int]:
        """Yield the rows of a batch that fit."""
        columns = [*self._columns(batch)]
        if not self.either:
            found: Iterable[int] = _places(*columns[0])
            fits = all
        else:
            found = sorted({row for one in columns for row in _places(*one)})
            fits = any
        for row in found:
            is_one = fits(self._fits(batch, row, *one) for one in columns)
            if is_one and (self.apps is None or batch.tasks[batch.task[row]].app in self.apps):
                yield row

    def _columns(self, batch: ReceiptBatch) -> Iterator[tuple[Sequence[object], object]]:
        if self.seq is not None:
            yield batch.seq, self.seq
        if self.recipient_hash is not None:
            yield batch.recipient_hash, self.recipient_hash
        if self.trace_id:
            keys = [trace_key(one) for one in batch.trace_ids] or [""] * len(batch)
            yield keys, trace_key(self.trace_id)

    def _fits(self, batch: ReceiptBatch, row: int, column: Sequence[object], value: object) -> bool:
        """Return True if a row has this value, and is of the task where that has to be."""
        needs_task = column is batch.seq or not self.either
        return column[row] == value and (not needs_task or self._is_of_task(batch, row))

    def _is_of_task(self, batch: ReceiptBatch, row: int) -> bool:
        return not self.task_id or batch.tasks[batch.task[row]].task_id == self.task_id


def _places(column: Sequence[object], value: object) -> Iterator[int]:
    return (row for row, found in enumerate(column) if found == value)


@dataclass
class Story:
    """Receipts of pushes in the order of their times.

    With `is_cut` there are more than these `MOST_ROWS`, which are the last. `unread` counts bodies
    that cannot be read. `source` says where they were read, `notes` what may be missing there.
    """

    rows: list[ReceiptRow] = field(default_factory=list)
    is_cut: bool = False
    unread: int = 0
    source: str = ""
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Known:
    """The receipts that a store has already, and the positions up to which it has read the log.

    With `is_cut` the store has more of them than these.
    """

    rows: Sequence[ReceiptRow]
    positions: Sequence[str] | None
    is_cut: bool


async def story_of(log: ReceiptReader, wanted: Wanted, known: Known | None = None) -> Story:
    """Read what became of pushes off the log, or what it has behind what is known.

    Raises Unreachable when it does not answer.
    """
    found = _Found(known.rows if known else ())
    story = Story(is_cut=bool(known and known.is_cut))
    start = known.positions if known else None
    async for batch in _batches(log, start, wanted.since_ms):
        if batch is None:
            story.unread += 1
        else:
            found.add(row_of(batch, place) for place in wanted.rows(batch))
    if not wanted.is_of_one_push and found.rows:
        since_ms = max(1, found.first_ms - _BEFORE_MS)
        async for batch in _batches(log, start, max(since_ms, wanted.since_ms)):
            if batch is not None:
                found.add(row_of(batch, place) for place in _events(batch, found.pushes))
    story.rows = found.last()
    story.is_cut |= found.is_cut
    return story


def _batches(
    log: ReceiptReader, start: Sequence[str] | None, since_ms: int
) -> AsyncIterator[ReceiptBatch | None]:
    return receipts_since(log, since_ms) if start is None else receipts_behind(log, start)


def _events(batch: ReceiptBatch, pushes: frozenset[PushKey]) -> Iterator[int]:
    """Yield the rows of events of these pushes: they do not say whom they are for."""
    if _EVENTS.isdisjoint(batch.outcome):
        return
    for row, outcome in enumerate(batch.outcome):
        push = batch.tasks[batch.task[row]].task_id, batch.seq[row]
        if outcome in _EVENTS and push in pushes:
            yield row


class _Found:
    """The receipts that count, twice as many as are shown at most."""

    def __init__(self, known: Iterable[ReceiptRow]) -> None:
        self.rows: dict[tuple[str, int, int], ReceiptRow] = {}
        self.is_cut = False
        self.add(known)

    def add(self, rows: Iterable[ReceiptRow]) -> None:
        for row in rows:
            key = _key(row)
            before = self.rows.get(key)
            if before is None or row.responded_at_ms < before.responded_at_ms:
                self.rows[key] = row
            if len(self.rows) > 2 * MOST_ROWS:
                self.rows = {_key(one): one for one in self.last()}

    def last(self) -> list[ReceiptRow]:
        """Return the last of them in the order of their times."""
        found = sorted(self.rows.values(), key=lambda row: row.responded_at_ms)
        self.is_cut |= len(found) > MOST_ROWS
        return found[-MOST_ROWS:]

    @property
    def pushes(self) -> frozenset[PushKey]:
        return frozenset((task_id, seq) for task_id, seq, _ in self.rows)

    @property
    def first_ms(self) -> int:
        return min(row.dispatched_at_ms or row.responded_at_ms for row in self.rows.values())


def _key(row: ReceiptRow) -> tuple[str, int, int]:
    return row.task_id, row.seq, kind_of(row.outcome, row.attempt)
