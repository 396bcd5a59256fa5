"""The lane of one partition: its task, its lease, and what of the partition is on it.

The seq of a push is its record's offset, less that of the task's first record, plus one. So the
broker knows each record by a number that nobody has to keep. Who is given a partition asks it for
the last one, and leaves out what lies up to that before bundles are packed: they are cut by time,
and would be cut elsewhere.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from pushlane.backends.backend import Backend
from pushlane.backends.formats import KEYED, format_to_write
from pushlane.core.errors import BadInput, PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.core.publish import Ended, Publication
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.ingest.position import Kept, Position, Seen
from pushlane.model.names import submit_lease
from pushlane.model.streams import Stream, find_stream, partition_key, source_of
from pushlane.producers.feed import task_of
from pushlane.producers.outbox.sender import KEYS_WAIT
from pushlane.producers.predecessors import Predecessors
from pushlane.producers.producer import Content, encoder
from pushlane.producers.published import announce, published_of, reached
from pushlane.producers.stream_tasks import as_stream, share_limits
from pushlane.settings import Settings
from pushlane.settings.payload_limits import payload_limits
from pushlane.util.errors import NotNow
from pushlane.wire import packed

HELD_S = 12.0
"""Seconds after which another process takes over the partitions of one that was killed."""

SEEN_EVERY_MS = 10_000
LONGEST_S = 86_400.0
MOST_OFFSETS = 2**31
ORDER_KEYS = 4_096
"""So many hashes of order keys there are: keys of one hash wait for each other."""

AHEAD = 2**17
"""So many offsets may be on the lane beyond the position that is kept: what is looked through at a
start, once the broker has forgotten what it had of the partition."""


class Lost(PushlaneError):
    """Another process has the partition, or may have."""


class Forgotten(BadInput):
    """Nobody can know any more what of a partition is on the lane of its task."""


@dataclass(eq=False)
class PartitionLane:
    """One partition of a stream on its way to its lane, in the one process that has it.

    `position` is what is done by now, which `save` keeps. `of` is the fingerprint of the mapping,
    and `ordered` tells whether pushes of it may be ordered by something. It takes the records of a
    `level`, where there is one; else its level is the stream's.
    """

    backend: Backend
    settings: Settings
    stream: Stream
    partition: str
    of: str
    kept: Kept
    position: Position
    ordered: bool = False
    level: Level | None = None
    clock_s: Callable[[], float] = time.monotonic
    holder: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self._last = 0  # the highest seq that is on the lane
        self._order = Predecessors(ORDER_KEYS)
        if self.position.order:
            self._order = Predecessors.unpack(self.position.order, ORDER_KEYS)
        self._next_order = self._order  # with what is encoded, and may not be on the lane
        self._limits = payload_limits(self.settings, task_of(self.stream, self.settings).chain)
        self._publication: Publication | None = None
        self._opened_at_s = 0.0
        self._held_until_s = 0.0
        self._saving = asyncio.Lock()

    @property
    def at(self) -> int:
        """The lowest offset that is not done."""
        return self.position.at

    async def open(self) -> None:
        """Take the partition over: find out what of it is on the lane. Can be repeated.

        Raises:
            Lost: another process has its lease.
            Forgotten: nobody can know any more what is on the lane.
        """
        if not self.position.task_id:
            return
        task = await self.backend.find(self.position.task_id)
        if task is None or task.total is not None:  # sealed once all below `at` was on its lane
            self.position = self.position.without_task(self.at)
            return
        await self._hold()
        try:
            self._last = await self._last_of(task)
        except Forgotten:
            await self._release(task)
            raise
        if task.state.is_terminal:
            self.position = self.position.without_task(self._behind_last)
            return
        publication = Publication(self.backend, task)
        await publication.open()
        self._publication = publication
        self._opened_at_s = self.clock_s() - max(0, now_ms() - task.created_at_ms) / 1000

    @property
    def _behind_last(self) -> int:
        """The lowest offset that is neither done nor on the lane."""
        return max(self.at, self.position.base + self._last)

    async def _last_of(self, task: Task) -> int:
        """Return the highest seq that was put on the lane of a task."""
        lane, name = task.first_lane or task.lane, source_of(task)
        try:
            last = await self.backend.broker.last_of(lane, name)
        except UnknownLane:  # dropped with its task, or not made yet
            last = 0
        if last or (self._remembers(task) and not task.state.is_terminal):
            return last
        first = max(1, self.at - self.position.base + 1)
        try:
            [last] = await reached(self.backend, task, [range(first, first + AHEAD)])
        except TaskConflict as error:
            raise Forgotten(
                f"partition {self.partition} was not read for so long that it is unknown which "
                f"records after {self.at:,} are on the lane of task {task.id}. Start over with: "
                f"pushlane ingest reset {self.stream.name}; to skip what the source has by now, "
                "start with --from end"
            ) from error
        return last

    def _remembers(self, task: Task) -> bool:
        """Tell whether the broker still knows all that was published of a task."""
        kept_ms = self.settings.dedup_window_s * 1000
        is_young = now_ms() - task.created_at_ms < kept_ms
        return self.settings.capabilities.remembers_sources or is_young

    async def ready(self, offset: int) -> None:
        """See that a task takes pushes from this offset on, which is not below `at`.

        Where another task has to follow that of a process that was killed, `at` may rise beyond the
        offset: what lies below is on the lane of the one before. Can be repeated. Raises Lost, and
        Ended where the task has ended meanwhile.
        """
        if self._publication is not None and self._is_over(offset):
            await self.seal()
        if self._publication is None:
            self._publication = await self._begin(offset)
        self._next_order = self._order.copy()
        await self._hold_if_late()
        kept = self.kept.position
        if kept is None or offset >= kept.at + AHEAD // 2:
            await self.save(offset)

    def _is_over(self, offset: int) -> bool:
        is_full = offset - self.position.base >= MOST_OFFSETS
        return self.is_old or is_full or self.position.of != self._options

    @property
    def is_old(self) -> bool:
        """True where the task that is fed has been open for a day."""
        is_over = self.clock_s() - self._opened_at_s >= LONGEST_S
        return is_over and self._publication is not None

    @property
    def _options(self) -> str:
        """A hash of the options that a task keeps for good: a change begins another task."""
        return f"{self.of}-{zlib.crc32(repr(self.stream.fixed).encode()):x}"

    async def _begin(self, offset: int) -> Publication:
        """Begin a task whose seq 1 is this offset. Can be repeated."""
        found = await find_stream(self.backend.documents, self.stream.app, self.stream.name)
        self.stream = found or self.stream
        stream = self.stream if self.level is None else replace(self.stream, level=self.level)
        documents, registry = self.backend.documents, self.backend.registry
        if await format_to_write(documents, registry, self.backend.presence) < KEYED:
            raise NotNow(KEYS_WAIT)
        number = self.position.number
        is_new = False
        while not is_new:  # one of this number is there if a process died here, and not used yet
            number += 1
            made = task_of(stream, self.settings)
            key = partition_key(stream, self.partition, number, self.level)
            made = replace(made, key=key, ordered=self.ordered)
            task = await self.backend.add(made, self.settings)
            is_unused = task.state is State.SUBMITTED and task.total is None
            is_new = is_unused and task.ordered == self.ordered
        position = replace(
            self.position,
            at=max(self.at, offset),
            task_id=task.id,
            base=offset,
            pushes=0,
            of=self._options,
            number=number,
        )
        self._last, self._order = 0, Predecessors(ORDER_KEYS)
        await self._change(position)
        await self._hold()
        task = await self.backend.registry.change(task.id, as_stream(self.stream))
        await share_limits(self.backend, self.stream)
        publication = Publication(self.backend, task)
        await publication.open()
        self._opened_at_s = self.clock_s()
        return publication

    def encoded(self, offset: int, content: Content, submitted_at_ms: int) -> bytes | None:
        """Return the push of a record as it goes on the lane; None if it is there already.

        After `ready`. Raises BadInput for one that cannot be, and that is not there either.
        """
        assert self._publication is not None
        if offset < self.position.again:
            content = content._replace(key=None)
        task, key = self._publication.task, content.ordered_by
        seq = offset - self.position.base + 1
        after = self._next_order.of(key) if key else 0
        body = encoder(task, self._limits, content, submitted_at_ms)(seq, after)
        if key:
            self._next_order.add(key, seq)
        return body if seq > self._last else None

    async def put(self, bodies: Sequence[bytes], last: int, pushes: int, collapses: bool) -> None:
        """Put pushes on the lane, in rising order, and note that all up to offset `last` is done.

        So many `pushes` are among that, with those that were on the lane already. Can be repeated
        after Unreachable. Raises Lost, and Ended.
        """
        if bodies:
            await self._publish(bodies, collapses)
        position, self._order = self.position, self._next_order
        at = max(position.at, last + 1)
        self.position = replace(position, at=at, pushes=position.pushes + pushes)

    async def _publish(self, bodies: Sequence[bytes], collapses: bool) -> None:
        publication = self._publication
        assert publication is not None
        bundles = list(packed(bodies, max(1, publication.task.bundle)))
        await self._hold_if_late()
        try:
            publication.after = self._last
            await publication.publish_packed(bundles, source_of(publication.task))
        except UnknownLane as error:
            await publication.open_lane()
            raise Unreachable(f"{error}; it is opened again") from error
        except Ended:
            self.position = self.position.without_task(self._behind_last)
            self._publication = None
            raise
        except TaskConflict as error:
            raise Lost(str(error)) from error
        if collapses:
            await announce(self.backend, publication.task, bodies)
        self._last = bundles[-1].last_seq
        await self._hold_if_late()

    def note(self, seen: Seen) -> None:
        """Have the next `save` keep what was seen, if it is news, or nobody has looked for long."""
        was = self.position.seen
        if (
            was is None
            or seen.at_ms - was.at_ms >= SEEN_EVERY_MS
            or seen != replace(was, at_ms=seen.at_ms)
        ):
            self.position = replace(self.position, seen=seen)

    async def save(self, at: int = 0) -> None:
        """Keep how far it is, or that nothing lies before `at`. Raises Lost."""
        if at > self.at:
            self.position = replace(self.position, at=at)
        async with self._saving:
            await self._keep(self.position)

    async def _change(self, position: Position) -> None:
        """Go on with another position once it is kept. Raises Lost."""
        async with self._saving:
            await self._keep(position)
            self.position = position

    async def _keep(self, position: Position) -> None:
        order = self._order.pack() if self.ordered and position.task_id else b""
        try:
            await self.kept.save(replace(position, order=order))
        except TaskConflict as error:
            raise Lost(str(error)) from error

    async def seal(self) -> None:
        """End the task that is fed; what of it is on its lane is done. Can be repeated.

        Raises Lost.
        """
        publication = self._publication
        if publication is None:
            return
        await self._hold_if_late()
        seqs = range(self.at - self.position.base + 1, self._last + 1)
        if seqs:  # of a process that was killed before it could keep how far it was
            found = await published_of(self.backend, publication.task, seqs)
            pushes = self.position.pushes + len(found)
            self.position = replace(self.position, at=self._behind_last, pushes=pushes)
        await self.save()
        with suppress(Ended):
            await publication.seal(self.position.pushes, self._last)
        await self._change(self.position.without_task(self.at))
        self._publication = None
        await self._release(publication.task)

    async def close_task(self) -> None:
        """Take the task over and end it, though records of what is on its lane may be gone.

        Raises Lost, TaskConflict, Forgotten.
        """
        await self.open()
        await self.seal()

    async def go_to(self, offset: int, *, again: int = 0) -> None:
        """Go on elsewhere, once nothing is in progress. Can be repeated. Raises Lost.

        With `again`, the version of a seek, in a new task, which sends what is behind that once
        more, without the keys by which it would be a duplicate: the position tells that this seek
        is done. Else what lies before `at` stays done.
        """
        if again:
            await self.seal()
            known = max(self.at, self.position.again)
            position = self.position.without_task(offset)
            await self._change(replace(position, sought=again, again=known))
        else:
            await self.save(offset)

    async def begin_as(self, other: Position, mapping: str) -> None:
        """Begin without a task where another position is, used by this mapping. Raises Lost."""
        begun = replace(other.without_task(other.at), mapping=mapping, seen=None)
        await self._change(replace(begun, number=self.position.number))

    async def let_go(self) -> None:
        """Keep how far it is, and let another process go on. Raises Lost."""
        await self.save()
        publication, self._publication = self._publication, None  # nobody renews its lease now
        if publication is not None:
            await self._release(publication.task)
        elif self._held_until_s:  # it was ended while it began
            self._held_until_s = 0.0
            with suppress(Unreachable):
                await self.backend.lease.release(submit_lease(self.position.task_id), self.holder)

    async def _release(self, task: Task) -> None:
        self._held_until_s = 0.0
        with suppress(Unreachable):  # both end by themselves
            await self.backend.broker.close_source(task.first_lane, source_of(task))
            await self.backend.lease.release(submit_lease(task.id), self.holder)

    async def renew(self) -> None:
        """Hold the lease for longer, where there is one. Raises Lost."""
        if self._publication is not None:
            await self._hold()

    async def _hold_if_late(self) -> None:
        if self.clock_s() >= self._held_until_s:
            await self._hold()

    async def _hold(self) -> None:
        """Hold the lease of the task for a while. Raises Lost."""
        asked_at_s = self.clock_s()
        was_held = 0 < self._held_until_s <= asked_at_s
        lease = submit_lease(self.position.task_id)
        if await self.backend.lease.acquire(lease, self.holder, HELD_S) is None:
            raise Lost(f"partition {self.partition} is read by another process")
        if was_held:  # it ran out: somebody may have had it since
            there = await self.backend.documents.get(self.kept.kind, self.kept.name)
            if there is None or there.version != self.kept.version:
                raise Lost(f"partition {self.partition} was read by another process")
        self._held_until_s = asked_at_s + HELD_S
