"""Endings as receipts, written down a flush at a time.

A flush makes bodies of at most five hundred receipts, column by column. The log has them before any
of their messages is acked; one that is away is waited for, and nothing is settled meanwhile.

Of a recipient a receipt shows a few characters to recognise it by, and a keyed hash: whoever has
the receipts but not the key cannot find out by trying whom a hash stands for.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from pushlane.backends.ports import ReceiptLog
from pushlane.core.endings import Ending
from pushlane.core.lane import Job
from pushlane.core.push import Push
from pushlane.core.retrying import Backoff
from pushlane.core.task import Level, Task, now_ms
from pushlane.dispatcher.stats import Stats
from pushlane.model.due import eligible_ms
from pushlane.model.receipt import (
    VERSION,
    ReceiptBatch,
    TaskLabel,
    encode_receipts,
    masked_recipients,
)
from pushlane.model.recipients import Hasher
from pushlane.model.times import LAST_DATE_MS
from pushlane.settings import Settings

T = TypeVar("T")

_waits = attrgetter("not_before_ms")

log = logging.getLogger("pushlane.receipts")

MOST_A_BODY = 500
MOST_BYTES = 1024 * 1024
MOST_ATTEMPTS = 2**31 - 1
REASON_LONGEST = 200
_NOT_WRITABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(eq=False, repr=False)
class Receipts:
    """Writes receipts of endings to the log. `weights` are those in force."""

    receipt_log: ReceiptLog
    settings: Settings
    sink: str
    weights: Callable[[], dict[Level, int]]
    stats: Stats

    def __post_init__(self) -> None:
        self._hasher: Hasher | None = None
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._backoff = Backoff(log, "the log of receipts")
        self.waiting = 0

    async def write(self, endings: Sequence[Ending]) -> None:
        """Return once all receipts of these are durable, however long that takes."""
        if self.settings.receipts == "off":
            return
        receipts = [ending for ending in endings if ending.outcome is not None]
        if not receipts:
            return
        self.waiting = len(receipts)
        hasher = await self._backoff.until_done(self._hashing)
        left_out_before = self.stats.receipts_left_out
        bodies = await self._bodies(receipts, hasher)
        if bodies:
            await self._backoff.until_done(lambda: self._append(bodies))
        left_out = self.stats.receipts_left_out - left_out_before
        self.stats.receipts_written += len(receipts) - left_out
        self.waiting = 0

    async def _append(self, bodies: Sequence[bytes]) -> None:
        started_s = time.monotonic()
        await self.receipt_log.append(bodies)
        self.stats.receipts.add(time.monotonic() - started_s)

    async def _hashing(self) -> Hasher:
        if self._hasher is None:
            key = self.settings.receipts_key
            secret = key.reveal().encode() if key else await self.receipt_log.secret()
            self._hasher = Hasher(secret)
        return self._hasher

    async def _bodies(self, receipts: Sequence[Ending], hasher: Hasher) -> list[bytes]:
        """Encode once, though an append is tried again: a reader knows a batch by its id.

        Between bodies others have their turn, so that pushes go on being taken.
        """
        bodies: list[bytes] = []
        for start in range(0, len(receipts), MOST_A_BODY):
            bodies += self._fitting(receipts[start : start + MOST_A_BODY], hasher)
            await asyncio.sleep(0)
        return bodies

    def _fitting(self, receipts: Sequence[Ending], hasher: Hasher) -> Iterator[bytes]:
        """Yield several bodies when their attributes are large, or one of them cannot be made.

        A push that no receipt can be made of is settled without, whatever it holds.
        """
        is_one = len(receipts) == 1
        try:
            body = encode_receipts(self._batch(receipts, hasher))
        except _NOT_WRITABLE as error:
            if is_one:
                self._leave_out(receipts[0].job.push, error)
                return
        else:
            if is_one or len(body) <= MOST_BYTES:
                yield body
                return
        middle = len(receipts) // 2
        yield from self._fitting(receipts[:middle], hasher)
        yield from self._fitting(receipts[middle:], hasher)

    def _leave_out(self, push: Push, error: Exception) -> None:
        """Count a push without a receipt; the first one is logged."""
        if not self.stats.receipts_left_out:
            log.error(
                "push %s has no receipt: none can be made of it (%s); it is settled all the same",
                push.push_id,
                type(error).__name__,
                extra={"action": "receipt_left_out", "task": push.task_id},
            )
        self.stats.receipts_left_out += 1

    def _batch(self, receipts: Sequence[Ending], hasher: Hasher) -> ReceiptBatch:
        jobs = [receipt.job for receipt in receipts]
        pushes = [job.push for job in jobs]
        recipients = [push.recipient for push in pushes]
        now = now_ms()
        return ReceiptBatch(
            version=VERSION,
            batch_id=f"{self._process}-{next(self._numbers)}",
            sink=self.sink,
            **self._of_tasks([job.task for job in jobs]),
            seq=[push.seq for push in pushes],
            outcome=[receipt.outcome or "" for receipt in receipts],
            reason=[receipt.reason[:REASON_LONGEST] for receipt in receipts],
            attempt=_within(MOST_ATTEMPTS, [push.attempt for push in pushes]),
            recipient=masked_recipients(recipients),
            recipient_hash=hasher.hashes(recipients),
            submitted_at_ms=_within(LAST_DATE_MS, [push.submitted_at_ms for push in pushes]),
            eligible_at_ms=_within(LAST_DATE_MS, _eligible(jobs, pushes)),
            dispatched_at_ms=[job.dispatched_at_ms for job in jobs],
            responded_at_ms=[receipt.at_ms or now for receipt in receipts],
            trace_ids=_column([push.trace_id for push in pushes]),
            attributes=_column([push.attributes for push in pushes]),
        )

    def _of_tasks(self, tasks: list[Task]) -> dict[str, Any]:
        """Return the columns that follow from each push's task as it was: often all are one."""
        weights = self.weights()
        names = list(map(id, tasks))
        kinds = list(dict(zip(names, tasks, strict=True)).values())
        labels = {task.id: TaskLabel(task.id, task.app, task.name) for task in kinds}
        places = {task_id: place for place, task_id in enumerate(labels)}
        rows: dict[str, list[Any]] = {
            "task": [places[task.id] for task in kinds],
            "level": [task.level for task in kinds],
            "quota": [task.quota for task in kinds],
            "weight": [weights[task.level] for task in kinds],
        }
        columns = {name: _spread(values, kinds, names) for name, values in rows.items()}
        return {"tasks": list(labels.values()), **columns}


def _spread(values: list[T], kinds: list[Task], names: list[int]) -> list[T]:
    """Return a value for each receipt, of one for each kind of task."""
    if len(kinds) == 1:
        return values * len(names)
    by_name = dict(zip(map(id, kinds), values, strict=True))
    return [by_name[name] for name in names]


def _eligible(jobs: list[Job], pushes: list[Push]) -> list[int]:
    """Return when each could go. Most could at once: whether all could is cheap to find out."""
    tasks = {id(job.task): job.task for job in jobs}.values()
    if any(map(_waits, pushes)) or any(task.not_before_ms or task.quiet for task in tasks):
        return [eligible_ms(job.task, job.push) for job in jobs]
    return [push.due_at_ms or push.submitted_at_ms for push in pushes]


def _within(most: int, numbers: list[int]) -> list[int]:
    """Bring numbers from 0 to `most`, as a foreign writer's may be any; nearly all are."""
    if min(numbers) >= 0 and max(numbers) <= most:
        return numbers
    return [min(max(number, 0), most) for number in numbers]


def _column(values: list[T]) -> list[T]:
    """Return nothing when no receipt has any."""
    return values if any(values) else []
