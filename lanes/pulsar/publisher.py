"""Puts messages on a lane, many at once, and waits until all of them are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import _pulsar

from pushlane.lanes.ports import Source
from pushlane.lanes.pulsar.connection import Connection, wake
from pushlane.lanes.pulsar.policies import DELAY_TICK_MS
from pushlane.lanes.pulsar.producers import OpenProducer, ProducerKey, Producers
from pushlane.lanes.pulsar.vendor_errors import failure


class Publisher:
    def __init__(self, connection: Connection, producers: Producers) -> None:
        self._connection = connection
        self._producers = producers

    async def publish(
        self, lane: str, bodies: Sequence[bytes], delay_s: float, source: Source | None
    ) -> None:
        """Return once all bodies are durable.

        Raises UnknownLane, TaskConflict, OversizedPush or Unreachable (within about 10 s).
        """
        key = ProducerKey(lane, source.name if source else "")
        async with self._producers.borrow(key) as producer:
            sending = _Sending(producer, delay_s)
            result = await sending.run(bodies, source.numbers if source else None)
            if result is None:
                return
            if result != _pulsar.Result.Timeout:  # which the producer survives
                await self._producers.discard(key, producer)
        raise failure(result, self._connection.url, f"publish on lane {lane}")


class _Sending:
    """The messages of one publish that are on their way."""

    def __init__(self, producer: OpenProducer, delay_s: float) -> None:
        self._producer = producer
        self._delay = _delay(delay_s)
        self._in_flight = 0
        self._failed: _pulsar.Result | None = None
        self._landed = asyncio.Event()
        self._confirm = partial(wake, asyncio.get_running_loop(), self._confirmed)

    async def run(
        self, bodies: Sequence[bytes], numbers: Sequence[int] | None
    ) -> _pulsar.Result | None:
        """Send all; return the first failure, or None."""
        for place, body in enumerate(bodies):
            await self._producer.room.acquire()
            if self._failed is not None:
                self._producer.room.release()
                break
            self._in_flight += 1
            raw = self._producer.raw
            if raw is None:  # closed meanwhile, by another publish that failed
                self._confirmed(_pulsar.Result.AlreadyClosed, None)
            else:
                number = None if numbers is None else numbers[place]
                raw.send_async(self._message(body, number), self._confirm)
        while self._in_flight:
            self._landed.clear()
            await self._landed.wait()
        return self._failed

    def _message(self, body: bytes, number: int | None) -> _pulsar.Message:
        builder = _pulsar.MessageBuilder()
        builder.content(body)
        if number is not None:
            builder.sequence_id(number)
        if self._delay is not None:
            builder.deliver_after(self._delay)
        return builder.build()

    def _confirmed(self, result: _pulsar.Result, _message_id: object) -> None:
        if result.value and self._failed is None:
            self._failed = result
        self._producer.room.release()
        self._in_flight -= 1
        if not self._in_flight:
            self._landed.set()


def _delay(delay_s: float) -> timedelta | None:
    """Add a tick to the delay, since the broker may deliver one tick early."""
    return timedelta(seconds=delay_s, milliseconds=DELAY_TICK_MS) if delay_s > 0 else None
