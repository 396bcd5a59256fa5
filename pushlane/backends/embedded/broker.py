"""The broker port on SQLite: lanes are rows, and a message is claimed by moving a number.

A publish is durable when it returns. Several processes work on one store at once; the claims of a
killed one come back within a second, those of a frozen one within about a minute. An ack outlives
the process, but perhaps not a power cut: then the push is repeated, never lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from sqlite3 import Connection

from pushlane.backends.embedded import messages
from pushlane.backends.embedded.database import Database, SideTasks, StorePort, json_of, reads
from pushlane.backends.embedded.messages import ClaimedBatch, ClaimRequest, claim, stamped_after
from pushlane.backends.embedded.owners import (
    BEAT_S,
    MISSED,
    HeartbeatWatch,
    Owner,
    OwnerBeat,
    beat,
    come_back,
    forget,
)
from pushlane.backends.embedded.schema import DELAYED, LANE_SHIFT
from pushlane.backends.ports import Delayed, Placed, number_of, of_each
from pushlane.core.errors import Unreachable
from pushlane.core.ports import OnReady, Source, Taken
from pushlane.core.task import now_ms

REFILL_WAIT_S = 0.2
REPLAY_PAGE = 1_000


class EmbeddedReader:
    """Takes messages off one lane, from a small buffer that the feeder fills behind it.

    `take` only pops. It never touches the store: it asks the feeder.
    """

    def __init__(
        self, lane: str, lane_id: int, reader_id: int, depth: int, on_ready: OnReady, feeder: Feeder
    ) -> None:
        self.lane = lane
        self.lane_id = lane_id
        self.reader_id = reader_id
        self.depth = depth
        self._on_ready = on_ready
        self._feeder = feeder
        self._buffer: deque[Taken] = deque()
        self._low = 0
        self._first_until_s = 0.0
        self._more = True  # the store may hold messages that we have not looked for
        self._told_empty = True
        self._looks = False  # the feeder is looking right now
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def held(self) -> int:
        """Return the number of messages at hand."""
        return len(self._buffer)

    def take(self) -> Taken | None:
        if not self._buffer:
            self._told_empty = True
            self._ask_if_low()
            return None
        taken = self._buffer.popleft()
        self._feeder.bytes_held -= len(taken.body)
        if taken.is_first and time.monotonic() > self._first_until_s:
            taken.is_first = False
        self._ask_if_low()
        return taken

    def refill_wait_s(self) -> float:
        return REFILL_WAIT_S if self._more or self._looks else 0.0

    def kick(self) -> None:
        """Note that there may be something new on the lane."""
        self._more = True
        self._ask_if_low()

    def looking(self) -> None:
        """Note that the feeder looks now; another kick tells of messages that come later."""
        self._more = False
        self._looks = True

    def looked(self) -> None:
        """Note that the feeder has looked; if it found something, it has filled this reader."""
        self._looks = False

    def fill(self, batch: ClaimedBatch, most: int, first_until_s: float) -> None:
        """Keep the messages that the feeder brought; ask again when the buffer is half empty.

        A full buffer has `most` messages now, or the reader's own depth if that is less. From
        `first_until_s` on (monotonic) others may have had any of these messages, in case this
        process was frozen meanwhile.
        """
        if self.closed:
            return
        self._buffer.extend(batch.taken)
        self._feeder.bytes_held += sum(len(one.body) for one in batch.taken)
        self._low = min(self.depth, most) // 2
        self._first_until_s = first_until_s
        self._more = self._more or batch.more
        if batch.due_at_ms is not None:
            self._kick_at(batch.due_at_ms)
        self._ask_if_low()
        if self._told_empty and self._buffer:
            self._told_empty = False
            self._on_ready(self)

    def forget(self) -> None:
        """Throw away the messages at hand, which have gone to others."""
        self._drop()
        self.kick()

    async def close(self) -> None:
        if not self.closed:
            self.stop()
            await self._feeder.remove(self)

    def stop(self) -> None:
        """Give out no more messages."""
        self.closed = True
        self._drop()
        if self._timer:
            self._timer.cancel()

    def _drop(self) -> None:
        self._feeder.bytes_held -= sum(len(one.body) for one in self._buffer)
        self._buffer.clear()

    def _ask_if_low(self) -> None:
        if self._more and not self.closed and len(self._buffer) <= self._low:
            self._feeder.ask(self)

    def _kick_at(self, due_at_ms: int) -> None:
        if self._timer:
            self._timer.cancel()
        wait_s = max(0, due_at_ms - now_ms()) / 1000 + 0.001
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.kick)


LANES_AT_ONCE = 1024
BYTES_AT_ONCE = 2 << 20
BYTES_HELD = 32 << 20
_SMALL_BODY = 512
_FIRST_GUESS = 8192

log = logging.getLogger("pushlane.embedded")


class Feeder:
    """Fills the buffers of all readers of `owner`: many lanes, one transaction.

    The messages at hand are bounded in bytes over all readers, not only in number for each lane:
    once they have `BYTES_HELD`, a reader gets one more only if it has none. One claim takes
    `BYTES_AT_ONCE` over all lanes, and those that it had no room for come first in the next. The
    feeder never claims for a reader that has not asked. When this process was frozen and has lost
    its claims, it finds out before it claims more. The owner beats every `beat_s` seconds.
    """

    def __init__(self, database: Database, owner: str, beat_s: float) -> None:
        self._database = database
        self._owner = owner
        self._first_s = beat_s * MISSED / 2  # sooner than anybody can find the owner frozen
        self._readers: dict[int, EmbeddedReader] = {}
        self._by_lane: defaultdict[int, set[EmbeddedReader]] = defaultdict(set)
        self._asking: dict[EmbeddedReader, None] = {}
        self._wake = asyncio.Event()
        self._news = False
        self._stamp = 0
        self._body_bytes = _FIRST_GUESS
        self._must_look = False
        self.bytes_held = 0
        """The bytes of all messages that the readers have at hand."""

    def add(self, reader: EmbeddedReader) -> None:
        self._readers[reader.reader_id] = reader
        self._by_lane[reader.lane_id].add(reader)
        reader.kick()

    async def remove(self, reader: EmbeddedReader) -> None:
        """Give back what the reader has claimed, and fill it no more."""
        self._readers.pop(reader.reader_id, None)
        self._asking.pop(reader, None)
        self._by_lane[reader.lane_id].discard(reader)
        if not self._by_lane[reader.lane_id]:
            del self._by_lane[reader.lane_id]
        await self._database.write(
            partial(messages.give_back, reader_id=reader.reader_id, lane_id=reader.lane_id)
        )
        self.kick(reader.lane_id)

    def readers(self) -> list[EmbeddedReader]:
        return list(self._readers.values())

    def ask(self, reader: EmbeddedReader) -> None:
        self._asking[reader] = None
        self._wake.set()

    def ask_for_all(self) -> None:
        """Look into the store for every reader, however much it has at hand."""
        self._must_look = True
        for reader in self._readers.values():
            self.ask(reader)

    def kick(self, lane_id: int) -> None:
        """Wake the readers of a lane that this process has put something on."""
        for reader in self._by_lane.get(lane_id, ()):
            reader.kick()

    def look_around(self) -> None:
        """Look soon for lanes that another process may have put something on."""
        self._news = True
        self._wake.set()

    async def step(self) -> None:
        """Wait until there is something to do, and do it."""
        await self._wake.wait()
        self._wake.clear()
        if self._news:
            await self._read_news()
        if self._asking:
            await self._feed()

    async def _read_news(self) -> None:
        self._news = False
        try:
            look = partial(stamped_after, stamp=self._stamp)
            self._stamp, lanes = await self._database.read(look)
        except Unreachable:
            self.look_around()
            raise
        for lane_id in lanes:
            self.kick(lane_id)

    async def _feed(self) -> None:
        most = fair_depth(len(self._readers), self._body_bytes)
        has_room = self._must_look or self.bytes_held < BYTES_HELD
        readers = self._next_readers(has_room)
        if not readers:
            return
        self._must_look = False
        requests = self._requests(readers, most, has_room)
        for reader in readers:
            reader.looking()
        first_until_s = time.monotonic() + self._first_s
        try:
            came_back, batches = await self._database.write(partial(self._claim, requests=requests))
        except Unreachable:
            for reader in readers:
                reader.looked()
                reader.kick()
            raise
        if came_back:
            self._forget()
        for batch in batches:
            if open_reader := self._readers.get(batch.reader_id):
                open_reader.fill(batch, most, first_until_s)
        for reader in readers:
            reader.looked()
        self._put_first(batches)
        self._weigh([len(taken.body) for batch in batches for taken in batch.taken])

    def _claim(
        self, connection: Connection, requests: Sequence[ClaimRequest]
    ) -> tuple[bool, list[ClaimedBatch]]:
        """Claim; also return whether all earlier claims are lost."""
        now = now_ms()
        came_back = come_back(connection, self._owner, now)
        return came_back, claim(connection, requests, now, BYTES_AT_ONCE)

    def _forget(self) -> None:
        log.warning(
            "this process was frozen: what it had claimed has gone to others; it goes on",
            extra={"action": "claims_lost"},
        )
        for reader in self._readers.values():
            reader.forget()

    def _put_first(self, batches: Sequence[ClaimedBatch]) -> None:
        """Have the readers that the claim had no room for go before all others."""
        left_out = [self._readers.get(one.reader_id) for one in batches if one.is_left_out]
        if first := {reader: None for reader in left_out if reader in self._asking}:
            self._asking = {**first, **self._asking}

    def _next_readers(self, has_room: bool) -> list[EmbeddedReader]:
        """Take the readers that asked first, one a lane.

        Without room these are readers with nothing at hand; others ask again at their next take.
        """
        if not has_room:
            self._asking = {reader: None for reader in self._asking if not reader.held}
        chosen: dict[int, EmbeddedReader] = {}
        for reader in self._asking:
            chosen.setdefault(reader.lane_id, reader)
            if len(chosen) == LANES_AT_ONCE:
                break
        for reader in chosen.values():
            del self._asking[reader]
        if self._asking:
            self._wake.set()
        return list(chosen.values())

    def _requests(
        self, readers: list[EmbeddedReader], most: int, has_room: bool
    ) -> list[ClaimRequest]:
        share = max(1, BYTES_AT_ONCE // self._body_bytes // len(readers)) if has_room else 1
        return [
            ClaimRequest(
                reader.reader_id,
                reader.lane_id,
                reader.lane,
                max(1, min(share, most - reader.held, reader.depth - reader.held)),
            )
            for reader in readers
        ]

    def _weigh(self, sizes: list[int]) -> None:
        if sizes:
            self._body_bytes = max(_SMALL_BODY, sum(sizes) // len(sizes))


def fair_depth(readers: int, body_bytes: int) -> int:
    """Return how many messages of this size each of so many readers may hold."""
    return max(1, BYTES_HELD // body_bytes // max(1, readers))


HOUSEKEEPING_S = 0.5


class EmbeddedBroker(StorePort):
    """See `backends.ports.Broker`.

    Every process on a store beats each `beat_s` seconds. `depth` is for readers that were given
    none.
    """

    def __init__(self, database: Database, depth: int, beat_s: float = BEAT_S) -> None:
        super().__init__(database)
        self._depth = depth
        self._owner = Owner(database.folder)
        self._beat_s = beat_s
        self._watch = HeartbeatWatch(self._owner.name)
        self._feeder = Feeder(database, self._owner.name, beat_s)
        self._held_since_s = self._held_until_s = -math.inf
        self._background = SideTasks()
        self._reads = False
        self._keeps_house = False

    @property
    def in_doubt(self) -> bool:
        """Always False: nobody is given what a process that beats has at hand."""
        return False

    @property
    def held_since_s(self) -> float:
        """Return since when no two beats of this process were so far apart that it may have been
        found frozen; infinite while the last one is that long ago.
        """
        return self._held_since_s if time.monotonic() < self._held_until_s else math.inf

    async def open_lane(self, lane: str, *, keep: bool = False) -> None:
        await self._database.write(partial(messages.open_lane, lane=lane, keep=keep), durable=True)

    async def drop_lane(self, lane: str, *, force: bool = False) -> bool:
        folder = self._database.folder
        dropped = await self._database.write(
            lambda connection: messages.drop_lane(connection, lane, None if force else folder)
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

    async def last_of(self, lane: str, source: str) -> int:
        return await self._database.read(partial(messages.last_of, lane=lane, source=source))

    async def read(self, lane: str, on_ready: OnReady, depth: int = 0) -> EmbeddedReader:
        self._start_reading()
        reader_id, lane_id = await self._database.write(
            partial(messages.register, owner=self._owner.name, lane=lane)
        )
        depth = max(1, (depth or self._depth) // 2)
        reader = EmbeddedReader(lane, lane_id, reader_id, depth, on_ready, self._feeder)
        self._feeder.add(reader)
        return reader

    async def ack(self, taken: Sequence[Taken]) -> None:
        self._background.check()
        await self._database.write(partial(messages.ack, ids=[one.handle for one in taken]))

    async def backlog(self, lane: str) -> int:
        return await self._database.read(partial(messages.backlog, lane=lane))

    @reads
    def delayed(self, store: Connection, lane: str) -> Delayed:
        count, first_ms, last_ms = store.execute(
            "SELECT count(*), min(due_at_ms), max(due_at_ms) FROM waiting "
            "WHERE lane_id = (SELECT id FROM lanes WHERE name = ?) AND due_at_ms > ?",
            (lane, self._clock_ms()),
        ).fetchone()
        return Delayed(count, first_ms or 0, last_ms or 0)

    async def hasten(self, lane: str, later_than_ms: int) -> int:
        count = 0
        while some := await self._database.write(
            partial(messages.hasten, lane=lane, later_than_ms=later_than_ms)
        ):
            count += some
        self._feeder.look_around()
        return count

    async def unacked(self, lane: str, after: str, most: int) -> list[Placed]:
        found = await self._unacked(lane, number_of(after) if after else 0, most)
        return [Placed(str(number), body) for number, body in found]

    @reads
    def _unacked(
        self, store: Connection, lane: str, after: int, most: int
    ) -> list[tuple[int, bytes]]:
        return messages.unacked(store, lane, after, most)

    async def replay(self, lane: str, since_ms: int = 0) -> AsyncIterator[list[bytes]]:
        for first, last in await self._published_since(lane, since_ms):
            while first <= last:
                bodies, first = await self._page(first, last)
                if bodies:
                    yield bodies

    @reads
    def _published_since(
        self, store: Connection, lane: str, since_ms: int
    ) -> list[tuple[int, int]]:
        """Return the first and last id of messages published since then, delayed ones apart.

        A lane that keeps nothing does not know the times of its messages: all of them are returned.
        """
        row = store.execute("SELECT id, kept FROM lanes WHERE name = ?", (lane,)).fetchone()
        if row is None:
            return []
        first, last = messages.span(row[0])
        halves = [(first, first + DELAYED - 1), (first + DELAYED, last)]
        if not row[1]:
            return halves
        wanted = "SELECT min(first) FROM published WHERE first BETWEEN ? AND ? AND at_ms >= ?"
        found = [store.execute(wanted, (*half, since_ms)).fetchone()[0] for half in halves]
        return [(at, half[1]) for at, half in zip(found, halves, strict=True) if at is not None]

    @reads
    def _page(self, store: Connection, first: int, last: int) -> tuple[list[bytes], int]:
        """Return some messages from the first id on, acked or not, and the id to go on at."""
        wanted = "SELECT id, body FROM messages WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?"
        rows = store.execute(wanted, (first, last, REPLAY_PAGE)).fetchall()
        following = rows[-1][0] + 1 if len(rows) == REPLAY_PAGE else last + 1
        return [body for _, body in rows], following

    @reads
    def retained_since_ms(self, store: Connection, lane: str) -> int | None:
        """Return 0 for a lane that keeps acked messages, since it has all; None for any other."""
        row = store.execute("SELECT kept FROM lanes WHERE name = ?", (lane,)).fetchone()
        return 0 if row and row[0] else None

    @reads
    def end_of(self, store: Connection, lane: str) -> tuple[int, int]:
        """Return the ids of the last message without a delay, and of the last one with a delay."""
        row = store.execute(
            "SELECT (id << ?2) + tail, (id << ?2) + ?3 + delayed FROM lanes WHERE name = ?1",
            (lane, LANE_SHIFT, DELAYED),
        ).fetchone()
        return (int(row[0]), int(row[1])) if row else (0, 0)

    @reads
    def is_past(self, store: Connection, lane: str, end: tuple[int, int]) -> bool:
        """Return whether every message up to this end is gone, as `end_of` gave it.

        On a lane that keeps acked messages they never go, so this stays False there.
        """
        row = store.execute(
            "SELECT EXISTS (SELECT 1 FROM messages WHERE id BETWEEN lanes.id << ?2 AND ?4) "
            "OR EXISTS (SELECT 1 FROM messages WHERE id BETWEEN (lanes.id << ?2) + ?3 AND ?5) "
            "FROM lanes WHERE name = ?1",
            (lane, LANE_SHIFT, DELAYED, *end),
        ).fetchone()
        return not (row and row[0])

    @reads
    def lanes(self, store: Connection) -> list[str]:
        wanted = "SELECT json_group_array(name) FROM (SELECT name FROM lanes ORDER BY id)"
        return list(json_of(store, wanted))

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
                await self._database.write(partial(messages.give_back_all, owner=self._owner.name))
            finally:
                self._owner.end()

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

    def _beat(self, connection: Connection) -> float | None:
        """Return when it was (monotonic, no later than it was); None if it does not count."""
        at_s = time.monotonic()
        return at_s if beat(connection, self._owner.name, now_ms()) else None

    def _beaten(self, at_s: float | None) -> None:
        """Have all readers ask again when this process was found frozen: then it comes back."""
        if at_s is None:
            self._feeder.ask_for_all()
            return
        if at_s >= self._held_until_s:  # others may have had what was taken before now
            self._held_since_s = time.monotonic()
        self._held_until_s = at_s + self._beat_s * MISSED / 2

    async def _housekeeping(self) -> None:
        """Give back the claims of dead and frozen owners; delete the messages of dropped lanes."""
        folder = self._database.folder
        dead_owners, beats, is_left = await self._database.read(
            partial(messages.due_maintenance, folder=folder, own=self._owner.name)
        )
        for owner in dead_owners:
            await self._database.write(partial(messages.give_back_all, owner=owner))
            forget(folder, owner)
            self._feeder.look_around()
        for last in self._watch.frozen(beats):
            await self._take_from_frozen(last)
        while is_left and await self._database.write(messages.sweep):
            pass
        await asyncio.sleep(HOUSEKEEPING_S)

    async def _take_from_frozen(self, last: OwnerBeat) -> None:
        if await self._database.write(partial(messages.take_from_frozen, last=last)):
            log.warning(
                "a process on the store in %s is frozen: what it had claimed goes to others",
                self._database.folder,
                extra={"action": "owner_frozen"},
            )
            self._feeder.look_around()
