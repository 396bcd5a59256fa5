"""Reads the published messages of a lane, acked or not, as far as the namespace retains them.

It does so in threads: reading message by message is the client's only blocking call. Here are the
places in a topic too, and what the admin REST tells of the topic by them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, NamedTuple, Self, TypeVar

import _pulsar
import msgspec

from pushlane.backends.pulsar.connection import OPERATION_TIMEOUT_S, Connection
from pushlane.core.errors import UnknownLane


class Place(msgspec.Struct):
    """The place of a message, as the broker names it."""

    ledger: int = msgspec.field(name="ledgerId")
    entry: int = msgspec.field(name="entryId")


class Position(NamedTuple):
    """A ledger and an entry, which grow along a topic; a text of them is `ledger:entry`."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Self:
        ledger, entry = text.split(":")[:2]
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


_Where = Annotated[str, msgspec.Meta(pattern=r"^-?\d+:-?\d+(:|$)")]


class LedgerSegment(msgspec.Struct):
    """A ledger of a topic; the one that is still written to shows no entries yet."""

    name: int = msgspec.field(name="ledgerId")
    entries: int


class CursorStats(msgspec.Struct):
    """How far a subscription is: all up to `marked` is acked, and what is in the ranges behind."""

    marked: _Where = msgspec.field(name="markDeletePosition")
    acked: str = msgspec.field(name="individuallyDeletedMessages", default="[]")


class TopicStats(msgspec.Struct):
    """The parts of the broker's internal stats of a topic that are looked at."""

    confirmed: _Where = msgspec.field(name="lastConfirmedEntry")
    ledgers: list[LedgerSegment]
    cursors: dict[str, CursorStats]


PAGE = 1_000

T = TypeVar("T")


async def replayed(
    connection: Connection, topic: str, lane: str, start: _pulsar.MessageId
) -> AsyncIterator[list[bytes]]:
    """Yield the bodies from a message on, in the order of the lane, in pages; none without a lane.

    A reader that seeks a time instead may wait for a message that is not there: the client's
    `has_message_available` is wrong after such a seek (apache/pulsar-client-cpp#498, #556).
    """
    doing = f"read lane {lane} again"
    try:
        reader = await blocking(connection, doing, lambda: open_reader(connection, topic, start))
    except UnknownLane:
        return
    try:
        while found := await blocking(connection, doing, lambda: page(reader)):
            yield [message.data() for message in found]
    finally:
        await blocking(connection, doing, reader.close)


async def retained_since_ms(connection: Connection, topic: str, lane: str) -> int | None:
    """Return when the oldest message was published that is still there."""

    def first() -> int | None:
        reader = open_reader(connection, topic, _pulsar.MessageId.earliest)
        try:
            found = page(reader, 1)
            return found[0].publish_timestamp() if found else None
        finally:
            reader.close()

    try:
        return await blocking(connection, f"look at lane {lane}", first)
    except UnknownLane:
        return None


def open_reader(
    connection: Connection,
    topic: str,
    start: _pulsar.MessageId,
    queue: int = PAGE,
    *,
    compacted: bool = False,
    inclusive: bool = True,
) -> _pulsar.Reader:
    """Open a reader from that message on, or behind it unless `inclusive`. Blocks.

    It holds at most `queue` unread messages.
    """
    configuration = _pulsar.ReaderConfiguration()
    configuration.receiver_queue_size(queue)
    configuration.start_message_id_inclusive(inclusive)
    configuration.read_compacted(compacted)
    return connection.raw.create_reader(topic, start, configuration)


def page(reader: _pulsar.Reader, most: int = PAGE) -> list[_pulsar.Message]:
    """Return the next messages of a reader, none at its end. Blocks."""
    found: list[_pulsar.Message] = []
    while len(found) < most and reader.has_message_available():
        found.append(reader.read_next(OPERATION_TIMEOUT_S * 1000))
    return found


async def blocking(connection: Connection, doing: str, work: Callable[[], T]) -> T:
    """Run a blocking call in a thread of the connection's, and translate its errors."""
    try:
        return await connection.threads.run(work)
    except _pulsar.PulsarException as error:
        result = getattr(_pulsar.Result, type(error).__name__, _pulsar.Result.UnknownError)
        raise connection.failure(result, doing) from error
