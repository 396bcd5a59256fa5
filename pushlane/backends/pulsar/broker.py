"""The broker port on Pulsar: a lane is a topic with one shared subscription.

Topics are made, measured and removed through the admin REST; messages go through the client.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import _pulsar
import msgspec

from pushlane.backends.ports import Broker, Placed, of_each
from pushlane.backends.pulsar.admin import Admin, make_subscription, make_topic, topic_path
from pushlane.backends.pulsar.connection import MOST_OPENINGS, OPERATION_TIMEOUT_S, Connection, wake
from pushlane.backends.pulsar.hastening import DUE, Hastener
from pushlane.backends.pulsar.policies import DELAY_TICK_MS
from pushlane.backends.pulsar.reader import SUBSCRIPTION, PulsarReader, Subscriber
from pushlane.backends.pulsar.replay import (
    Acked,
    Place,
    Position,
    TopicStats,
    read_place,
    replayed,
    retained_since_ms,
    unacked,
)
from pushlane.backends.pulsar.stalls import StallWatch, Topic
from pushlane.core.errors import PushlaneError, TaskConflict, UnknownLane, Unreachable
from pushlane.core.ports import LaneReader, OnReady, Source, Taken
from pushlane.core.task import now_ms
from pushlane.settings import Settings

MAX_PRODUCERS = 1024
MAX_IN_FLIGHT = 64
_LATE_S = 1.0

COMPRESSIONS = {
    "none": _pulsar.CompressionType.NONE,
    "lz4": _pulsar.CompressionType.LZ4,
    "zstd": _pulsar.CompressionType.ZSTD,
    "snappy": _pulsar.CompressionType.SNAPPY,
    "zlib": _pulsar.CompressionType.ZLib,
}
"""The client's values for those of the setting `compression`."""


class ProducerKey(NamedTuple):
    """A lane, and the name of the source for which the producer is kept ('' for anybody)."""

    lane: str
    name: str


@dataclass(slots=True, eq=False, repr=False)
class OpenProducer:
    """A producer with the room that it has for messages in flight.

    It is `lost` from the loss of its connection until it is made anew.
    """

    raw: _pulsar.Producer | None = None
    lost: bool = False
    lost_at_s: float = 0.0
    users: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_IN_FLIGHT))


@dataclass(eq=False, repr=False)
class Producers:
    """The producers of a namespace, made when first needed and shared, at most `limit` idle ones.

    One in use is never closed to make room. `doing` is what an error says could not be done, where
    that is no publish on a lane.
    """

    connection: Connection
    namespace: str
    compression: _pulsar.CompressionType = _pulsar.CompressionType.NONE
    limit: int = MAX_PRODUCERS
    doing: str = ""
    _open: OrderedDict[ProducerKey, OpenProducer] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._open)

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
        key: str | None = None,
    ) -> None:
        """Return once all bodies are durable. A compaction keeps the last body of a `key`.

        Raises UnknownLane, TaskConflict, OversizedPush or Unreachable (within about 10 s).
        """
        named = ProducerKey(lane, source.name if source else "")
        numbers = source.numbers if source else [None] * len(bodies)
        async with self.borrow(named) as producer:
            delays = of_each(delay_s, len(bodies))
            result = await _Sending(producer).run(
                _message(body, number, one_delay_s, key)
                for body, number, one_delay_s in zip(bodies, numbers, delays, strict=True)
            )
            if result is None:
                return
            if result != _pulsar.Result.Timeout:  # which the producer survives
                self._forget(named, producer)  # the next borrower gets a new one
                await self._close(producer)
        raise self.connection.failure(result, self.doing or f"publish on lane {lane}")

    @asynccontextmanager
    async def borrow(self, key: ProducerKey) -> AsyncIterator[OpenProducer]:
        """Lend the producer of this key, which stays open at least until it is given back."""
        entry = self._open.setdefault(key, OpenProducer())
        self._open.move_to_end(key)
        entry.users += 1
        try:
            async with entry.lock:
                await self._connect(key, entry)
            yield entry
        finally:
            entry.users -= 1
            await self._return(key, entry)

    async def close_lane(self, lane: str) -> None:
        """Close the producers on a lane that is about to be dropped."""
        for key in [key for key in self._open if key.lane == lane]:
            await self._close(self._open.pop(key))

    async def close_source(self, lane: str, name: str) -> None:
        """Close the producer of a source, unless it is in use."""
        entry = self._open.get(key := ProducerKey(lane, name))
        if entry is not None and not entry.users:
            await self._close(self._open.pop(key))

    async def last_of(self, lane: str, name: str) -> int:
        """Return the number of the last message that the broker has of a source, 0 for none.

        It is asked with a producer of its own, since one that is given where to begin is not told.
        """
        await self.close_source(lane, name)
        asking = OpenProducer(await self._make(ProducerKey(lane, name), begins=False))
        try:
            assert asking.raw is not None
            return max(0, int(asking.raw.last_sequence_id()))
        finally:
            await self._close(asking)

    async def _connect(self, key: ProducerKey, entry: OpenProducer) -> None:
        """Make a producer that is missing or lost; the client itself may wait a minute to do so.

        Making it also shows whether its lane is still there.
        """
        if entry.raw is not None and not entry.raw.is_connected():
            entry.lost_at_s = entry.lost_at_s or time.monotonic()
            is_late = time.monotonic() - entry.lost_at_s > _LATE_S
            if entry.users == 1 or is_late:  # else what is in flight may still get through
                entry.lost = self.connection.is_away = True
                await self._close(entry)
        if entry.raw is not None:
            return
        try:
            entry.raw = await self._make(key)
        except TaskConflict as error:
            if entry.lost:
                raise Unreachable(f"{error} (it may be our own lost connection)") from error
            raise
        entry.lost = False
        entry.lost_at_s = 0.0

    async def _return(self, key: ProducerKey, entry: OpenProducer) -> None:
        if entry.users:
            return
        if entry.raw is None and not entry.lost:
            self._forget(key, entry)
        elif self._open.get(key) is not entry:  # discarded while others still used it
            await self._close(entry)
        await self._make_room()

    def _forget(self, key: ProducerKey, entry: OpenProducer) -> None:
        if self._open.get(key) is entry:
            del self._open[key]

    async def _make_room(self) -> None:
        """Close idle producers over the limit.

        Several calls do this at once: each looks at the producers anew, and removes one before it
        waits.
        """
        while len(self._open) > self.limit:
            idle = next((key for key, entry in self._open.items() if not entry.users), None)
            if idle is None:
                return
            await self._close(self._open.pop(idle))

    async def _close(self, entry: OpenProducer) -> None:
        if entry.raw is None:
            return
        raw, entry.raw = entry.raw, None
        with suppress(PushlaneError):  # the broker is away or the lane dropped: it let go by itself
            await self.connection.call("close a producer", raw.close_async)

    async def _make(self, key: ProducerKey, *, begins: bool = True) -> _pulsar.Producer:
        topic = f"persistent://{self.namespace}/{key.lane}"
        configuration = self._configuration(key.name)
        if begins:
            # Without this the client numbers from 0 again when it reconnects before its first
            # answer: what it sends next would be dropped as a repeat. Java's: apache/pulsar pull
            # request 2047.
            configuration.initial_sequence_id(0)
        start = self.connection.raw.create_producer_async
        return await self.connection.open(
            topic,
            self.doing or f"publish {key.name or 'pushes'} on lane {key.lane}",
            lambda done: start(topic, configuration, done),
            most=1 if key.name else MOST_OPENINGS,  # the broker takes no second one of a name
        )

    def _configuration(self, name: str) -> _pulsar.ProducerConfiguration:
        configuration = _pulsar.ProducerConfiguration()
        if name:
            configuration.producer_name(name)
        configuration.send_timeout_millis(OPERATION_TIMEOUT_S * 1000)
        configuration.max_pending_messages(0)  # bounded by `room`, which waits without blocking
        configuration.compression_type(self.compression)
        configuration.batching_enabled(False)  # a message has many pushes already
        return configuration


class _Sending:
    """The messages of one publish that are on their way."""

    def __init__(self, producer: OpenProducer) -> None:
        self._producer = producer
        self._in_flight = 0
        self._failed: _pulsar.Result | None = None
        self._landed = asyncio.Event()
        self._confirm = partial(wake, asyncio.get_running_loop(), self._confirmed)

    async def run(self, messages: Iterable[_pulsar.Message]) -> _pulsar.Result | None:
        """Send all; return the first failure, or None."""
        for message in messages:
            await self._producer.room.acquire()
            if self._failed is not None:
                self._producer.room.release()
                break
            self._in_flight += 1
            raw = self._producer.raw
            if raw is None:  # closed meanwhile, by another publish that failed
                self._confirmed(_pulsar.Result.AlreadyClosed, None)
            else:
                raw.send_async(message, self._confirm)
        while self._in_flight:
            self._landed.clear()
            await self._landed.wait()
        return self._failed

    def _confirmed(self, result: _pulsar.Result, _message_id: object) -> None:
        if result.value and self._failed is None:
            self._failed = result
        self._producer.room.release()
        self._in_flight -= 1
        if not self._in_flight:
            self._landed.set()


def _message(body: bytes, number: int | None, delay_s: float, key: str | None) -> _pulsar.Message:
    builder = _pulsar.MessageBuilder()
    builder.content(body)
    if number is not None:
        builder.sequence_id(number)
    if delay_s > 0:  # a tick more, since the broker may deliver one tick early
        delay = timedelta(seconds=delay_s, milliseconds=DELAY_TICK_MS)
        builder.deliver_after(delay)
        builder.property(DUE, str(now_ms() + round(delay.total_seconds() * 1000)))
    if key is not None:
        builder.partition_key(key)
    return builder.build()


_KNOWN_LANES = 65_536


_MANY_DELAYED = 10_000


class _Consumer(msgspec.Struct):
    unacked: int = msgspec.field(name="unackedMessages")
    name: str = msgspec.field(name="consumerName", default="")


class _Subscription(msgspec.Struct):
    backlog: int = msgspec.field(name="msgBacklog")
    consumers: list[_Consumer]
    delayed: int = msgspec.field(name="msgDelayed", default=0)
    is_blocked: bool = msgspec.field(name="blockedSubscriptionOnUnackedMsgs", default=False)

    def unsent(self, consumer: str) -> int:
        """Return how many messages wait for this consumer, or for any; 0 while none need be sent.

        With very many that are delayed, the broker reads no further until some are due.
        """
        if self.is_blocked or self.delayed >= _MANY_DELAYED:
            return 0
        elsewhere = sum(one.unacked for one in self.consumers if one.name != consumer)
        return max(0, self.backlog - self.delayed - elsewhere)


class _Stats(msgspec.Struct):
    """The parts of a topic's stats that are looked at; all of them have to be there."""

    subscriptions: dict[str, _Subscription]


class PulsarBroker(Broker):
    def __init__(self, connection: Connection, admin: Admin, settings: Settings) -> None:
        self._connection = connection
        self._admin = admin
        self._namespace = settings.namespace
        stalls = StallWatch[PulsarReader](Topic(self._unsent, self._unload))
        self._subscriber = Subscriber(connection, settings.prefetch, stalls)
        self._known: set[str] = set()
        self._producers = Producers(
            connection, settings.namespace, COMPRESSIONS[settings.compression]
        )
        self._hastener = Hastener(connection, self)

    @property
    def in_doubt(self) -> bool:
        return self._subscriber.in_doubt

    @property
    def held_since_s(self) -> float:
        """Always infinite: a client hears late that what it has not acked went to others."""
        return math.inf

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        """Make the topic and its subscription.

        Every lane keeps acked messages for as long as the namespace says, whatever `keep` is.
        """
        if lane in self._known:
            return
        path, doing = self._path(lane), f"open lane {lane}"
        await make_topic(self._admin, path, doing)
        await make_subscription(self._admin, path, SUBSCRIPTION, doing)
        if len(self._known) >= _KNOWN_LANES:
            self._known.clear()
        self._known.add(lane)

    async def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        self._known.discard(lane)
        await self._producers.close_lane(lane)
        if await self._delete(lane, force):
            return True
        stats = await self._stats(lane)
        if stats is not None and any(one.consumers for one in stats.subscriptions.values()):
            return False
        return await self._delete(lane, force=True)  # only producers that others keep open hold it

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
    ) -> None:
        try:
            await self._producers.publish(lane, bodies, delay_s=delay_s, source=source)
        except UnknownLane:  # somebody else has removed it
            self._known.discard(lane)
            raise

    async def close_source(self, lane: str, name: str) -> None:
        await self._producers.close_source(lane, name)

    async def last_of(self, lane: str, source: str) -> int:
        try:
            return await self._producers.last_of(lane, source)
        except UnknownLane:
            self._known.discard(lane)
            raise

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        try:
            return await self._subscriber.read(self._topic(lane), lane, on_ready, depth)
        except UnknownLane:  # somebody else has removed it
            self._known.discard(lane)
            raise

    async def ack(self, taken: Sequence[Taken]) -> None:
        for one in taken:
            one.handle.ack()

    async def backlog(self, lane: str) -> int:
        stats = await self._stats(lane)
        ours = stats.subscriptions.get(SUBSCRIPTION) if stats else None
        return ours.backlog if ours else 0

    async def delayed(self, lane: str) -> None:
        """Return None: Pulsar keeps due times to itself."""

    async def hasten(self, lane: str, later_than_ms: int) -> int:
        internals = await self._internals(lane)
        if internals is None:
            return 0
        try:
            return await self._hastener.run(self._topic(lane), lane, internals, later_than_ms)
        except UnknownLane:  # it went with its task
            return 0

    async def unacked(self, lane: str, after: str, most: int) -> list[Placed]:
        place, internals = read_place(after), await self._internals(lane)
        cursor = internals.cursors.get(SUBSCRIPTION) if internals else None
        if internals is None or cursor is None:
            return []
        topic, acked = self._topic(lane), Acked(cursor)
        return await unacked(self._connection, topic, lane, internals, acked, place, most)

    async def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        start = await self._first_since(lane, since_ms)
        async for page in replayed(self._connection, self._topic(lane), lane, start):
            yield page

    async def retained_since_ms(self, lane: str) -> int | None:
        return await retained_since_ms(self._connection, self._topic(lane), lane)

    async def end_of(self, lane: str) -> tuple[int, int]:
        internals = await self._internals(lane)
        return Position.parse(internals.confirmed) if internals else (-1, -1)

    async def is_past(self, lane: str, end: tuple[int, int]) -> bool:
        """Return whether all before the end is acked, not only messages behind an unacked one."""
        internals = await self._internals(lane)
        if internals is None:
            return True
        ours = internals.cursors.get(SUBSCRIPTION)
        return ours is not None and Position.parse(ours.marked) >= end

    async def lanes(self) -> list[str]:
        path = f"/persistent/{self._namespace}"
        topics = await self._admin.read(path, "list the lanes", list[str])
        names = [topic.rsplit("/", 1)[1] for topic in topics]
        self._known.intersection_update(names)
        return [name for name in names if not name.startswith("__")]  # but internal ones

    async def ping(self) -> None:
        await self._connection.probe(self._topic("ping"))

    async def close(self) -> None:
        self._subscriber.close()
        await self._connection.close()

    async def _first_since(self, lane: str, since_ms: int) -> _pulsar.MessageId:
        """Return the first message of this time or later; one behind the last if there is none."""
        if since_ms <= 0:
            return _pulsar.MessageId.earliest
        path, doing = f"{self._path(lane)}/messageid/{since_ms}", f"read lane {lane} again"
        first = await self._admin.find(path, doing, Place)
        if first is None:
            return _pulsar.MessageId.earliest
        return _pulsar.MessageId(-1, first.ledger, first.entry, -1)

    async def _internals(self, lane: str) -> TopicStats | None:
        path = f"{self._path(lane)}/internalStats"
        return await self._admin.find(path, f"measure lane {lane}", TopicStats)

    async def _stats(self, lane: str) -> _Stats | None:
        path = f"{self._path(lane)}/stats?getPreciseBacklog=true"
        return await self._admin.find(path, f"measure lane {lane}", _Stats)

    async def _unsent(self, lane: str, consumer: str) -> int:
        stats = await self._stats(lane)
        ours = stats.subscriptions.get(SUBSCRIPTION) if stats else None
        return ours.unsent(consumer) if ours else 0

    async def _unload(self, lane: str) -> None:
        await self._admin.call("PUT", f"{self._path(lane)}/unload", f"unload lane {lane}")

    async def _delete(self, lane: str, force: bool) -> bool:
        path = self._path(lane) + ("?force=true" if force else "")
        try:
            reply = await self._admin.call("DELETE", path, f"drop lane {lane}", allow=(412,))
        except UnknownLane:  # it is dropped already
            return True
        return reply.status != 412

    def _topic(self, lane: str) -> str:
        return f"persistent://{self._namespace}/{lane}"

    def _path(self, lane: str) -> str:
        return topic_path(self._namespace, lane)
