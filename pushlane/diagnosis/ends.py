"""Reads how the pushes of a task ended, page by page, from the log of receipts.

A page costs what it reads, whatever came before it: it begins at a position of the log. So a push
that ended twice, after a process was killed, is there twice: the first in time is the one that
counts (`model.counted`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import NamedTuple

from pushlane.backends.ports import ReceiptReader
from pushlane.core.errors import UnknownFormat
from pushlane.core.task import Task
from pushlane.diagnosis.results import ReceiptRow, begun_ms, row_of, rows_of
from pushlane.model.counted import read_receipts
from pushlane.util.errors import MalformedReceipts, ReceiptsGone

_FEWEST, _MOST = 4, 1_024
"""Bodies of the log that are read in one step; more where they have nothing of the task."""


class EndsPlace(NamedTuple):
    """Behind which row a page begins: that of this number between two positions of the log.

    Without `end` it is the first behind `start`.
    """

    start: Sequence[str]
    end: Sequence[str] = ()
    row: int = 0


class FirstEnds:
    """Tells which rows of a task count: of each push the first in time, and that once."""

    def __init__(self) -> None:
        self._first_ms: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._first_ms)

    def add(self, seq: int, at_ms: int) -> None:
        """Note a row, of the push `seq`, which ended then (Unix ms)."""
        self._first_ms[seq] = min(at_ms, self._first_ms.get(seq, at_ms))

    def take(self, seq: int, at_ms: int) -> bool:
        """Tell whether this is the row that counts, once all are noted: add nothing after."""
        if self._first_ms.get(seq) != at_ms:
            return False
        del self._first_ms[seq]
        return True


class EndsPage(NamedTuple):
    """Rows in the order of the log, and where they go on: None at their end."""

    rows: list[ReceiptRow]
    next: EndsPlace | None


async def ends_of(
    log: ReceiptReader,
    task: Task,
    place: EndsPlace | None = None,
    *,
    limit: int = 0,
    patience_s: float | None = None,
) -> EndsPage:
    """Return the next rows of a task, `limit` at most (0: all), or those found in that time.

    Nothing is taken from the log. Raises Unreachable when it does not answer.
    """
    if place is None:
        place = EndsPlace(await log.since(begun_ms(task)))
    give_up_s = None if patience_s is None else time.monotonic() + patience_s
    found: list[ReceiptRow] = []
    bodies = _FEWEST
    while True:
        start = await log.kept(place.start)
        if start != [*place.start]:  # what came next is not kept any longer
            place = EndsPlace(start)
        if not place.end and not await log.lag(start):
            return EndsPage(found, None)
        end = place.end or await log.advance(start, bodies)
        rows = (await _between(log, task.id, start, end))[place.row :]
        room = limit - len(found) if limit else len(rows)
        found += rows[:room]
        if len(rows) > room:
            return EndsPage(found, EndsPlace(start, end, place.row + room))
        place = EndsPlace(end)
        bodies = _FEWEST if rows else min(2 * bodies, _MOST)
        if len(found) == limit > 0 or (give_up_s is not None and time.monotonic() > give_up_s):
            return EndsPage(found, place)


async def _between(
    log: ReceiptReader, task_id: str, start: Sequence[str], end: Sequence[str]
) -> list[ReceiptRow]:
    found: list[ReceiptRow] = []
    for partition, (first, last) in enumerate(zip(start, end, strict=True)):
        with contextlib.suppress(ReceiptsGone):
            async for page in log.read(partition, first, last):
                for body in page:
                    with contextlib.suppress(MalformedReceipts, UnknownFormat):
                        batch = read_receipts(body)
                        found += (row_of(batch, row) for row in rows_of(task_id, batch))
    return found
