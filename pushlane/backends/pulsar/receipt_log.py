"""The log of receipts on a partitioned topic, with a durable subscription from the beginning.

Nothing consumes by that subscription: bodies are read by position, and a commit moves its cursor,
up to which the broker may remove receipts. Its properties hold the committed positions and the
secret. A position is the ledger and entry to be read next. The broker begins a new ledger now and
then, removes an empty one when it closes, and the oldest ones when they are over.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, NamedTuple, Self

import _pulsar
import msgspec

from pushlane.backends.ports import ReceiptLog, split_evenly
from pushlane.backends.pulsar.admin import Admin, make_subscription, topic_path
from pushlane.backends.pulsar.broker import Producers
from pushlane.backends.pulsar.connection import OPERATION_TIMEOUT_S, Connection, hedged
from pushlane.backends.pulsar.policies import ensure_namespace, receipt_policies
from pushlane.backends.pulsar.replay import (
    LedgerSegment,
    Place,
    Position,
    TopicStats,
    blocking,
    open_reader,
)
from pushlane.core.errors import UnknownLane, Unreachable
from pushlane.settings import Settings
from pushlane.util.errors import MissingPermission, ReceiptsGone


class Extent(NamedTuple):
    """The ledgers of a topic, oldest first, and the position that its subscription reads next."""

    ledgers: list[LedgerSegment]
    cursor: Position

    @classmethod
    def of(cls, stats: TopicStats, subscription: str) -> Self:
        """Read the extent from stats; the ledger still written to ends at its confirmed entry."""
        confirmed = Position.parse(stats.confirmed)
        closed = [*stats.ledgers]
        if closed and closed[-1].name == confirmed.ledger:
            closed[-1] = LedgerSegment(confirmed.ledger, confirmed.entry + 1)
        marked = Position.parse(stats.cursors[subscription].marked)
        return cls(closed, Position(marked.ledger, marked.entry + 1))

    @property
    def first(self) -> Position:
        return Position(self.ledgers[0].name, 0) if self.ledgers else Position(0, 0)

    def count_from(self, start: Position) -> int:
        """Count the entries from here on."""
        return sum(count for _, _, count in self._behind(start))

    def after(self, start: Position, count: int) -> Position:
        """Return the position so many entries further, which must be there."""
        position, left = start, count
        for name, begin, entries in self._behind(start):
            if step := min(left, entries):
                position, left = Position(name, begin + step), left - step
        return position

    def _behind(self, start: Position) -> Iterator[tuple[int, int, int]]:
        """Yield each ledger from here on: its name, the entry to begin at, and how many follow."""
        for ledger in self.ledgers:
            if ledger.name >= start.ledger:
                begin = start.entry if ledger.name == start.ledger else 0
                yield ledger.name, begin, max(0, ledger.entries - begin)

    def holds(self, start: Position, committed: Position | None) -> bool:
        """Return whether everything from here on is still there.

        A ledger that is gone had been read to its end, or had nothing on it, when the cursor stands
        there still; or when it stands at a beginning, which no removal leads to.
        """
        if any(ledger.name == start.ledger for ledger in self.ledgers) or self.cursor == start:
            return True
        return self.cursor.entry == 0 and (start.entry == 0 or start == committed)


TOPIC = "receipts"
SUBSCRIPTION = "pipeline"
_DOING = "look at the log of receipts"
_PAGE = 64
_NEXT_PARTITION_AFTER_S = 2.0
_MOST_COPIES = 3


class _Partitions(msgspec.Struct):
    """The number of partitions: 0 of a topic that the broker has not heard of yet."""

    partitions: Annotated[int, msgspec.Meta(ge=1)]


class PulsarReceiptLog(ReceiptLog):
    """See `backends.ports.ReceiptLog`. Opening it asks the broker nothing: the first call does."""

    def __init__(self, connection: Connection, admin: Admin, settings: Settings) -> None:
        self._connection = connection
        self._admin = admin
        self._settings = settings
        self._namespace = f"{settings.namespace}-receipts"
        lz4, doing = _pulsar.CompressionType.LZ4, "write the log of receipts"
        self._producers = Producers(connection, self._namespace, lz4, doing=doing)
        self._opening = asyncio.Lock()
        self._partitions = 0
        self._turns = itertools.count(secrets.randbelow(64))
        self._appending: dict[asyncio.Task[None], int] = {}

    async def append(self, bodies: Sequence[bytes]) -> None:
        """See `ReceiptWriter`. What a partition does not take soon goes to another one too."""
        if not bodies:
            return
        partitions = await self._open()
        await hedged(
            lambda: self._append(self._idlest(partitions), bodies),
            after_s=_NEXT_PARTITION_AFTER_S,
            most=min(partitions, _MOST_COPIES),
        )

    async def _append(self, partition: int, bodies: Sequence[bytes]) -> None:
        """Return once one partition has all.

        When another is sooner this one goes on, and is not chosen until it has answered: its broker
        may be gone.
        """
        appending = asyncio.create_task(self._publish(partition, bodies))
        self._appending[appending] = partition
        appending.add_done_callback(self._appended)
        await asyncio.shield(appending)

    def _appended(self, appending: asyncio.Task[None]) -> None:
        del self._appending[appending]
        if not appending.cancelled():
            appending.exception()  # perhaps nobody waits for it any more

    def _idlest(self, partitions: int) -> int:
        """Return the partition with the fewest appends under way, in turns."""
        busy = Counter(self._appending.values())
        turn = next(self._turns)
        in_turn = ((turn + ahead) % partitions for ahead in range(partitions))
        return min(in_turn, key=busy.__getitem__)

    async def _publish(self, partition: int, bodies: Sequence[bytes]) -> None:
        try:
            await self._producers.publish(_topic(partition), bodies)
        except UnknownLane as error:
            self._partitions = 0  # somebody has removed it: it is made anew
            raise Unreachable(f"the log of receipts is gone: {error}") from error
        except Unreachable as error:
            if "Quota" in str(error):
                raise Unreachable(_FULL) from error
            raise

    async def first(self) -> list[str]:
        return [str(extent.first) for extent in await self._extents()]

    async def since(self, at_ms: int) -> list[str]:
        partitions = await self._open()
        return await asyncio.gather(*(self._since(part, at_ms) for part in range(partitions)))

    async def committed(self) -> list[str] | None:
        partitions = await self._open()
        found = await asyncio.gather(*map(self._committed, range(partitions)))
        texts = [str(position) for position in found if position is not None]
        return texts if len(texts) == partitions else None

    async def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        starts = [Position.parse(text) for text in start]
        extents = await self._extents()
        for partition, extent in enumerate(extents):
            await self._check(partition, extent, starts[partition])
        counts = [extent.count_from(here) for extent, here in zip(extents, starts, strict=True)]
        shares = counts if most is None else split_evenly(counts, most)
        rows = zip(extents, starts, shares, strict=True)
        return [str(extent.after(here, share)) for extent, here, share in rows]

    async def kept(self, positions: Sequence[str]) -> list[str]:
        extents = await self._extents()
        rows = enumerate(zip(extents, _starts(extents, positions), strict=True))
        return [
            str(start if await self._holds(partition, extent, start) else extent.first)
            for partition, (extent, start) in rows
        ]

    async def read(self, partition: int, start: str, end: str) -> AsyncIterator[list[bytes]]:
        await self._open()
        first, last = Position.parse(start), Position.parse(end)
        extent = await self._extent(partition)
        await self._check(partition, extent, first)
        count = extent.count_from(first) - extent.count_from(last)
        if count <= 0:
            return
        doing = "read the log of receipts"
        topic = f"persistent://{self._namespace}/{_topic(partition)}"
        begin = _pulsar.MessageId(-1, first.ledger, first.entry, -1)
        reader = await blocking(
            self._connection, doing, lambda: open_reader(self._connection, topic, begin, _PAGE)
        )
        try:
            while count > 0:
                size = min(count, _PAGE)
                yield await blocking(self._connection, doing, partial(_page, reader, size))
                count -= size
        finally:
            await blocking(self._connection, doing, reader.close)

    async def commit(self, positions: Sequence[str]) -> None:
        partitions = await self._open()
        for partition in range(partitions):
            await self._commit(partition, Position.parse(positions[partition]))

    async def lag(self, positions: Sequence[str]) -> int:
        extents = await self._extents()
        starts = _starts(extents, positions)
        return sum(extent.count_from(at) for extent, at in zip(extents, starts, strict=True))

    async def secret(self) -> bytes:
        await self._open()
        return bytes.fromhex((await self._properties(0))["secret"])

    async def close(self) -> None:
        """Let go of appends that nobody waits for; producers are closed with the connection."""
        for appending in self._appending:
            appending.cancel()

    async def _open(self) -> int:
        """Make namespace, topic and subscription when missing; return the number of partitions."""
        if self._partitions:
            return self._partitions
        async with self._opening:
            if not self._partitions:
                policies = receipt_policies(self._settings)
                await ensure_namespace(self._admin, self._namespace, policies)
                wanted = self._settings.receipts_partitions
                self._partitions = await make_receipts(self._admin, self._namespace, wanted)
        return self._partitions

    async def _extents(self) -> list[Extent]:
        partitions = await self._open()
        return await asyncio.gather(*map(self._extent, range(partitions)))

    async def _extent(self, partition: int) -> Extent:
        path = f"{self._path(partition)}/internalStats"
        stats = await self._admin.read(path, _DOING, TopicStats)
        if SUBSCRIPTION not in stats.cursors:
            raise self._admin.garbled(_DOING)
        return Extent.of(stats, SUBSCRIPTION)

    async def _check(self, partition: int, extent: Extent, start: Position) -> None:
        if not await self._holds(partition, extent, start):
            raise ReceiptsGone(
                f"partition {partition} of the log of receipts begins at {extent.first}: what came "
                f"after {start} is not kept any more"
            )

    async def _holds(self, partition: int, extent: Extent, start: Position) -> bool:
        return extent.holds(start, None) or extent.holds(start, await self._committed(partition))

    async def _since(self, partition: int, at_ms: int) -> str:
        path = f"{self._path(partition)}/messageid/{at_ms}"
        found = await self._admin.read(path, _DOING, Place)
        return str(Position(found.ledger, max(0, found.entry)))

    async def _committed(self, partition: int) -> Position | None:
        text = (await self._properties(partition)).get("committed")
        return None if text is None else Position.parse(text)

    async def _commit(self, partition: int, position: Position) -> None:
        """Move the cursor first: receipts before a recorded position may be removed.

        The cursor cannot be moved to a ledger that is gone, and need not: nothing of that is kept.
        """
        extent = await self._extent(partition)
        subscription = f"{self._path(partition)}/subscription/{SUBSCRIPTION}"
        doing = "commit to the log of receipts"
        if any(ledger.name == position.ledger for ledger in extent.ledgers):
            body = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1}
            await self._admin.call("POST", f"{subscription}/resetcursor", doing, body)
        properties = {**await self._properties(partition), "committed": str(position)}
        await self._admin.call("PUT", f"{subscription}/properties", doing, properties)

    async def _properties(self, partition: int) -> dict[str, str]:
        path = f"{self._path(partition)}/subscription/{SUBSCRIPTION}/properties"
        found = await self._admin.read(path, _DOING, dict[str, str])
        if "secret" not in found:
            raise self._admin.garbled(_DOING)
        return found

    def _path(self, partition: int) -> str:
        return topic_path(self._namespace, _topic(partition))


async def make_receipts(admin: Admin, namespace: str, wanted: int) -> int:
    """Make topic and subscriptions when they are missing; return the number of partitions."""
    path, doing = topic_path(namespace, TOPIC), "make the log of receipts"
    with suppress(MissingPermission):  # who may not make topics may use one that is there
        await admin.insist("PUT", f"{path}/partitions", doing, wanted, allow=(409,))
    found = (await admin.read(f"{path}/partitions", doing, _Partitions)).partitions
    for partition in range(found):  # the first process to make one gives it its secret
        secret = {"secret": secrets.token_hex(16)}
        place = topic_path(namespace, _topic(partition))
        await make_subscription(admin, place, SUBSCRIPTION, doing, secret)
    return found


_FULL = (
    "the log of receipts is full, and nothing has read it: run `pushlane pipeline run`, raise "
    "receipts_max_bytes, or set receipts=on"
)


def _starts(extents: Sequence[Extent], positions: Sequence[str]) -> list[Position]:
    """Parse the positions; those of a log with more or fewer partitions become the oldest ones."""
    if len(positions) != len(extents):
        return [extent.first for extent in extents]
    return [Position.parse(text) for text in positions]


def _topic(partition: int) -> str:
    return f"{TOPIC}-partition-{partition}"


def _page(reader: _pulsar.Reader, size: int) -> list[bytes]:
    return [reader.read_next(OPERATION_TIMEOUT_S * 1000).data() for _ in range(size)]
