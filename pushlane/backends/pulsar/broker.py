"""Puts messages on topics, by producers that are made when first needed and shared.

They are closed when there are too many. A producer in use is never closed to make room.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import NamedTuple

import _pulsar

from pushlane.backends.pulsar.connection import MOST_OPENINGS, OPERATION_TIMEOUT_S, Connection, wake
from pushlane.backends.pulsar.policies import DELAY_TICK_MS
from pushlane.core.errors import PushlaneError, TaskConflict, Unreachable
from pushlane.core.ports import of_each
from pushlane.lanes.ports import Source

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


class OpenProducer:
    """A producer with the room that it has for messages in flight.

    It is `lost` from the loss of its connection until it is made anew.
    """

    __slots__ = ("lock", "lost", "lost_at_s", "raw", "room", "users")

    def __init__(self) -> None:
        self.raw: _pulsar.Producer | None = None
        self.lost = False
        self.lost_at_s = 0.0
        self.lock = asyncio.Lock()
        self.room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self.users = 0


class Producers:
    """The producers of a namespace, at most `limit` that are idle.

    `doing` is what an error says could not be done, where that is no publish on a lane.
    """

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        compression: _pulsar.CompressionType = _pulsar.CompressionType.NONE,
        limit: int = MAX_PRODUCERS,
        doing: str = "",
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._limit = limit
        self._compression = compression
        self._doing = doing
        self._open: OrderedDict[ProducerKey, OpenProducer] = OrderedDict()

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
            result = await _Sending(producer).run(
                _message(body, number, one_s, key)
                for body, number, one_s in zip(
                    bodies, numbers, of_each(delay_s, len(bodies)), strict=True
                )
            )
            if result is None:
                return
            if result != _pulsar.Result.Timeout:  # which the producer survives
                await self._discard(named, producer)
        raise self._connection.failure(result, self._doing or f"publish on lane {lane}")

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

    async def _discard(self, key: ProducerKey, entry: OpenProducer) -> None:
        """Close a producer that is of no more use; the next borrower gets a new one."""
        self._forget(key, entry)
        await self._close(entry)

    async def close_lane(self, lane: str) -> None:
        """Close the producers on a lane that is about to be dropped."""
        for key in [key for key in self._open if key.lane == lane]:
            await self._close(self._open.pop(key))

    async def close_source(self, lane: str, name: str) -> None:
        """Close the producer of a source, unless it is in use."""
        key = ProducerKey(lane, name)
        entry = self._open.get(key)
        if entry is not None and not entry.users:
            await self._close(self._open.pop(key))

    async def _connect(self, key: ProducerKey, entry: OpenProducer) -> None:
        """Make a producer that is missing or lost; the client itself may wait a minute to do so.

        Making it also shows whether its lane is still there.
        """
        if entry.raw is not None and not entry.raw.is_connected():
            entry.lost_at_s = entry.lost_at_s or time.monotonic()
            is_late = time.monotonic() - entry.lost_at_s > _LATE_S
            if entry.users == 1 or is_late:  # else what is in flight may still get through
                entry.lost = self._connection.is_away = True
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
        while len(self._open) > self._limit:
            idle = next((key for key, entry in self._open.items() if not entry.users), None)
            if idle is None:
                return
            await self._close(self._open.pop(idle))

    async def _close(self, entry: OpenProducer) -> None:
        if entry.raw is None:
            return
        raw, entry.raw = entry.raw, None
        try:
            await self._connection.call("close a producer", raw.close_async)
        except PushlaneError:  # the broker is away or the lane dropped: it let go by itself
            return

    async def _make(self, key: ProducerKey) -> _pulsar.Producer:
        topic = f"persistent://{self._namespace}/{key.lane}"
        configuration = self._configuration(key.name)
        start = self._connection.raw.create_producer_async
        return await self._connection.open(
            topic,
            self._doing or f"publish {key.name or 'pushes'} on lane {key.lane}",
            lambda done: start(topic, configuration, done),
            most=1 if key.name else MOST_OPENINGS,  # the broker takes no second one of a name
        )

    def _configuration(self, name: str) -> _pulsar.ProducerConfiguration:
        configuration = _pulsar.ProducerConfiguration()
        if name:
            configuration.producer_name(name)
        configuration.send_timeout_millis(OPERATION_TIMEOUT_S * 1000)
        configuration.max_pending_messages(0)  # bounded by `room`, which waits without blocking
        configuration.compression_type(self._compression)
        configuration.batching_enabled(False)  # a message has many pushes already
        # Without one the client numbers from 0 again when it reconnects before its first answer:
        # what it sends next would be dropped as a repeat. Java's: apache/pulsar pull request 2047.
        configuration.initial_sequence_id(0)
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
        builder.deliver_after(timedelta(seconds=delay_s, milliseconds=DELAY_TICK_MS))
    if key is not None:
        builder.partition_key(key)
    return builder.build()
