"""Reads the published messages of a lane, acked or not, as far as the namespace retains them.

It does so in threads: reading message by message is the client's only blocking call. Here are the
places in a topic too, and what the admin REST tells of the topic by them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from typing import Annotated, NamedTuple, Self, TypeVar

import _pulsar
import msgspec

from pushlane.backends.ports import Placed
from pushlane.backends.pulsar.connection import OPERATION_TIMEOUT_S, Connection
from pushlane.core.errors import BadInput, UnknownLane


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


_RANGE = re.compile(r"\((-?\d+):(-?\d+)\.\.(-?\d+):(-?\d+)\]")


class Acked:
    """The places of a topic that its subscription has acked, as the broker's stats tell them."""

    def __init__(self, cursor: CursorStats) -> None:
        self.marked = Position.parse(cursor.marked)
        found = (tuple(map(int, ends)) for ends in _RANGE.findall(cursor.acked))
        ranges = sorted((Position(*ends[2:]), Position(*ends[:2])) for ends in found)
        self._lasts = [last for last, _ in ranges]
        self._befores = [before for _, before in ranges]

    def __contains__(self, place: Position) -> bool:
        if place <= self.marked:
            return True
        at = bisect_left(self._lasts, place)
        return at < len(self._lasts) and self._befores[at] < place


PAGE = 1_000

T = TypeVar("T")
_PLACE = re.compile(r"(\d{1,19}):(\d{1,19}):(-?\d{1,10})")


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


async def unacked(
    connection: Connection,
    topic: str,
    lane: str,
    stats: TopicStats,
    acked: Acked,
    after: tuple[Position, int],
    most: int,
) -> list[Placed]:
    """Return messages behind a place, in a batch or not, of which none is acked by the stats."""
    start, end = max(after[0], acked.marked), Position.parse(stats.confirmed)
    if start > end or acked.marked >= end:
        return []
    doing, found = f"look at lane {lane}", list[Placed]()

    def look() -> None:
        reader = open_reader(connection, topic, at_or_behind(start), min(most + 1, PAGE))
        try:
            while len(found) < most and (some := page(reader, most)):
                wanted = (one for one in some if _whole_place(one) > after)
                found.extend(_placed(one) for one in wanted if place_of(one) not in acked)
                if place_of(some[-1]) >= end:
                    break
        finally:
            reader.close()

    try:
        await blocking(connection, doing, look)
    except UnknownLane:
        return []
    return found[:most]


def read_place(text: str) -> tuple[Position, int]:
    """Return the place of a message, and its number in its batch. Raises BadInput for none."""
    if not text:
        return Position(-1, -1), -1
    match = _PLACE.fullmatch(text)
    if match is None or int(match[1]) >= 2**63 or int(match[2]) >= 2**63:
        raise BadInput("there is no such place in the list; begin with its first page again")
    return Position(int(match[1]), int(match[2])), int(match[3])


def _whole_place(message: _pulsar.Message) -> tuple[Position, int]:
    return place_of(message), message.message_id().batch_index()


def _placed(message: _pulsar.Message) -> Placed:
    place, index = _whole_place(message)
    return Placed(f"{place}:{index}", message.data())


def at_or_behind(place: Position) -> _pulsar.MessageId:
    """Return where to read from to begin with this place, or the first behind it."""
    if place.entry < 0:
        return _pulsar.MessageId.earliest
    return _pulsar.MessageId(-1, place.ledger, place.entry, -1)


def place_of(message: _pulsar.Message) -> Position:
    """Return the place of a message, which those of a batch have in common."""
    name = message.message_id()
    return Position(name.ledger_id(), name.entry_id())


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
