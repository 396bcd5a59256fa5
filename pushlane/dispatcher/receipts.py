"""Endings as receipts, written down a flush at a time.

A flush makes bodies of at most five hundred receipts, column by column. While all is well the log
has them before any of their messages is acked. With `receipts = required` one that is away is
waited for, and nothing is settled meanwhile. With `on` it is *behind* once it has not taken a flush
within a second: from then on bodies wait in memory, in order and bounded, and outcomes are settled
before they are in the log. Receipts are reports: no delivery stops for them.

Of a recipient a receipt shows a few characters to recognise it by, and a keyed hash: whoever has
the receipts but not the key cannot find out by trying whom a hash stands for. While the key cannot
be learnt no receipt is made.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pushlane.backends.ports import ReceiptLog
from pushlane.backends.queries import receipt_hasher
from pushlane.core.endings import Ending
from pushlane.core.lane import Job
from pushlane.core.push import Kind, Push
from pushlane.core.retrying import Backoff
from pushlane.core.task import Level, SteadyTime, Task
from pushlane.dispatcher.stats import ReceiptLoss, Stats
from pushlane.dispatcher.tracing.traces import LineTraces
from pushlane.dispatcher.waits import Waits
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
from pushlane.model.waits import Cause
from pushlane.settings import Settings
from pushlane.util.log_ids import ids_of

T = TypeVar("T")

log = logging.getLogger("pushlane.receipts")

MOST_A_BODY = 500
MOST_BYTES = 1024 * 1024
MOST_ATTEMPTS = 2**31 - 1
REASON_LONGEST = 200
BEHIND_AFTER_S = 1.0
_DRAIN_S = 5.0
_NOT_WRITABLE = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


class _Entry(NamedTuple):
    bodies: list[bytes]
    size: int
    receipts: int
    durable: asyncio.Event


class ReceiptQueue:
    """Bodies on their way to the log, in their order; `most_bytes` wait while it is behind.

    It is behind once it has not taken a flush for `patience_s` (None: it is waited for without an
    end). `waiting` and `bytes` are of the receipts that are not in the log yet.
    """

    def __init__(
        self,
        receipt_log: ReceiptLog,
        most_bytes: int,
        patience_s: float | None,
        stats: Stats,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = receipt_log
        self._most_bytes = most_bytes
        self.patience_s = patience_s
        self._stats = stats
        self._clock_s = clock_s
        self._entries: deque[_Entry] = deque()
        self._due = asyncio.Event()
        self._empty = asyncio.Event()
        self._behind_since_s: float | None = None
        self._has_told = False
        self.waiting = 0
        self.bytes = 0

    def behind_s(self) -> float:
        """Return for how long it has been behind, 0 while it is not. Any thread may ask."""
        since_s = self._behind_since_s
        return 0.0 if since_s is None else self._clock_s() - since_s

    async def put(self, bodies: list[bytes], receipts: int) -> None:
        """Return once these are in the log, or at once while it is behind."""
        entry = _Entry(bodies, sum(map(len, bodies)), receipts, asyncio.Event())
        self._entries.append(entry)
        self.waiting += receipts
        self.bytes += entry.size
        self._empty.clear()
        self._due.set()
        if self._behind_since_s is None:
            try:
                async with asyncio.timeout(self.patience_s):
                    await entry.durable.wait()
            except TimeoutError:
                if not entry.durable.is_set():  # it may have come in the very moment
                    self.fall_behind()
        if self._behind_since_s is not None:
            self._make_room()

    def fall_behind(self) -> None:
        """Wait for the log no longer, until it has taken all that waits."""
        if self._behind_since_s is None:
            self._behind_since_s = self._clock_s()
            log.warning(
                "the log of receipts is behind: outcomes are settled, and their receipts wait in "
                "memory, %.0f MiB of them at most; a kill loses what waits",
                self._most_bytes / 1024**2,
                extra={"action": "receipts_behind"},
            )

    async def run(self) -> None:
        """Append what is put here, for ever."""
        backoff = Backoff(log, "the log of receipts")
        while True:
            await self._due.wait()
            self._due.clear()
            while entries := self._next():
                bodies = [body for entry in entries for body in entry.bodies]
                await backoff.until_done(partial(self._append, bodies))
                for entry in entries:
                    self._forget(entry)
                    self._stats.receipts_written += entry.receipts
                    entry.durable.set()
            self._caught_up()

    async def drain(self, timeout_s: float) -> None:
        """Wait for what is not in the log, so long at most; the rest is lost."""
        if not self.waiting:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            self._stats.receipts_lost[ReceiptLoss.STOPPED] += self.waiting

    async def _append(self, bodies: Sequence[bytes]) -> None:
        started_s = time.monotonic()
        await self._log.append(bodies)
        self._stats.receipts.add(time.monotonic() - started_s)

    def _next(self) -> list[_Entry]:
        """Take what comes next, several together where they are small."""
        entries: list[_Entry] = []
        size = 0
        while self._entries and (not entries or size + self._entries[0].size <= MOST_BYTES):
            entries.append(self._entries.popleft())
            size += entries[-1].size
        return entries

    def _make_room(self) -> None:
        """Let the oldest go, until the others fit."""
        while self.bytes > self._most_bytes and self._entries:
            entry = self._entries.popleft()
            self._forget(entry)
            self._stats.receipts_lost[ReceiptLoss.FULL] += entry.receipts
            if not self._has_told:
                self._has_told = True
                log.error(
                    "receipts that wait in memory have reached receipts_buffer_bytes: the "
                    "oldest are dropped, and reports lack them; check the log of receipts",
                    extra={"action": "receipts_lost"},
                )

    def _forget(self, entry: _Entry) -> None:
        self.waiting -= entry.receipts
        self.bytes -= entry.size

    def _caught_up(self) -> None:
        self._empty.set()
        if self._behind_since_s is not None:
            log.info(
                "the log of receipts has all again after %.0f s",
                self.behind_s(),
                extra={"action": "receipts_caught_up"},
            )
            self._behind_since_s = None
            self._has_told = False


class Receipts:
    """Writes receipts of endings to the log while `run` runs. `weights` are those in force.

    `waits` says where the wait of each went, which is counted whether there are receipts or not;
    `traces` exports it with what became of sampled pushes.
    """

    def __init__(
        self,
        receipt_log: ReceiptLog,
        settings: Settings,
        sink: str,
        weights: Callable[[], dict[Level, int]],
        waits: Waits,
        stats: Stats,
        clock_s: Callable[[], float] = time.monotonic,
        traces: LineTraces | None = None,
    ) -> None:
        self._log = receipt_log
        self._waits = waits
        self._traces = traces
        self._settings = settings
        self._sink = sink
        self._weights = weights
        self._stats = stats
        self._hasher: Hasher | None = None
        self._key_is_late = False
        self._wanted = asyncio.Event()
        self._has_key = asyncio.Event()
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        patience_s = None if settings.receipts == "required" else BEHIND_AFTER_S
        self.queue = ReceiptQueue(
            receipt_log, settings.receipts_buffer_bytes, patience_s, stats, clock_s
        )

    async def write(self, endings: Sequence[Ending]) -> None:
        """Return once all receipts of these are durable, or wait where they may be lost."""
        receipts = [ending for ending in endings if ending.outcome is not None]
        if not receipts:
            return
        is_off = self._settings.receipts == "off"
        hasher = None if is_off else self._hasher or await self._hasher_in_time()
        if hasher is None:
            self._stats.receipts_lost[ReceiptLoss.KEY] += 0 if is_off else len(receipts)
            await self._count_untold(receipts)
            return
        left_out_before = self._stats.receipts_left_out
        bodies = await self._bodies(receipts, hasher)
        left_out = self._stats.receipts_left_out - left_out_before
        if bodies:
            await self.queue.put(bodies, len(receipts) - left_out)

    async def run(self) -> None:
        """Write what there is, until cancelled. Nothing is touched before there is any."""
        await self._wanted.wait()
        self._hasher = await Backoff(log, "the log of receipts").until_done(self._learn_key)
        self._key_is_late = False
        self._has_key.set()
        await self.queue.run()

    async def drain(self) -> None:
        """Write what waits as far as 5 s allow, and say how many receipts are lacking in all.

        Required ones that wait are not lost: their pushes are not acked, and repeated.
        """
        if self._settings.receipts == "required":
            return
        await self.queue.drain(_DRAIN_S)
        if lost := sum(self._stats.receipts_lost.values()):
            log.warning(
                "%d outcomes of sink %s have no receipt, as the log was away: reports lack "
                "them, but the counts of their tasks have them",
                lost,
                self._sink,
                extra={"action": "receipts_lost"},
            )

    def remark(self) -> str:
        """Return what is the matter with the log, empty when nothing is. Any thread may ask."""
        if self._key_is_late:
            return "receipts: none are made, as the key of their hashes cannot be read"
        if behind_s := self.queue.behind_s():
            mebibytes = self.queue.bytes / 1024**2
            return (
                f"receipts: their log has been behind for {behind_s:.0f} s; {self.queue.waiting:,} "
                f"wait in memory ({mebibytes:.1f} MiB)"
            )
        return ""

    async def _hasher_in_time(self) -> Hasher | None:
        """Return what makes hashes; None when its key cannot be learnt in time, as it says once."""
        self._wanted.set()
        try:
            async with asyncio.timeout(0 if self._key_is_late else self.queue.patience_s):
                await self._has_key.wait()
        except TimeoutError:
            if not self._key_is_late:
                self._key_is_late = True
                log.error(
                    "the key of the hashes of recipients cannot be read from the log of receipts: "
                    "outcomes are settled without receipts until it can",
                    extra={"action": "receipts_lost"},
                )
        return self._hasher

    async def _learn_key(self) -> Hasher:
        return await receipt_hasher(self._log, self._settings)

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
            batch = self._batch(receipts, hasher)
            body = encode_receipts(batch)
        except _NOT_WRITABLE as error:
            if is_one:
                self._leave_out(receipts[0].job.push, error)
                return
        else:
            if is_one or len(body) <= MOST_BYTES:
                self._tell(receipts, batch.level, batch.waits or {})
                yield body
                return
        middle = len(receipts) // 2
        yield from self._fitting(receipts[:middle], hasher)
        yield from self._fitting(receipts[middle:], hasher)

    def _leave_out(self, push: Push, error: Exception) -> None:
        """Count a push without a receipt; the first one is logged."""
        if not self._stats.receipts_left_out:
            log.error(
                "push %s has no receipt: none can be made of it (%s); it is settled all the same",
                push.push_id,
                type(error).__name__,
                extra={"action": "receipt_left_out", "task": push.task_id, **ids_of(push)},
            )
        self._stats.receipts_left_out += 1

    def _batch(self, receipts: Sequence[Ending], hasher: Hasher) -> ReceiptBatch:
        jobs = [receipt.job for receipt in receipts]
        pushes = [job.push for job in jobs]
        tasks = [job.task for job in jobs]
        kinds = list({id(task): task for task in tasks}.values())
        recipients = [push.recipient for push in pushes]
        now = SteadyTime.now_ms()
        submitted = [push.submitted_at_ms for push in pushes]
        eligible = _eligible(jobs, pushes, kinds)
        dispatched = [job.dispatched_at_ms for job in jobs]
        ended = [receipt.at_ms or now for receipt in receipts]
        return ReceiptBatch(
            version=VERSION,
            batch_id=f"{self._process}-{next(self._numbers)}",
            sink=self._sink,
            **self._of_tasks(tasks, kinds),
            seq=[push.seq for push in pushes],
            outcome=[receipt.outcome or "" for receipt in receipts],
            reason=[receipt.reason[:REASON_LONGEST] for receipt in receipts],
            attempt=_within(MOST_ATTEMPTS, [push.attempt for push in pushes]),
            recipient=masked_recipients(recipients),
            recipient_hash=hasher.hashes(recipients),
            submitted_at_ms=_within(LAST_DATE_MS, submitted),
            eligible_at_ms=_within(LAST_DATE_MS, eligible),
            dispatched_at_ms=dispatched,
            responded_at_ms=ended,
            trace_ids=_column([push.trace_id for push in pushes]),
            attributes=_column([push.attributes for push in pushes]),
            waits=self._waits.columns(
                jobs, pushes, submitted, eligible, _until(receipts, dispatched, ended)
            ),
        )

    async def _count_untold(self, receipts: Sequence[Ending]) -> None:
        """Count the waits of those that get no receipt; others have their turn in between."""
        for start in range(0, len(receipts), MOST_A_BODY):
            some = receipts[start : start + MOST_A_BODY]
            levels = [receipt.job.task.level for receipt in some]
            with suppress(*_NOT_WRITABLE):  # whatever a push holds, it is settled
                self._tell(some, levels, self._waits_untold(some))
            await asyncio.sleep(0)

    def _waits_untold(self, receipts: Sequence[Ending]) -> dict[str, list[int]]:
        """Return where the waits of those went that get no receipt."""
        jobs, now = [receipt.job for receipt in receipts], SteadyTime.now_ms()
        pushes = [job.push for job in jobs]
        kinds = list({id(job.task): job.task for job in jobs}.values())
        submitted = [push.submitted_at_ms for push in pushes]
        dispatched = [job.dispatched_at_ms for job in jobs]
        until = _until(receipts, dispatched, [receipt.at_ms or now for receipt in receipts])
        return self._waits.columns(jobs, pushes, submitted, _eligible(jobs, pushes, kinds), until)

    def _tell(
        self, receipts: Sequence[Ending], levels: Sequence[str], waits: Mapping[str, list[int]]
    ) -> None:
        """Count the waits, and trace them."""
        self._count_waits(receipts, levels, waits)
        if self._traces is not None:
            self._traces.ended(receipts, waits)

    def _count_waits(
        self, receipts: Sequence[Ending], levels: Sequence[str], waits: Mapping[str, list[int]]
    ) -> None:
        """Count the waits of those that have ended, each with all of its parts."""
        counted = self._stats.waits_ms
        if len(set(levels)) == 1 and all([receipt.kind for receipt in receipts]):
            for name, column in waits.items():
                counted[Cause(name), Level(levels[0])] += sum(column)
            return
        for name, column in waits.items():
            for receipt, level, spent_ms in zip(receipts, levels, column, strict=True):
                if receipt.kind is not None:
                    counted[Cause(name), Level(level)] += spent_ms

    def _of_tasks(self, tasks: list[Task], kinds: list[Task]) -> dict[str, Any]:
        """Return the columns that follow from each push's task as it was: often all are one."""
        weights = self._weights()
        labels = {task.id: TaskLabel(task.id, task.app, task.name) for task in kinds}
        places = {task_id: place for place, task_id in enumerate(labels)}
        rows: dict[str, list[Any]] = {
            "task": [places[task.id] for task in kinds],
            "level": [task.level for task in kinds],
            "quota": [task.quota for task in kinds],
            "weight": [weights[task.level] for task in kinds],
        }
        columns = {name: _spread(values, kinds, tasks) for name, values in rows.items()}
        return {"tasks": list(labels.values()), **columns}


def _until(receipts: Sequence[Ending], dispatched: list[int], ended: list[int]) -> list[int]:
    """Return until when each waited (Unix ms): it went to its sink then, or ended without.

    0 of one that another process had delivered, and told of.
    """
    if 0 not in dispatched:
        return dispatched
    kinds = [receipt.kind for receipt in receipts]
    return [
        at or (0 if kind is Kind.DELIVERED else end)
        for at, end, kind in zip(dispatched, ended, kinds, strict=True)
    ]


def _spread(values: list[T], kinds: list[Task], tasks: list[Task]) -> list[T]:
    """Return a value for each receipt, of one for each kind of task."""
    if len(kinds) == 1:
        return values * len(tasks)
    by_name = dict(zip(map(id, kinds), values, strict=True))
    return [by_name[id(task)] for task in tasks]


def _eligible(jobs: list[Job], pushes: list[Push], kinds: list[Task]) -> list[int]:
    """Return when each could go. Most could at once: whether all could is cheap to find out."""
    if any([push.not_before_ms for push in pushes]) or any(
        task.not_before_ms or task.quiet for task in kinds
    ):
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
