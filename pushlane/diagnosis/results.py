"""How a task went, by its receipts, which are read off their log by position and never committed.

So nothing is taken from the pipeline, which reads the same log, and the same receipts count
(`model.counted`).
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pushlane.backends.ports import ReceiptReader
from pushlane.backends.queries import receipts_since
from pushlane.core.push import Kind
from pushlane.core.task import Progress, Task
from pushlane.model.counted import ENDS
from pushlane.model.reasons import Reasons
from pushlane.model.receipt import ReceiptBatch, waits_of
from pushlane.model.task_changes import settled, settled_reasons
from pushlane.model.wait_words import WAITED, WaitPart

MOST_REASONS = 20
_OF_END = {kind.value: number for number, kind in enumerate(ENDS, 1)}
_BEFORE_MS = 5_000  # the clock of the process that made the task may go before that of a dispatcher


class ReceiptRow(NamedTuple):
    """One receipt of a push, as a rule of its end; `recipient` is masked. Times are Unix ms.

    `waits` are the parts of its wait by cause, in ms; None where its writer did not tell.
    """

    task_id: str
    seq: int
    outcome: str
    reason: str
    attempt: int
    sink: str
    recipient: str
    submitted_at_ms: int
    dispatched_at_ms: int
    responded_at_ms: int
    trace_id: str
    recipient_hash: int
    waits: dict[str, int] | None

    @property
    def push_id(self) -> str:
        return f"{self.task_id}-{self.seq}"


@dataclass(frozen=True)
class Times:
    """Durations in ms, over the `n` pushes of which both ends are known."""

    n: int
    min_ms: int
    p50_ms: int
    p99_ms: int
    max_ms: int


@dataclass(frozen=True)
class Results:
    """How a task went. `lacking` has, by outcome, what is counted and no receipt says.

    `reasons` are the most frequent of what is not delivered, each with its outcome; `others` counts
    the rest. Of an outcome of which receipts lack they are the classes that the task has counted.
    `wait` is from when a delivered push could first go to its dispatch, `delivery` from
    there to the answer; None where no push was delivered, as is the rate. `waits` are the parts of
    the time from submitted to dispatched, of the delivered pushes whose receipts tell: first the
    whole, then the largest. `unread` counts bodies of the log that this version cannot read.
    """

    counts: dict[Kind, int]
    lacking: dict[Kind, int]
    reasons: list[tuple[Kind, str, int]]
    others: int
    first_at_ms: int
    last_at_ms: int
    per_s: float | None
    wait: Times | None
    delivery: Times | None
    waits: list[WaitPart]
    unread: int


class TaskReceipts:
    """The first receipt of an end of each push of a task, in some 150 bytes each.

    Eight more bytes are for each cause for which some push of the task has waited.
    """

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self._places: dict[int, int] = {}  # of each seq in the columns below
        self._at_ms = array("q")
        self._dispatched_ms = array("q")
        self._eligible_ms = array("q")
        self._end = bytearray()
        self._reason = array("i")
        self._reasons: dict[str, int] = {}
        self._is_told = bytearray()
        self._waits: dict[str, array[int]] = {}

    def add(self, batch: ReceiptBatch) -> None:
        """Take what a batch says of the task."""
        for row in rows_of(self.task_id, batch):
            at_ms = batch.responded_at_ms[row]
            place = self._places.setdefault(batch.seq[row], len(self._end))
            if place == len(self._end):
                self._add_place()
            elif self._at_ms[place] <= at_ms:
                continue
            self._at_ms[place] = at_ms
            self._end[place] = _OF_END[batch.outcome[row]]
            self._dispatched_ms[place] = batch.dispatched_at_ms[row]
            self._eligible_ms[place] = batch.eligible_at_ms[row]
            reason = batch.reason[row]
            self._reason[place] = self._reasons.setdefault(reason, len(self._reasons))
            self._tell(place, waits_of(batch, row))

    def results(self, task: Task, progress: Progress, known: Reasons, unread: int = 0) -> Results:
        """Return what they come to, beside what is counted of the task, and why."""
        found = {kind: self._end.count(number) for number, kind in enumerate(ENDS, 1)}
        lacking = {kind: max(0, getattr(progress, kind.value) - n) for kind, n in found.items()}
        whole = settled(task, progress)
        sent = [place for place, at_ms in enumerate(self._dispatched_ms) if at_ms]
        delivered = [place for place in sent if self._end[place] == _OF_END[Kind.DELIVERED]]
        first_ms = min((self._dispatched_ms[place] for place in sent), default=0)
        last_ms = max((self._at_ms[place] for place in sent), default=0)
        took_s = (last_ms - first_ms) / 1000
        reasons = self._reasons_found(lacking, settled_reasons(task, progress, known))
        return Results(
            counts={kind: max(n, getattr(whole, kind.value)) for kind, n in found.items()},
            lacking=lacking,
            reasons=reasons[:MOST_REASONS],
            others=sum(count for _, _, count in reasons[MOST_REASONS:]),
            first_at_ms=first_ms,
            last_at_ms=last_ms,
            per_s=len(delivered) / took_s if delivered and took_s > 0 else None,
            wait=_times(self._eligible_ms, self._dispatched_ms, delivered),
            delivery=_times(self._dispatched_ms, self._at_ms, delivered),
            waits=self._wait_parts(delivered),
            unread=unread,
        )

    def _add_place(self) -> None:
        self._end.append(0)
        self._is_told.append(False)
        for column in (self._at_ms, self._dispatched_ms, self._eligible_ms, self._reason):
            column.append(0)
        for parts in self._waits.values():
            parts.append(0)

    def _tell(self, place: int, waits: Mapping[str, int] | None) -> None:
        """Note the parts of a wait, in place of what was noted of the push before."""
        self._is_told[place] = waits is not None
        for parts in self._waits.values():
            parts[place] = 0
        for cause, ms in (waits or {}).items():
            if cause not in self._waits:
                self._waits[cause] = array("q", bytes(8 * len(self._end)))
            self._waits[cause][place] = ms

    def _wait_parts(self, places: Sequence[int]) -> list[WaitPart]:
        known = [place for place in places if self._is_told[place]]
        if not known:
            return []
        wholes = sorted(sum(parts[place] for parts in self._waits.values()) for place in known)
        took = {
            cause: sorted(parts[place] for place in known if parts[place])
            for cause, parts in self._waits.items()
        }
        found = [_part(cause, times) for cause, times in took.items() if times]
        return [_part(WAITED, wholes), *sorted(found, key=lambda one: -one.total_ms)]

    def _reasons_found(
        self, lacking: Mapping[Kind, int], known: Reasons
    ) -> list[tuple[Kind, str, int]]:
        """Return the reasons in receipts, or those of the task where receipts lack; most first."""
        texts = list(self._reasons)
        counts = Counter(zip(self._end, self._reason, strict=True))
        found = [
            (kind, texts[reason], n)
            for (end, reason), n in counts.items()
            if not lacking[kind := ENDS[end - 1]]
        ]
        found += [
            (kind, reason, n)
            for kind, reasons in known.by_kind().items()
            if lacking[kind]
            for reason, n in reasons.items()
        ]
        return sorted(
            (one for one in found if one[0] is not Kind.DELIVERED), key=lambda one: -one[2]
        )


def rows_of(task_id: str, batch: ReceiptBatch) -> list[int]:
    """Return which rows of a batch say how a push of the task ended."""
    place = next((at for at, label in enumerate(batch.tasks) if label.task_id == task_id), None)
    if place is None:
        return []
    outcomes = batch.outcome
    return [row for row, of in enumerate(batch.task) if of == place and outcomes[row] in _OF_END]


def row_of(batch: ReceiptBatch, row: int) -> ReceiptRow:
    """Return one receipt of a batch."""
    return ReceiptRow(
        task_id=batch.tasks[batch.task[row]].task_id,
        seq=batch.seq[row],
        outcome=batch.outcome[row],
        reason=batch.reason[row],
        attempt=batch.attempt[row],
        sink=batch.sink,
        recipient=batch.recipient[row],
        submitted_at_ms=batch.submitted_at_ms[row],
        dispatched_at_ms=batch.dispatched_at_ms[row],
        responded_at_ms=batch.responded_at_ms[row],
        trace_id=batch.trace_ids[row] if batch.trace_ids else "",
        recipient_hash=batch.recipient_hash[row],
        waits=waits_of(batch, row),
    )


def begun_ms(task: Task) -> int:
    """Return since when there may be receipts of the task, in Unix ms."""
    return max(1, task.created_at_ms - _BEFORE_MS)


async def results_of(log: ReceiptReader, task: Task, progress: Progress, known: Reasons) -> Results:
    """Read how a task went, of which so much is counted.

    Raises Unreachable when the log does not answer.
    """
    receipts, unread = TaskReceipts(task.id), 0
    async for batch in receipts_since(log, begun_ms(task)):
        if batch is None:
            unread += 1
        else:
            receipts.add(batch)
    return receipts.results(task, progress, known, unread)


def _times(since: Sequence[int], until: Sequence[int], places: Sequence[int]) -> Times | None:
    took = sorted(max(0, until[place] - since[place]) for place in places if since[place])
    if not took:
        return None
    last = len(took) - 1
    p50, p99 = took[last // 2], took[math.ceil(0.99 * last)]
    return Times(n=len(took), min_ms=took[0], p50_ms=p50, p99_ms=p99, max_ms=took[-1])


def _part(cause: str, took: Sequence[int]) -> WaitPart:
    """Return the part of a cause, of its times in their order: at least one."""
    last = len(took) - 1
    p50, p95 = took[last // 2], took[math.ceil(0.95 * last)]
    return WaitPart(cause, len(took), sum(took), p50, p95)
