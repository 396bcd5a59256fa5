"""Lets messages that wait for their delay on a lane be taken now.

The broker keeps due times to itself, and offers no way to change one. So a message that is delayed
says when it is due in a property. A reader, which sees delayed messages at once, finds those that
are far off; each is published again without a delay, and only then acked where it was.

What is published again is numbered by the place of the original, in the order of the lane. So who
repeats a part, after a kill or beside another process, adds nothing: the broker drops it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import _pulsar

from pushlane.backends.pulsar.connection import Connection
from pushlane.backends.pulsar.reader import SUBSCRIPTION
from pushlane.backends.pulsar.replay import (
    Acked,
    Position,
    TopicStats,
    at_or_behind,
    blocking,
    open_reader,
    page,
    place_of,
)
from pushlane.core.errors import PushlaneError
from pushlane.core.ports import LaneBroker, Source
from pushlane.core.task import now_ms

DUE = "due-ms"
"""The property of a delayed message that says when it is due, in Unix ms."""

_SOURCE = "hasten"
_PAGE = 200
_SOON_MS = 30_000  # longer than it takes from a look at a message to its ack
_ENTRY_BITS = 24


@dataclass(frozen=True, eq=False, repr=False)
class Hastener:
    """Hastens messages of lanes, which are published by a process's own broker."""

    connection: Connection
    broker: LaneBroker

    async def run(self, topic: str, lane: str, stats: TopicStats, later_than_ms: int) -> int:
        """Hasten what is due after then, of what is on the lane now; return how many.

        What is due within half a minute, or does not say when, is left to its time: somebody may
        be given it meanwhile. Raises TaskConflict while another process does this lane.
        """
        cursor, end = stats.cursors.get(SUBSCRIPTION), Position.parse(stats.confirmed)
        if cursor is None or (acked := Acked(cursor)).marked >= end:
            return 0
        count, doing = 0, f"hasten what waits on lane {lane}"
        subscribe = partial(
            self.connection.raw.subscribe_async, topic, SUBSCRIPTION, _takes_nothing()
        )
        consumer = await self.connection.open(topic, doing, subscribe)
        try:
            async for page in self._pages(topic, doing, at_or_behind(acked.marked), end):
                at_ms = max(later_than_ms, now_ms() + _SOON_MS)
                far = [one for one in page if _due_ms(one) > at_ms and place_of(one) not in acked]
                if far:
                    await self._replace(consumer, lane, far)
                count += len(far)
        finally:
            await self.broker.close_source(lane, _SOURCE)
            with suppress(PushlaneError):  # the broker is away, or the lane dropped
                await self.connection.call(doing, consumer.close_async)  # which sends the acks
        return count

    async def _pages(
        self, topic: str, doing: str, start: _pulsar.MessageId, end: Position
    ) -> AsyncIterator[list[_pulsar.Message]]:
        """Yield the messages of a topic up to that place, whether they are acked or not."""
        opened = partial(open_reader, self.connection, topic, start, _PAGE)
        reader = await blocking(self.connection, doing, opened)
        try:
            while found := await blocking(self.connection, doing, partial(page, reader, _PAGE)):
                yield [one for one in found if place_of(one) <= end]
                if place_of(found[-1]) >= end:
                    return
        finally:
            await blocking(self.connection, doing, reader.close)

    async def _replace(
        self, consumer: _pulsar.Consumer, lane: str, messages: Sequence[_pulsar.Message]
    ) -> None:
        source = Source(_SOURCE, [_number(place_of(one)) for one in messages])
        await self.broker.publish(lane, [one.data() for one in messages], source=source)
        for one in messages:
            with suppress(_pulsar.PulsarException):  # then it is known as a copy
                consumer.acknowledge(one.message_id())


def _number(place: Position) -> int:
    return place.ledger << _ENTRY_BITS | place.entry


def _due_ms(message: _pulsar.Message) -> int:
    """Return when a message is due, 0 when it does not say."""
    due = message.properties().get(DUE, "")
    return int(due) if due.isdecimal() else 0


def _takes_nothing() -> _pulsar.ConsumerConfiguration:
    """Return the configuration of a consumer that is given no message before it asks for one."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.consumer_type(_pulsar.ConsumerType.Shared)
    configuration.receiver_queue_size(0)
    configuration.subscription_initial_position(_pulsar.InitialPosition.Earliest)
    return configuration
