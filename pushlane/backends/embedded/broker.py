"""The broker port on SQLite: lanes are rows, and a message is claimed by moving a number.

A publish is durable when it returns. Several processes work on one store at once; the claims of a
killed one come back within a second, those of a frozen one within about a minute. An ack outlives
the process, but perhaps not a power cut: then the push is repeated, never lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from collections.abc import AsyncIterator, Sequence
from functools import partial

from pushlane.backends.embedded import messages as claims
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.owners import BEAT_S, HeartbeatWatch, OwnerBeat, beat
from pushlane.core.ports import of_each
from pushlane.core.task import now_ms
from pushlane.lanes.embedded import messages
from pushlane.lanes.embedded.feeder import Feeder
from pushlane.lanes.embedded.process_liveness import Owner, forget
from pushlane.lanes.embedded.reader import EmbeddedReader
from pushlane.lanes.embedded.side_tasks import SideTasks
from pushlane.lanes.ports import Delayed, OnReady, Source, Taken

HOUSEKEEPING_S = 0.5

log = logging.getLogger("pushlane.embedded")


class EmbeddedBroker:
    """See `core.ports.Broker`.

    Every process on a store beats each `beat_s` seconds. `depth` is for readers that were given
    none.
    """

    def __init__(self, database: Database, depth: int, beat_s: float = BEAT_S) -> None:
        self._database = database
        self._depth = depth
        self._owner = Owner(database.folder)
        self._beat_s = beat_s
        self._watch = HeartbeatWatch(self._owner.name)
        self._feeder = Feeder(database, self._owner.name, beat_s)
        self._background = SideTasks()
        self._reads = False
        self._keeps_house = False

    @property
    def in_doubt(self) -> bool:
        """Always False: nobody is given what a process that beats has at hand."""
        return False

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        await self._database.write(partial(messages.open_lane, lane=lane, keep=keep), durable=True)

    async def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        folder = self._database.folder
        dropped = await self._database.write(
            lambda connection: claims.drop_lane(connection, lane, None if force else folder)
        )
        self._keep_house()
        return dropped

    async def publish(
        self,
        lane: str,
        bodies: Sequence[bytes],
        *,
        delay_s: float | Sequence[float] = 0.0,
        source: Source | None = None,
    ) -> None:
        self._background.check()
        now = now_ms()
        dues_ms = [
            now + math.ceil(one_s * 1000) + 1 if one_s > 0 else 0
            for one_s in of_each(delay_s, len(bodies))
        ]
        lane_id = await self._database.write(
            lambda connection: messages.publish(connection, lane, bodies, dues_ms, source, now),
            durable=True,
        )
        self._feeder.kick(lane_id)

    async def close_source(self, lane: str, name: str) -> None:
        """Do nothing: no connection is kept for it."""

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> EmbeddedReader:
        self._start_reading()
        reader_id, lane_id = await self._database.write(
            partial(claims.register, owner=self._owner.name, lane=lane)
        )
        depth = max(1, (depth or self._depth) // 2)
        reader = EmbeddedReader(
            lane,
            lane_id,
            reader_id,
            depth,
            on_ready,
            self._feeder.ask,
            self._leave,
            self._feeder.at_hand,
        )
        self._feeder.add(reader)
        return reader

    async def ack(self, taken: Sequence[Taken]) -> None:
        self._background.check()
        ids = [one.handle for one in taken]
        await self._database.write(partial(messages.ack, ids=ids))

    async def backlog(self, lane: str) -> int:
        return await self._database.read(partial(messages.backlog, lane=lane))

    async def delayed(self, lane: str) -> Delayed:
        return await self._database.read(partial(messages.delayed, lane=lane, now_ms=now_ms()))

    async def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        find = partial(messages.published_since, lane=lane, since_ms=since_ms)
        for first, last in await self._database.read(find):
            while first <= last:
                page = partial(messages.page, first=first, last=last)
                bodies, first = await self._database.read(page)
                if bodies:
                    yield bodies

    async def retained_since_ms(self, lane: str) -> int | None:
        return await self._database.read(partial(messages.retained_since_ms, lane=lane))

    async def end_of(self, lane: str) -> tuple[int, int]:
        return await self._database.read(partial(messages.end_of, lane=lane))

    async def is_past(self, lane: str, end: tuple[int, int]) -> bool:
        return await self._database.read(partial(messages.is_past, lane=lane, end=end))

    async def lanes(self) -> list[str]:
        return await self._database.read(messages.lanes)

    async def ping(self) -> None:
        await self._database.ping()

    async def close(self) -> None:
        await self._background.close()
        for reader in self._feeder.readers():
            reader.stop()
        if self._reads:
            self._reads = False
            self._database.repeat_no_more()
            try:
                await self._database.write(partial(claims.give_back_all, owner=self._owner.name))
            finally:
                self._owner.end()

    async def _leave(self, reader: EmbeddedReader) -> None:
        self._feeder.remove(reader)
        await self._database.write(
            partial(claims.give_back, reader_id=reader.reader_id, lane_id=reader.lane_id)
        )
        self._feeder.kick(reader.lane_id)

    def _start_reading(self) -> None:
        self._background.check()
        if not self._reads:
            self._reads = True
            self._owner.start()
            self._database.repeat(self._beat, self._beat_s, self._beaten)
            self._database.on_change(self._feeder.look_around)
            self._background.repeat(self._feeder.step, "the embedded broker's feeder")
            self._keep_house()

    def _keep_house(self) -> None:
        if not self._keeps_house:
            self._keeps_house = True
            self._background.repeat(self._housekeeping, "the embedded broker's housekeeping")

    def _beat(self, connection: sqlite3.Connection) -> bool:
        return beat(connection, self._owner.name, now_ms())

    def _beaten(self, counts: bool) -> None:
        """Have all readers ask again when this process was found frozen: then it comes back."""
        if not counts:
            self._feeder.ask_for_all()

    async def _housekeeping(self) -> None:
        """Give back the claims of dead and frozen owners; delete the messages of dropped lanes."""
        folder = self._database.folder
        dead_owners, beats, is_left = await self._database.read(
            partial(claims.due_maintenance, folder=folder, own=self._owner.name)
        )
        for owner in dead_owners:
            await self._database.write(partial(claims.give_back_all, owner=owner))
            forget(folder, owner)
            self._feeder.look_around()
        for last in self._watch.frozen(beats):
            await self._take_from_frozen(last)
        while is_left and await self._database.write(messages.sweep):
            pass
        await asyncio.sleep(HOUSEKEEPING_S)

    async def _take_from_frozen(self, last: OwnerBeat) -> None:
        if await self._database.write(partial(claims.take_from_frozen, last=last)):
            log.warning(
                "a process on the store in %s is frozen: what it had claimed goes to others",
                self._database.folder,
                extra={"action": "owner_frozen"},
            )
            self._feeder.look_around()
