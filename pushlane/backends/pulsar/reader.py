"""Takes messages off lanes: the only file that uses the client's raw consumer.

One receive of a lane is outstanding at most, and it is the ready signal too: answered at once when
a message is at hand, later on a thread of the client when none is. It is never cancelled, since the
message in its answer would be lost until the consumer closes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial

import _pulsar
import msgspec

from pushlane.backends.pulsar.connection import Connection, ignore, wake
from pushlane.backends.pulsar.stalls import StallWatch
from pushlane.core.errors import PushlaneError
from pushlane.core.ports import OnReady, Taken

MOST = 32_768


class MessageHandle(msgspec.Struct, gc=False):
    """A message that a reader has given out, None once it is acked; `name` is its id.

    The reader's consumer may be another one after the connection was lost.
    """

    reader: PulsarReader
    name: bytes
    message: _pulsar.Message | None

    def ack(self) -> None:
        """Hand the ack to the client, which sends it within 100 ms. Never blocks."""
        message = self.message
        if message is not None:
            self.message = None
            self.reader.acked += 1
            acknowledge(self.reader, message)


@dataclass(eq=False, repr=False)
class RedeliveryFilter:
    """Remembers messages that were given out, of all lanes: the unacked, and the last acked.

    After a broken connection the broker sends all unacked messages again, while the client still
    holds those that it had prefetched: without this, each of those would go out twice. A message
    that another consumer had before is never held back. It begins to forget acked ones, and those
    of closed readers, when there are more than `most`.
    `dropped` counts those that came again.
    """

    _most: int = MOST
    dropped: int = 0
    _holds: dict[bytes, MessageHandle] = field(default_factory=dict)
    _names: deque[bytes] = field(default_factory=deque)  # oldest first: a dict is slow to find it

    def hold(self, reader: PulsarReader, message: _pulsar.Message) -> MessageHandle | None:
        """Return a handle to deliver the message, or None when this reader gave it out before.

        If that one is acked already, its ack may have been lost with the connection: it is sent
        again. If not, it will be.
        """
        name = message.message_id().serialize()
        known = self._holds.get(name)
        if known is not None and known.reader is reader:
            if known.message is None:
                acknowledge(reader, message)
            self.dropped += 1
            return None
        hold = self._holds[name] = MessageHandle(reader, name, message)
        self._names.append(name)
        for _ in range(2):  # else acked ones would pile up behind those that are not
            self._forget_spent()
        return hold

    def _forget_spent(self) -> None:
        """Forget the oldest if it is acked, or its reader closed; else have it wait once more."""
        if len(self._names) <= self._most:
            return
        name = self._names.popleft()
        known = self._holds.get(name)  # None: it had come twice
        if known is None or known.message is None or known.reader.closed:
            self._holds.pop(name, None)
        else:
            self._names.append(name)

    def clear(self) -> None:
        self._holds.clear()
        self._names.clear()


def acknowledge(reader: PulsarReader, acked: _pulsar.Message) -> None:
    with suppress(_pulsar.PulsarException):  # its reader is closed: the message comes again
        reader.acknowledge(acked)


SUBSCRIPTION = "pushlane"
_LOOK_EVERY_S = 0.3
_RENEWED_AT_ONCE = 256
_IN_DOUBT_S = 10.0


class _Answered(msgspec.Struct, eq=False):
    """The message that one consumer has answered with, until it is taken.

    Each consumer has its own: the late answer of one that was replaced, on a thread of the client,
    must not take the place of another's message.
    """

    head: _pulsar.Message | None = None


@dataclass(slots=True, eq=False, repr=False)
class PulsarReader:
    """A consumer of the lane's shared subscription.

    It has `given` out so many messages, of which so many are `acked`.
    """

    _connection: Connection
    lane: str
    _consumer: _pulsar.Consumer
    _recent: RedeliveryFilter
    depth: int
    _on_ready: OnReady
    closed: bool = False
    given: int = 0
    acked: int = 0
    _asked: bool = False
    _waiting: bool = False
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _answered: _Answered = field(init=False)
    _answer: Callable[[_pulsar.Result, _pulsar.Message], None] = field(init=False)

    def __post_init__(self) -> None:
        self._use(self._consumer)

    def _use(self, consumer: _pulsar.Consumer) -> None:
        self._consumer = consumer
        self._answered = _Answered()
        self._answer = partial(self._arrived, self._answered)

    @property
    def is_lost(self) -> bool:
        """True when the connection of its consumer is broken."""
        return not self.closed and not self._consumer.is_connected()

    async def renew(self, subscribe: Callable[[], Awaitable[_pulsar.Consumer]]) -> None:
        """Go on with a new consumer: the client might not try the old one again for a minute.

        Messages that were given out stay so, and are acked through the new consumer; those that the
        old one held in stock come again. An old one that the client has connected meanwhile is
        kept: if it closed, the broker would give others what it has given out, once more.
        """
        consumer = await subscribe()
        if not self.is_lost:
            consumer.close_async(ignore)
            return
        old, self._asked = self._consumer, False
        self._use(consumer)
        if self._waiting:
            self.start()
        old.close_async(ignore)

    async def reopen(self, subscribe: Callable[[], Awaitable[_pulsar.Consumer]]) -> None:
        """Go on with a new consumer, once the old one is closed: for one that is sent nothing.

        A broker that sends a subscription nothing any more begins anew when the last of its
        consumers has gone. Raises as `subscribe` does; then the reader is lost.
        """
        await self._close_consumer()
        consumer = await subscribe()
        if self.closed:
            consumer.close_async(ignore)
            return
        self._asked = False
        self._use(consumer)
        if self._waiting:
            self.start()

    @property
    def is_idle(self) -> bool:
        """True when it waits for a message, and all that it gave out is acked."""
        has_none = self._waiting and self._answered.head is None
        return has_none and self.given == self.acked and not self.closed

    @property
    def consumer_name(self) -> str:
        """The name that the broker knows its consumer by."""
        return str(self._consumer.consumer_name())

    def acknowledge(self, acked: _pulsar.Message) -> None:
        """Ack by the present consumer, whichever gave the message out."""
        self._consumer.acknowledge(acked)

    def start(self) -> None:
        """Wait for the first message."""
        self._waiting = True
        self._ask()

    def take(self) -> Taken | None:
        while not self.closed:
            message = self._at_hand()
            if message is None:
                return None
            hold = self._recent.hold(self, message)
            if hold is not None:
                self.given += 1
                is_part = bool(message.message_id().batch_index() >= 0)
                return Taken(message.data(), self.lane, hold, is_part=is_part)
        return None

    def refill_wait_s(self) -> float:
        """Return 0: the client does not tell what the broker still has."""
        return 0.0

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        await self._close_consumer()

    async def _close_consumer(self) -> None:
        doing = f"stop reading lane {self.lane}"
        with suppress(PushlaneError):  # the broker is away or the lane dropped: it let go by itself
            await self._connection.call(doing, self._consumer.close_async)

    def _at_hand(self) -> _pulsar.Message | None:
        """Return the client's next message. After a None, `_arrived` is called for the next one."""
        if not self._asked:
            self._ask()
        answered = self._answered
        if answered.head is None:
            self._waiting = True
            if answered.head is None:  # read again: it may have come before the line above
                return None
        message, answered.head = answered.head, None
        self._asked = self._waiting = False
        return message

    def _ask(self) -> None:
        self._asked = True
        self._consumer.receive_async(self._answer)

    def _arrived(
        self, answered: _Answered, result: _pulsar.Result, message: _pulsar.Message
    ) -> None:
        """Take the answer of a receive, within `_ask` or on a thread of the client."""
        if result.value:  # the consumer is closed
            return
        answered.head = message
        if self._waiting:
            wake(self._loop, self._tell)

    def _tell(self) -> None:
        if self._waiting and self._answered.head is not None and not self.closed:
            self._waiting = False
            self._on_ready(self)


class Subscriber:
    """Opens the readers of a process, and holds the state that they share."""

    def __init__(
        self, connection: Connection, depth: int, stalls: StallWatch[PulsarReader]
    ) -> None:
        self._connection = connection
        self._depth = depth
        self._stalls = stalls
        self._recent = RedeliveryFilter()
        self._topics: dict[PulsarReader, str] = {}
        self._renewing: dict[PulsarReader, asyncio.Task[None]] = {}
        self._watches: list[asyncio.Task[None]] = []
        self._doubted = 0
        self._in_doubt_until_s = 0.0

    @property
    def in_doubt(self) -> bool:
        """True for a while after a reader lost the broker, found it, or was sent what it had had.

        The broker sends all that is unacked again, to whichever reader of the lane.
        """
        if self._recent.dropped > self._doubted:
            self._doubt()
        return time.monotonic() < self._in_doubt_until_s

    def _doubt(self) -> None:
        self._doubted = self._recent.dropped
        self._in_doubt_until_s = time.monotonic() + _IN_DOUBT_S

    async def read(self, topic: str, lane: str, on_ready: OnReady, depth: int) -> PulsarReader:
        """Open a reader of the topic, which waits for its first message; see `Broker.read`.

        Raises:
            UnknownLane: there is no such topic.
            Unreachable: the broker does not answer.
        """
        depth = depth or self._depth
        consumer = await self._subscribe(topic, lane, depth)
        reader = PulsarReader(self._connection, lane, consumer, self._recent, depth, on_ready)
        reader.start()
        self._topics[reader] = topic
        if not self._watches:
            self._watches = [
                asyncio.create_task(self._renew_lost(), name="renew readers"),
                asyncio.create_task(self._stalls.run(self._idle, self._reopen), name="stalls"),
            ]
        return reader

    async def _subscribe(self, topic: str, lane: str, depth: int) -> _pulsar.Consumer:
        start = partial(
            self._connection.raw.subscribe_async, topic, SUBSCRIPTION, _configuration(depth)
        )
        return await self._connection.open(topic, f"read lane {lane}", start)

    async def _renew_lost(self) -> None:
        """Renew readers that lost the broker, as soon as it answers again, for ever."""
        before: set[PulsarReader] = set()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self._topics = {one: of for one, of in self._topics.items() if not one.closed}
            lost = {reader for reader in self._topics if reader.is_lost}
            if lost != before:
                self._doubt()
            late = [one for one in lost & before if one not in self._renewing]
            before = lost  # a short break the client mends by itself
            if late and await self._connection.answers(self._topics[late[0]]):
                for reader in late[: _RENEWED_AT_ONCE - len(self._renewing)]:
                    self._renewing[reader] = asyncio.create_task(self._renew(reader))

    async def _renew(self, reader: PulsarReader) -> None:
        topic = self._topics[reader]
        try:
            with suppress(PushlaneError):  # it is looked at again in a second
                await reader.renew(lambda: self._subscribe(topic, reader.lane, reader.depth))
        finally:
            del self._renewing[reader]

    def _idle(self) -> list[PulsarReader]:
        """Return the readers that wait for the broker, and do not renew their connection."""
        return [one for one in self._topics if one.is_idle and one not in self._renewing]

    async def _reopen(self, reader: PulsarReader) -> None:
        again = asyncio.create_task(
            reader.reopen(lambda: self._subscribe(self._topics[reader], reader.lane, reader.depth))
        )
        self._renewing[reader] = again
        try:
            await again
        finally:
            del self._renewing[reader]

    def close(self) -> None:
        """Stop renewing readers, since the client is about to close."""
        for task in (*self._watches, *self._renewing.values()):
            task.cancel()
        self._recent.clear()


@lru_cache(maxsize=64)
def _configuration(depth: int) -> _pulsar.ConsumerConfiguration:
    """Return one configuration for all readers of a depth: that saves each of them 1 KiB."""
    configuration = _pulsar.ConsumerConfiguration()
    configuration.consumer_type(_pulsar.ConsumerType.Shared)
    configuration.receiver_queue_size(max(1, depth // 2 - 1))  # the reader has one of its own
    configuration.subscription_initial_position(_pulsar.InitialPosition.Earliest)
    return configuration
