"""One partition in one process: its records wait here until they are done, in their order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
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
from pushlane.ingest.lanes import Lanes
from pushlane.ingest.mapping import Leveled, Made
from pushlane.ingest.offsets import Offsets
from pushlane.ingest.record import BadRecord, Record
from pushlane.producers.feed import with_expiry
from pushlane.producers.producer import Content
from pushlane.util.buckets import Buckets
from pushlane.util.errors import OversizedPush
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
class _Part:
    """The part of some records for one lane: `pushes` with those that are there already."""

    lane: PartitionLane
    bodies: list[bytes] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    pushes: int = 0
    repeated: int = 0
    collapses: bool = False
    first_ms: int = 0


@dataclass(eq=False)
class Partition:
    """Makes pushes of a partition's records, and puts them on its lanes.

    `on_room` is called when it takes more again, after `is_full` was true.
    """

    lanes: Lanes
    mapping: Made
    in_thread: InThread | None
    bad: BadRecordFile
    counted: Counted
    on_room: Callable[[], None]
    trouble: str = ""
    _waiting: deque[Record] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.lane = self.lanes.main
        self.offsets = Offsets(self.lanes.at)
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
        await self._retried(self.lanes.open)
        while True:
            await self._retried(self.lanes.seal_old)
            if self._waiting:
                await self._work(list(islice(self._waiting, _CHUNK)))
            else:
                self._idle.set()
                self._news.clear()
                await self._news.wait()

    def end_old(self) -> None:
        """Have tasks sealed that have been open for a day; not while a seek is under way."""
        if self.lanes.are_old:
            self._idle.clear()
            self._news.set()

    async def idle(self) -> None:
        """Wait until it is taken over, and all that came is done."""
        await self._idle.wait()

    async def go_to(self, offset: int, *, again: int = 0) -> None:
        """Go on elsewhere, see `Lanes.go_to`; only while it is idle. Raises Lost."""
        await self._retried(partial(self.lanes.go_to, offset, again=again))
        self.offsets.empty(offset)
        self._bad_kept = offset - 1 if again else self._bad_kept

    async def _work(self, records: list[Record]) -> None:
        """Bring records to their end: on the lane, left out, or kept as bad ones."""
        if self.in_thread is None:
            found = [mapped(self.mapping.of, record) for record in records]
        else:
            found = await self.in_thread(records)
        put: set[PartitionLane] = set()
        while True:
            try:
                await self._put(records, found, put)
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

    async def _put(
        self, records: Sequence[Record], found: Sequence[Mapped], put: set[PartitionLane]
    ) -> None:
        """Put what was made of records on the lanes, and the bad ones into their file.

        Lanes go into `put` once they have theirs; those that are there are passed over.
        """
        last, at = records[-1].offset, self.lanes.at
        of_lane: dict[PartitionLane, list[tuple[Record, Content]]] = {}
        bad: list[Bad] = []
        again = left_out = 0
        for record, one in zip(records, found, strict=True):
            if isinstance(one, Content):
                of_lane.setdefault(self.lane, []).append((record, one))
            elif isinstance(one, Leveled):
                lane = self.lanes.by_level[one.level]
                of_lane.setdefault(lane, []).append((record, one.content))
            elif record.offset < at:  # read again, and done before
                again += 1
            elif isinstance(one, BadRecord):
                bad.append(Bad(record, str(one)))
            else:
                left_out += 1
        unmapped = len(bad)  # the others count with their part
        parts = []
        for lane, some in of_lane.items():
            if lane in put:
                continue
            first = max(lane.at, records[0].offset)
            if last >= first:
                await self._retried(partial(lane.ready, first))
            parts.append(self._encoded(lane, some))
            bad += parts[-1].bad
        bad.sort(key=lambda one: one.record.offset)
        await self._keep(bad, len(records))
        for part in parts:
            await self._put_part(part, last)
            put.add(part.lane)
        for lane in self.lanes:
            if lane not in of_lane and last >= lane.at:
                await lane.put([], last, 0, collapses=False)
        self.counted.bad += unmapped
        self.counted.repeated += again
        self.counted.skipped += left_out

    def _encoded(self, lane: PartitionLane, some: Sequence[tuple[Record, Content]]) -> _Part:
        """Return what goes on a lane of these records, which is `ready` for them."""
        part, now = _Part(lane), now_ms()
        for record, content in some:
            if record.offset < lane.at:  # read again, and done before
                part.repeated += 1
                continue
            try:
                content = with_expiry(lane.stream.expires_after_s, content, record.timestamp_ms)
                body = _body_of(lane, record, content, record.timestamp_ms or now)
            except BadInput as error:
                part.bad.append(Bad(record, f"is not a push: {error}"))
                continue
            part.pushes += 1
            part.collapses = part.collapses or content.collapse is not None
            if body is None:
                part.repeated += 1
            else:
                part.first_ms = part.first_ms or record.timestamp_ms
                part.bodies.append(body)
        return part

    async def _put_part(self, part: _Part, last: int) -> None:
        """Put what goes on one lane there; all of it up to offset `last` is done then."""
        lane, bodies = part.lane, part.bodies
        began_s = lane.clock_s()
        if last >= lane.at:
            put = partial(lane.put, bodies, last, part.pushes, part.collapses)
            await self._retried(put)
        if bodies:
            self.counted.enqueue_s.add(lane.clock_s() - began_s)
            if part.first_ms:
                self.counted.lane_s.add(max(0, now_ms() - part.first_ms) / 1000, len(bodies))
        self.counted.pushes += len(bodies)
        self.counted.repeated += part.repeated
        self.counted.bad += len(part.bad)

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


def _body_of(
    lane: PartitionLane, record: Record, content: Content, submitted_at_ms: int
) -> bytes | None:
    """Return a record's push, in the trace of its header unless it has a trace id, or no room."""
    offset = record.offset
    if not content.trace_id and (traceparent := record.traceparent):
        with suppress(OversizedPush):
            traced = content._replace(trace_id=traceparent, tracestate=record.tracestate)
            return lane.encoded(offset, traced, submitted_at_ms)
    return lane.encoded(offset, content, submitted_at_ms)
