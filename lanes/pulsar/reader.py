"""Takes messages off one lane: the only file that uses the client's raw consumer.

One receive is outstanding at most, and it is the ready signal too: answered at once when a message
is at hand, later on a thread of the client when none is. It is never cancelled, since the message
it was answered with would be lost until the consumer closes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import _pulsar

from lanes.errors import PushlaneError
from lanes.ports import OnReady, Taken
from lanes.pulsar.link import Link, ignore, wake

SUBSCRIPTION = "pushlane"


class PulsarReader:
    """A consumer of the lane's shared subscription."""

    __slots__ = (
        "_asked",
        "_closed",
        "_consumer",
        "_head",
        "_link",
        "_loop",
        "_on_ready",
        "_waiting",
        "lane",
    )

    def __init__(
        self, link: Link, lane: str, consumer: _pulsar.Consumer, on_ready: OnReady
    ) -> None:
        self.lane = lane
        self._link = link
        self._consumer = consumer
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._head: _pulsar.Message | None = None
        self._asked = False
        self._waiting = False
        self._closed = False

    def start(self) -> None:
        """Wait for the first message."""
        self._waiting = True
        self._ask()

    def take(self) -> Taken | None:
        if self._closed:
            return None
        if not self._asked:
            self._ask()
        if self._head is None:
            self._waiting = True
            if self._head is None:  # read again: it may have come before the line above
                return None
        message, self._head = self._head, None
        self._asked = self._waiting = False
        return Taken(message.data(), self.lane, (self._consumer, message))

    def is_refilling(self) -> bool:
        """The client does not tell how much the broker still has."""
        return False

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._link.call(f"stop reading lane {self.lane}", self._consumer.close_async)
        except PushlaneError:  # the broker is away or the lane dropped: it let go of this consumer
            return

    def _ask(self) -> None:
        self._asked = True
        self._consumer.receive_async(self._arrived)

    def _arrived(self, result: _pulsar.Result, message: _pulsar.Message) -> None:
        """Called within `_ask`, or on a thread of the client."""
        if result.value:  # the consumer is closed
            return
        self._head = message
        if self._waiting:
            wake(self._loop, self._tell)

    def _tell(self) -> None:
        if self._waiting and self._head is not None and not self._closed:
            self._waiting = False
            self._on_ready(self)


def consumer_configuration(prefetch: int) -> _pulsar.ConsumerConfiguration:
    """One for all readers (1 KiB less a reader): they hold at most `prefetch` messages untaken."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.consumer_type(_pulsar.ConsumerType.Shared)
    configuration.receiver_queue_size(prefetch)
    configuration.batch_index_ack_enabled(True)
    configuration.subscription_initial_position(_pulsar.InitialPosition.Earliest)
    return configuration


async def subscribe(
    link: Link,
    topic: str,
    lane: str,
    configuration: _pulsar.ConsumerConfiguration,
    on_ready: OnReady,
) -> PulsarReader:
    """A reader of the topic, waiting for its first message.

    Raises:
        UnknownLane: there is no such topic.
        Unreachable: the broker does not answer.
    """
    start: Callable[..., None] = link.raw.subscribe_async
    consumer = await link.call(
        f"read lane {lane}",
        lambda done: start(topic, SUBSCRIPTION, configuration, done),
        discard=lambda late: late.close_async(ignore),
    )
    reader = PulsarReader(link, lane, consumer, on_ready)
    reader.start()
    return reader


def acknowledge(taken: Iterable[Taken]) -> None:
    """Hand the acks to the client, which sends them within 100 ms. Never blocks."""
    for one in taken:
        consumer, message = one.handle
        try:
            consumer.acknowledge(message)
        except _pulsar.PulsarException:  # its reader is closed: the message comes again
            continue
