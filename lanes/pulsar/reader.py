"""Takes messages off one lane: the only file that uses the client's raw consumer.

One receive is outstanding at most, and it is the ready signal too: answered at once when a message
is at hand, later on a thread of the client when none is. It is never cancelled, since the message
it was answered with would be lost until the consumer closes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import _pulsar

from lanes.errors import PushlaneError
from lanes.ports import OnReady, Taken
from lanes.pulsar.acks import Acks, left_of_batch
from lanes.pulsar.link import Link, ignore, wake
from lanes.pulsar.recent import Recent

SUBSCRIPTION = "pushlane"
REFILL_WAIT_S = 0.1


class PulsarReader:
    """A consumer of the lane's shared subscription."""

    __slots__ = (
        "_acks",
        "_asked",
        "_buffer",
        "_closed",
        "_consumer",
        "_dry_at",
        "_few",
        "_full_run",
        "_head",
        "_link",
        "_loop",
        "_on_ready",
        "_recent",
        "_refills",
        "_run",
        "_waiting",
        "lane",
    )

    def __init__(
        self,
        link: Link,
        lane: str,
        consumer: _pulsar.Consumer,
        recent: Recent,
        acks: Acks,
        prefetch: int,
        on_ready: OnReady,
    ) -> None:
        self.lane = lane
        self._link = link
        self._consumer = consumer
        self._recent = recent
        self._acks = acks
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._buffer: list[Taken] = []  # the next one last: an empty deque is ten times as large
        self._few = _few(prefetch)
        self._head: _pulsar.Message | None = None
        self._asked = False
        self._waiting = False
        self._closed = False
        self._full_run = prefetch
        self._run = 0
        self._refills = False
        self._dry_at = 0.0

    def start(self) -> None:
        """Wait for the first message."""
        self._waiting = True
        self._ask()

    def take(self) -> Taken | None:
        if self._buffer:
            return self._buffer.pop()
        return None if self._closed else self._fetch()

    def refill_wait_s(self) -> float:
        """The client does not tell what the broker still has, so this goes by the past.

        A lane that gave a whole prefetch in one run has a backlog; it is believed to have more for
        as long as each refill comes within the wait.
        """
        return REFILL_WAIT_S if self._refills else 0.0

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._buffer.clear()
        self._acks.send()
        try:
            await self._link.call(f"stop reading lane {self.lane}", self._consumer.close_async)
        except PushlaneError:  # the broker is away or the lane dropped: it let go of this consumer
            return

    def _fetch(self) -> Taken | None:
        """Get a few at once, as that costs less than one at a time; the first of them.

        None means that none is at hand, and that we are told when there is one.
        """
        buffer = self._buffer
        while len(buffer) < self._few and (message := self._at_hand(wait=not buffer)) is not None:
            name = self._keep(message)
            self._keep_more(min(left_of_batch(name), self._few - len(buffer)))
        if not buffer:
            self._ran_dry()
            return None
        self._run += len(buffer)
        buffer.reverse()
        return buffer.pop()

    def _keep(self, message: _pulsar.Message) -> bytes:
        """Into the buffer, if it is to be delivered; its id, empty if not."""
        hold = self._recent.hold(self._consumer, message)
        if hold is None:
            return b""
        self._buffer.append(Taken(message.data(), self.lane, hold))
        return hold.name

    def _keep_more(self, count: int) -> None:
        """Messages of the same batch: they came together, and cost less without a callback."""
        receive = self._consumer.receive
        try:
            for _ in range(count):
                self._keep(receive(0))
        except _pulsar.PulsarException:  # they are still being unpacked, or were acked before
            return

    def _at_hand(self, *, wait: bool) -> _pulsar.Message | None:
        """The next message of the client; with `wait` a None means that we are told of it."""
        if not self._asked:
            self._ask()
        if self._head is None:
            self._waiting = wait
            if self._head is None:  # read again: it may have come before the line above
                return None
        message, self._head = self._head, None
        self._asked = self._waiting = False
        return message

    def _ran_dry(self) -> None:
        if self._run:
            self._refills = self._refills or self._run >= self._full_run
            self._run = 0
            self._dry_at = time.monotonic()

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
            if time.monotonic() - self._dry_at > REFILL_WAIT_S:
                self._refills = False
            self._on_ready(self)


class Subscriber:
    """Opens the readers of a process, and has what they share."""

    def __init__(self, link: Link, prefetch: int) -> None:
        self.acks = Acks()
        self._link = link
        self._prefetch = prefetch
        self._configuration = _configuration(prefetch)
        self._recent = Recent()

    async def read(self, topic: str, lane: str, on_ready: OnReady) -> PulsarReader:
        """A reader of the topic, waiting for its first message.

        Raises:
            UnknownLane: there is no such topic.
            Unreachable: the broker does not answer.
        """
        start: Callable[..., None] = self._link.raw.subscribe_async
        consumer = await self._link.call(
            f"read lane {lane}",
            lambda done: start(topic, SUBSCRIPTION, self._configuration, done),
            discard=lambda late: late.close_async(ignore),
        )
        reader = PulsarReader(
            self._link, lane, consumer, self._recent, self.acks, self._prefetch, on_ready
        )
        reader.start()
        return reader

    def close(self) -> None:
        """Send the acks that wait; the client is about to close."""
        self.acks.send()
        self._recent.clear()


def _few(prefetch: int) -> int:
    """How many of them a reader gets off the client at once."""
    return max(1, prefetch // 16)


def _configuration(prefetch: int) -> _pulsar.ConsumerConfiguration:
    """One for all readers (1 KiB less a reader): they hold at most `prefetch` messages untaken."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.consumer_type(_pulsar.ConsumerType.Shared)
    at_hand = _few(prefetch) + prefetch * 3 // 8  # what readers and dispatcher have besides
    configuration.receiver_queue_size(max(1, prefetch - at_hand))
    configuration.batch_index_ack_enabled(True)
    configuration.subscription_initial_position(_pulsar.InitialPosition.Earliest)
    return configuration
