"""Puts bodies on a lane, batch by batch, and waits until all of them are durable.

Only the last message of a batch carries a callback: a batch succeeds or fails as a whole, and a
callback a message costs more than sending it (measured: 30,000/s instead of 130,000/s).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

import _pulsar

from lanes.errors import UnknownLane
from lanes.ports import Source
from lanes.pulsar.batches import batches
from lanes.pulsar.failures import failure
from lanes.pulsar.link import Link, ignore, wake
from lanes.pulsar.policies import DELAY_TICK_MS
from lanes.pulsar.producers import OpenProducer, ProducerKey, Producers


class Publisher:
    def __init__(
        self,
        link: Link,
        producers: Producers,
        batch: int,
        lane_exists: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._link = link
        self._producers = producers
        self._batch = batch
        self._lane_exists = lane_exists

    async def publish(
        self, lane: str, bodies: Sequence[bytes], delay_s: float, source: Source | None
    ) -> None:
        """Raises UnknownLane, TaskConflict, OversizedPush or Unreachable (within about 10 s)."""
        key = ProducerKey(lane, source.name if source else "")
        async with self._producers.borrow(key) as producer:
            if not _is_connected(producer):
                await self._check_lane(key, producer)
            sending = _Sending(producer, bodies, delay_s, source.first_seq if source else None)
            # the client puts no delayed message into a batch
            result = await sending.run(1 if delay_s > 0 else self._batch)
            if result is None:
                return
            if result != _pulsar.Result.Timeout:  # after a time-out the client still reconnects
                await self._producers.discard(key, producer)
        raise failure(result, self._link.url, f"publish on lane {lane}")

    async def _check_lane(self, key: ProducerKey, producer: OpenProducer) -> None:
        """A producer of a dropped lane would try to reconnect for as long as one lets it."""
        if not await self._lane_exists(key.lane):
            await self._producers.discard(key, producer)
            raise UnknownLane(f"lane {key.lane} is gone: it was dropped with its task")


class _Sending:
    """The batches of one publish that are on their way."""

    def __init__(
        self,
        producer: OpenProducer,
        bodies: Sequence[bytes],
        delay_s: float,
        first_seq: int | None,
    ) -> None:
        self._producer = producer
        self._bodies = bodies
        self._first_seq = first_seq
        self._delay = _delay(delay_s)
        self._in_flight = 0
        self._failed: _pulsar.Result | None = None
        self._landed = asyncio.Event()
        self._confirm = partial(wake, asyncio.get_running_loop(), self._confirmed)

    async def run(self, size: int) -> _pulsar.Result | None:
        """Send all, in batches of `size`; what failed first, or None."""
        for batch in batches(self._bodies, self._first_seq or 1, size):
            await self._producer.room.acquire()
            if self._failed is not None:
                self._producer.room.release()
                break
            self._in_flight += 1
            self._send(batch, flush=len(batch) < size)  # a full one the client sends by itself
        while self._in_flight:
            self._landed.clear()
            await self._landed.wait()
        return self._failed

    def _send(self, batch: range, flush: bool) -> None:
        raw = self._producer.raw
        if raw is None:  # closed meanwhile, by another publish that failed
            self._confirmed(_pulsar.Result.AlreadyClosed, None)
            return
        last = batch[-1]
        for index in batch:
            raw.send_async(self._message(index), self._confirm if index == last else None)
        if flush:
            raw.flush_async(ignore)  # the last message's callback tells how it went

    def _message(self, index: int) -> _pulsar.Message:
        builder = _pulsar.MessageBuilder()
        builder.content(self._bodies[index])
        if self._first_seq is not None:
            builder.sequence_id(self._first_seq + index)
        if self._delay is not None:
            builder.deliver_after(self._delay)
        return builder.build()

    def _confirmed(self, result: _pulsar.Result, _message_id: object) -> None:
        self._producer.room.release()
        self._in_flight -= 1
        if result.value and self._failed is None:
            self._failed = result
        if not self._in_flight:
            self._landed.set()


def _delay(delay_s: float) -> timedelta | None:
    """The broker may deliver one tick early."""
    return timedelta(seconds=delay_s, milliseconds=DELAY_TICK_MS) if delay_s > 0 else None


def _is_connected(producer: OpenProducer) -> bool:
    return producer.raw is not None and bool(producer.raw.is_connected())
