"""The broker port on Pulsar: a lane is a topic with one shared subscription.

Topics are made, measured and removed through the admin REST; messages go through the client.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import _pulsar
import msgspec

from pushlane.backends.pulsar.admin import Admin, make_subscription, make_topic, topic_path
from pushlane.backends.pulsar.broker import COMPRESSIONS, Producers
from pushlane.backends.pulsar.connection import Connection
from pushlane.backends.pulsar.reader import SUBSCRIPTION, Subscriber
from pushlane.backends.pulsar.replay import replayed, retained_since_ms
from pushlane.core.errors import UnknownLane
from pushlane.lanes.ports import Broker, LaneReader, OnReady, Source, Taken
from pushlane.lanes.pulsar.positions import Place, Position, TopicStats
from pushlane.settings import Settings

_KNOWN_LANES = 65_536
_INTERNAL = "__"


class _Subscription(msgspec.Struct):
    backlog: int = msgspec.field(name="msgBacklog")
    consumers: list[Any]


class _Stats(msgspec.Struct):
    """The parts of a topic's stats that are looked at; all of them have to be there."""

    subscriptions: dict[str, _Subscription]

    @property
    def readers(self) -> int:
        return sum(len(subscription.consumers) for subscription in self.subscriptions.values())


class PulsarBroker(Broker):
    def __init__(self, connection: Connection, admin: Admin, settings: Settings) -> None:
        self._connection = connection
        self._admin = admin
        self._namespace = settings.namespace
        self._subscriber = Subscriber(connection, settings.prefetch)
        self._known: set[str] = set()
        self._producers = Producers(
            connection, settings.namespace, COMPRESSIONS[settings.compression]
        )

    @property
    def in_doubt(self) -> bool:
        return self._subscriber.in_doubt

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        """Make the topic and its subscription.

        Every lane keeps acked messages for as long as the namespace says, whatever `keep` is.
        """
        if lane in self._known:
            return
        path, doing = self._path(lane), f"open lane {lane}"
        await make_topic(self._admin, path, doing)
        await make_subscription(self._admin, path, SUBSCRIPTION, doing)
        if len(self._known) >= _KNOWN_LANES:
            self._known.clear()
        self._known.add(lane)

    async def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        self._known.discard(lane)
        await self._producers.close_lane(lane)
        if await self._delete(lane, force):
            return True
        stats = await self._stats(lane)
        if stats is not None and stats.readers:
            return False
        return await self._delete(lane, force=True)  # only producers that others keep open hold it

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
    ) -> None:
        try:
            await self._producers.publish(lane, bodies, delay_s=delay_s, source=source)
        except UnknownLane:  # somebody else has removed it
            self._known.discard(lane)
            raise

    async def close_source(self, lane: str, name: str) -> None:
        await self._producers.close_source(lane, name)

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> LaneReader:
        try:
            return await self._subscriber.read(self._topic(lane), lane, on_ready, depth)
        except UnknownLane:  # somebody else has removed it
            self._known.discard(lane)
            raise

    async def ack(self, taken: Sequence[Taken]) -> None:
        for one in taken:
            one.handle.ack()

    async def backlog(self, lane: str) -> int:
        stats = await self._stats(lane)
        if stats is None:
            return 0
        ours = stats.subscriptions.get(SUBSCRIPTION)
        return ours.backlog if ours is not None else 0

    async def delayed(self, lane: str) -> None:
        """Return None: Pulsar keeps due times to itself."""

    async def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        start = await self._first_since(lane, since_ms)
        async for page in replayed(self._connection, self._topic(lane), lane, start):
            yield page

    async def retained_since_ms(self, lane: str) -> int | None:
        return await retained_since_ms(self._connection, self._topic(lane), lane)

    async def end_of(self, lane: str) -> tuple[int, int]:
        internals = await self._internals(lane)
        return Position.parse(internals.confirmed) if internals else (-1, -1)

    async def is_past(self, lane: str, end: tuple[int, int]) -> bool:
        """Return whether all before the end is acked, not only messages behind an unacked one."""
        internals = await self._internals(lane)
        if internals is None:
            return True
        ours = internals.cursors.get(SUBSCRIPTION)
        return ours is not None and Position.parse(ours.marked) >= end

    async def lanes(self) -> list[str]:
        path = f"/persistent/{self._namespace}"
        topics = await self._admin.read(path, "list the lanes", list[str])
        names = [topic.rsplit("/", 1)[1] for topic in topics]
        self._known.intersection_update(names)
        return [name for name in names if not name.startswith(_INTERNAL)]

    async def ping(self) -> None:
        await self._connection.probe(self._topic("ping"))

    async def close(self) -> None:
        self._subscriber.close()
        await self._connection.close()

    async def _first_since(self, lane: str, since_ms: int) -> _pulsar.MessageId:
        """Return the first message of this time or later; one behind the last if there is none."""
        if since_ms <= 0:
            return _pulsar.MessageId.earliest
        path, doing = f"{self._path(lane)}/messageid/{since_ms}", f"read lane {lane} again"
        first = await self._admin.find(path, doing, Place)
        if first is None:
            return _pulsar.MessageId.earliest
        return _pulsar.MessageId(-1, first.ledger, first.entry, -1)

    async def _internals(self, lane: str) -> TopicStats | None:
        path = f"{self._path(lane)}/internalStats"
        return await self._admin.find(path, f"measure lane {lane}", TopicStats)

    async def _stats(self, lane: str) -> _Stats | None:
        path = f"{self._path(lane)}/stats?getPreciseBacklog=true"
        return await self._admin.find(path, f"measure lane {lane}", _Stats)

    async def _delete(self, lane: str, force: bool) -> bool:
        path = self._path(lane) + ("?force=true" if force else "")
        try:
            reply = await self._admin.call("DELETE", path, f"drop lane {lane}", allow=(412,))
        except UnknownLane:  # it is dropped already
            return True
        return reply.status != 412

    def _topic(self, lane: str) -> str:
        return f"persistent://{self._namespace}/{lane}"

    def _path(self, lane: str) -> str:
        return topic_path(self._namespace, lane)
