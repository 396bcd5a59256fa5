"""One partition in one process: its records wait here until they are done, in their order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeVar

from pushlane.core.errors import BadInput
from pushlane.core.publish import Ended, chunk_size
from pushlane.core.task import now_ms
from pushlane.ingest.bad_records import Bad, BadRecordFile
from pushlane.ingest.functions import InThread, Mapped, mapped
from pushlane.ingest.lane import PartitionLane
from pushlane.ingest.mapping import Made
from pushlane.ingest.offsets import Offsets
from pushlane.ingest.record import BadRecord, Record
from pushlane.producers.feed import with_expiry
from pushlane.producers.producer import Content
from pushlane.util.buckets import Buckets
from pushlane.util.retrying import until_reachable

log = logging.getLogger("pushlane.ingest")

T = TypeVar("T")

MOST_RECORDS = 16_384
MOST_BYTES = 16 << 20
"""Bounds of a partition's records in progress: at them it is paused until half is done."""

_CHUNK = chunk_size(256)


@dataclass(eq=False)
class Counted:
    """Counts the records of a process by what became of them."""

    pushes: int = 0
    skipped: int = 0
    repeated: int = 0
    bad: int = 0
    bytes: int = 0
    enqueue_s: Buckets = field(default_factory=Buckets)
    lane_s: Buckets = field(default_factory=Buckets)


@dataclass(eq=False)
class Partition:
    """Makes pushes of a partition's records, and puts them on its lane.

    `on_room` is called when it takes more again, after `is_full` was true.
    """

    lane: PartitionLane
    mapping: Made
    in_thread: InThread | None
    bad: BadRecordFile
    counted: Counted
    on_room: Callable[[], None]
    trouble: str = ""
    _waiting: deque[Record] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.offsets = Offsets(self.lane.at)
        self.done = 0
        self.kept_as_bad = 0
        self.bytes = 0
        self._bad_kept = -1  # the last record of which the file of bad ones has all up to it
        self._is_paused = False
        self._is_over = False
        self._news = asyncio.Event()
        self._idle = asyncio.Event()  # not before the lane is open

    @property
    def is_full(self) -> bool:
        """True when no more records should come for now."""
        return len(self._waiting) >= MOST_RECORDS or self.bytes >= MOST_BYTES

    def take(self, records: Sequence[Record]) -> bool:
        """Take the next records; return whether the source should pause."""
        for record in records:
            self.offsets.begin(record.offset)
            self.bytes += len(record.value or b"")
        self._waiting.extend(records)
        self._idle.clear()
        self._news.set()
        self._is_paused = self._is_paused or self.is_full
        return self._is_paused

    async def run(self) -> None:
        """Take the partition over, and work on what comes until it is cancelled, or told to end.

        Raises Lost, TaskConflict, BadRecords, Hung and BadInput.
        """
        await self._retried(self.lane.open)
        while True:
            while not self._waiting:
                self._idle.set()
                self._news.clear()
                await self._news.wait()
            await self._work(list(islice(self._waiting, _CHUNK)))

    async def idle(self) -> None:
        """Wait until it is taken over, and all that came is done."""
        await self._idle.wait()

    async def go_to(self, offset: int, *, again: int = 0) -> None:
        """Go on elsewhere, see `PartitionLane.go_to`; only while it is idle. Raises Lost."""
        await self._retried(partial(self.lane.go_to, offset, again=again))
        self.offsets.empty(offset)
        self._bad_kept = offset - 1 if again else self._bad_kept

    async def _work(self, records: list[Record]) -> None:
        """Bring records to their end: on the lane, left out, or kept as bad ones."""
        if self.in_thread is None:
            found = [mapped(self.mapping.of, record) for record in records]
        else:
            found = await self.in_thread(records)
        while True:
            try:
                await self._put(records, found)
            except Ended as error:  # another task follows for what is not on its lane
                told = "partition %s: %s"
                extra = {"action": "ingest_task_ended"}
                log.warning(told, self.lane.partition, error, extra=extra)
                continue
            break
        self.done += len(records)
        for record in records:
            self.offsets.end(record.offset)
            self.bytes -= len(record.value or b"")
            self.counted.bytes += len(record.value or b"")
            self._waiting.popleft()
        if (
            self._is_paused
            and 2 * len(self._waiting) < MOST_RECORDS
            and 2 * self.bytes < MOST_BYTES
        ):
            self._is_paused = False
            self.on_room()

    async def _put(self, records: Sequence[Record], found: Sequence[Mapped]) -> None:
        """Put what was made of records on the lane, and the bad ones into their file."""
        lane, now = self.lane, now_ms()
        first = max(lane.at, records[0].offset)
        last = records[-1].offset
        if any(isinstance(one, Content) for one in found) and last >= first:
            await self._retried(partial(lane.ready, first))
        bodies: list[bytes] = []
        bad: list[Bad] = []
        pushes = on_lane = again = 0
        collapses = False
        for record, one in zip(records, found, strict=True):
            if record.offset < lane.at:  # read again, and done before
                again += 1
                continue
            if isinstance(one, Content):
                try:
                    content = with_expiry(lane.stream.expires_after_s, one, record.timestamp_ms)
                    body = lane.encoded(record.offset, content, record.timestamp_ms or now)
                except BadInput as error:
                    bad.append(Bad(record, f"is no push: {error}"))
                    continue
                pushes += 1
                collapses = collapses or one.collapse is not None
                if body is None:
                    on_lane += 1
                else:
                    bodies.append(body)
            elif isinstance(one, BadRecord):
                bad.append(Bad(record, str(one)))
        await self._keep(bad, len(records))
        if last >= first:
            put = partial(lane.put, bodies, last, pushes, collapses)
            began_s = lane.clock_s()
            await self._retried(put)
            if bodies:
                self.counted.enqueue_s.add(lane.clock_s() - began_s)
                if at_ms := records[-len(bodies)].timestamp_ms:
                    self.counted.lane_s.add(max(0, now_ms() - at_ms) / 1000, len(bodies))
        self.counted.pushes += len(bodies)
        self.counted.repeated += again + on_lane
        self.counted.bad += len(bad)
        self.counted.skipped += len(records) - again - pushes - len(bad)

    async def _keep(self, bad: list[Bad], of: int) -> None:
        """See that bad records, of so many that came, are in their file."""
        if len(bad) < of:
            self.bad.good()
        bad = [one for one in bad if one.record.offset > self._bad_kept]
        if bad:
            await self._retried(partial(asyncio.to_thread, self.bad.keep, bad))
            self._bad_kept = bad[-1].record.offset
            self.kept_as_bad += len(bad)

    async def _retried(self, action: Callable[[], Awaitable[T]]) -> T:
        def tell(note: str) -> None:
            extra = {"action": "ingest_waits"}
            log.warning("partition %s: %s", self.lane.partition, note, extra=extra)

        def on_try(trouble: str) -> None:
            self.trouble = trouble

        return await until_reachable(
            action, tell, asyncio.sleep, on_try=on_try, waits_for_space=True
        )
