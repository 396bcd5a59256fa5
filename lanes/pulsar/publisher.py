"""Puts bodies on a lane, batch by batch, and waits until all of them are durable.

Only the first and the last message of a batch carry a callback: a batch succeeds or fails as a
whole (the first tells when a time-out has struck while the batch was being filled), and a callback
a message costs more than sending it (measured: 30,000/s instead of 100,000/s).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import _pulsar

from lanes.ports import Source
from lanes.pulsar.batches import batches
from lanes.pulsar.failures import failure
from lanes.pulsar.link import Answer, Link, ignore, wake
from lanes.pulsar.policies import DELAY_TICK_MS
from lanes.pulsar.producers import OpenProducer, ProducerKey, Producers


class Publisher:
    def __init__(
        self,
        link: Link,
        producers: Producers,
        batch: int,
    ) -> None:
        self._link = link
        self._producers = producers
        self._batch = batch

    async def publish(
        self, lane: str, bodies: Sequence[bytes], delay_s: float, source: Source | None
    ) -> None:
        """Raises UnknownLane, TaskConflict, OversizedPush or Unreachable (within about 10 s)."""
        key = ProducerKey(lane, source.name if source else "")
        async with self._producers.borrow(key) as producer:
            sending = _Sending(producer, bodies, delay_s, source.first_seq if source else None)
            # the client puts no delayed message into a batch
            result = await sending.run(1 if delay_s > 0 else self._batch)
            if result is None:
                return
            if result != _pulsar.Result.Timeout:  # which the producer survives
                await self._producers.discard(key, producer)
        raise failure(result, self._link.url, f"publish on lane {lane}")


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
        callbacks: dict[int, Answer] = {batch[0]: self._note, batch[-1]: self._confirm}
        for index in batch:
            raw.send_async(self._message(index), callbacks.get(index))
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

    def _note(self, result: _pulsar.Result, _message_id: object) -> None:
        """Called on a thread of the client too."""
        if result.value and self._failed is None:
            self._failed = result

    def _confirmed(self, result: _pulsar.Result, message_id: object) -> None:
        self._note(result, message_id)
        self._producer.room.release()
        self._in_flight -= 1
        if not self._in_flight:
            self._landed.set()


def _delay(delay_s: float) -> timedelta | None:
    """The broker may deliver one tick early."""
    return timedelta(seconds=delay_s, milliseconds=DELAY_TICK_MS) if delay_s > 0 else None
