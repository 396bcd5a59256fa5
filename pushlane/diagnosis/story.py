"""What became of single pushes: all that their receipts say, from the first attempt to a click.

A push is found by its id, by whom it was for, or by its trace id. Of each attempt, each end and
each event the receipt is told that counts (`model.counted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pushlane.backends.ports import ReceiptReader
from pushlane.backends.queries import receipts_since
from pushlane.core.task import Task
from pushlane.diagnosis.results import ReceiptRow, begun_ms, row_of
from pushlane.model.counted import kind_of
from pushlane.model.receipt import ReceiptBatch

MOST_ROWS = 10_000


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which receipts are wanted: those that fit each part that is given.

    `task` may be None: then those of all tasks are looked through. With `apps` only what is of
    these.
    """

    task: Task | None = None
    seq: int | None = None
    recipient_hash: int | None = None
    trace_id: str = ""
    apps: frozenset[str] | None = None

    def rows(self, batch: ReceiptBatch) -> Iterator[int]:
        """Yield the rows of a batch that fit."""
        if self.trace_id and not batch.trace_ids:
            return
        column, value = (
            (batch.seq, self.seq)
            if self.seq is not None
            else (batch.recipient_hash, self.recipient_hash)
            if self.recipient_hash is not None
            else (batch.trace_ids, self.trace_id)
        )
        for row, found in enumerate(column):
            if found == value and self._fits(batch, row):
                yield row

    def _fits(self, batch: ReceiptBatch, row: int) -> bool:
        label = batch.tasks[batch.task[row]]
        return (
            (self.task is None or label.task_id == self.task.id)
            and (self.apps is None or label.app in self.apps)
            and (self.recipient_hash is None or batch.recipient_hash[row] == self.recipient_hash)
            and (not self.trace_id or batch.trace_ids[row] == self.trace_id)
        )


@dataclass
class Story:
    """Receipts of pushes in the order of their times.

    With `is_cut` there are more than `MOST_ROWS`. `unread` counts bodies that cannot be read.
    """

    rows: list[ReceiptRow] = field(default_factory=list)
    is_cut: bool = False
    unread: int = 0


async def story_of(log: ReceiptReader, wanted: Wanted) -> Story:
    """Read what became of pushes off the log. Raises Unreachable when it does not answer."""
    first: dict[tuple[str, int, int], ReceiptRow] = {}
    story = Story()
    since_ms = 0 if wanted.task is None else begun_ms(wanted.task)
    async for batch in receipts_since(log, since_ms):
        if batch is None:
            story.unread += 1
            continue
        for row in (row_of(batch, place) for place in wanted.rows(batch)):
            key = row.task_id, row.seq, kind_of(row.outcome, row.attempt)
            known = first.get(key)
            if known is None and len(first) == MOST_ROWS:
                story.is_cut = True
            elif known is None or row.responded_at_ms < known.responded_at_ms:
                first[key] = row
    story.rows = sorted(first.values(), key=lambda row: row.responded_at_ms)
    return story
