"""Fills the buffers of all readers of a process: many lanes, one transaction.

The messages at hand are bounded in bytes over all readers, not only in number for each lane: once
they have `BYTES_HELD`, a reader gets one more only if it has none. One claim takes `BYTES_AT_ONCE`
over all lanes, and those that it had no room for come first in the next. The feeder never claims
for a reader that has not asked. When this process was frozen and has lost its claims, the feeder
finds out before it claims more.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.messages import ClaimedBatch, ClaimRequest, claim
from pushlane.backends.embedded.owners import MISSED, come_back
from pushlane.core.errors import Unreachable
from pushlane.core.task import now_ms
from pushlane.lanes.embedded.messages import stamped_after
from pushlane.lanes.embedded.reader import AtHand, EmbeddedReader

LANES_AT_ONCE = 1024
BYTES_AT_ONCE = 2 << 20
BYTES_HELD = 32 << 20
_SMALL_BODY = 512
_FIRST_GUESS = 8192

log = logging.getLogger("pushlane.embedded")


class Feeder:
    """Claims messages for the readers of `owner`, which beats every `beat_s` seconds."""

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
        self.at_hand = AtHand()

    def add(self, reader: EmbeddedReader) -> None:
        self._readers[reader.reader_id] = reader
        self._by_lane[reader.lane_id].add(reader)
        reader.kick()

    def remove(self, reader: EmbeddedReader) -> None:
        self._readers.pop(reader.reader_id, None)
        self._asking.pop(reader, None)
        self._by_lane[reader.lane_id].discard(reader)
        if not self._by_lane[reader.lane_id]:
            del self._by_lane[reader.lane_id]

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
            self._stamp, lanes = await self._database.read(
                partial(stamped_after, stamp=self._stamp)
            )
        except Unreachable:
            self.look_around()
            raise
        for lane_id in lanes:
            self.kick(lane_id)

    async def _feed(self) -> None:
        most = fair_depth(len(self._readers), self._body_bytes)
        has_room = self._must_look or self.at_hand.bytes < BYTES_HELD
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
        self, connection: sqlite3.Connection, requests: Sequence[ClaimRequest]
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
        left_out = (self._readers.get(one.reader_id) for one in batches if _is_left_out(one))
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
                max(1, min(share, min(most, reader.depth) - reader.held)),
            )
            for reader in readers
        ]

    def _weigh(self, sizes: list[int]) -> None:
        if sizes:
            self._body_bytes = max(_SMALL_BODY, sum(sizes) // len(sizes))


def _is_left_out(batch: ClaimedBatch) -> bool:
    return batch.more and not batch.taken


def fair_depth(readers: int, body_bytes: int) -> int:
    """Return how many messages of this size each of so many readers may hold."""
    return max(1, BYTES_HELD // body_bytes // max(1, readers))
