"""Questions over the ordinary ports, whatever the adapter: a look through the messages of a lane
without taking them away, how many lanes low tasks share, which seqs have ended, what the log of
receipts holds, and the key of the hashes in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

import msgspec

from pushlane.backends.ports import Broker, ProgressStore, ReceiptReader, ReceiptWriter
from pushlane.core.errors import OutdatedFormat, TaskConflict, UnknownFormat, Unreachable
from pushlane.core.ports import LaneReader, Taken
from pushlane.core.task import Span
from pushlane.model.counted import read_receipts
from pushlane.model.documents import Document, DocumentStore, as_json
from pushlane.model.receipt import ReceiptBatch
from pushlane.model.recipients import Hasher
from pushlane.settings import Settings
from pushlane.util.conversion import whole
from pushlane.util.errors import MalformedReceipts, ReceiptsGone

MOST_HELD = 40_000
_PAGE = 1_000
_LOOK_AGAIN_S = 0.1
_GIVE_UP_S = 10.0


class Browser:
    """One look at one lane that nobody else reads: an async context manager.

    Messages that were shown are held, unacked, until they are removed or the browser closes; then
    they are on the lane as before. The number held at once is bounded, since a broker stops sending
    at some number (Pulsar at 50,000 for each reader) without saying so. Raises UnknownLane when it
    is entered and there is no such lane.
    """

    def __init__(self, broker: Broker, lane: str, most: int = MOST_HELD) -> None:
        self.lane = lane
        self._broker = broker
        self._most = most
        self._reader: LaneReader | None = None
        self._ready = asyncio.Event()
        self._held = 0

    async def __aenter__(self) -> Self:
        self._reader = await self._broker.read(self.lane, lambda _: self._ready.set())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._reader is not None:
            await self._reader.close()

    @property
    def is_full(self) -> bool:
        """True when as many messages are held as may be: more come only when some are removed."""
        return self._held >= self._most

    async def page(self) -> list[Taken]:
        """Return the next messages; an empty page when all have been shown, or when it is full.

        Raises:
            OutdatedFormat: some of them are in a batch, as versions before 0.2.0 published.
            Unreachable: another process holds some of them, and they do not come.
        """
        give_up_at = time.monotonic() + _GIVE_UP_S
        while not self.is_full:
            if page := self._take():
                return page
            left = await self._broker.backlog(self.lane)
            if page := self._take():
                return page
            if left <= self._held:
                return []
            if time.monotonic() > give_up_at:
                raise Unreachable(
                    f"lane {self.lane} holds more than can be read now: another process has some "
                    "of it; try again in a minute"
                )
            await self._more()
        return []

    async def remove(self, taken: Sequence[Taken]) -> None:
        """Take these off the lane for good."""
        await self._broker.ack(taken)
        self._held -= len(taken)

    def _take(self) -> list[Taken]:
        assert self._reader is not None
        self._ready.clear()
        page: list[Taken] = []
        while len(page) < _PAGE and not self.is_full:
            taken = self._reader.take()
            if taken is None:
                break
            if taken.is_part:
                raise OutdatedFormat(f"a batch of messages on lane {self.lane}")
            self._held += 1
            page.append(taken)
        return page

    async def _more(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self._ready.wait()


MOST = 1024
_KIND = "pool"
_NAME = "lanes"
_TRIES = 10


async def pool_size(documents: DocumentStore, setting: int) -> int:
    """Return how many lanes low tasks share: the setting, unless a size was set for all.

    Raises UnknownFormat when only a newer version understands how it is kept.
    """
    return _size(await documents.get(_KIND, _NAME)) or setting


async def set_pool_size(
    documents: DocumentStore, lanes: int, check: Callable[[int | None], None] | None = None
) -> int | None:
    """Let all low tasks from now on share so many lanes, whatever the setting of a submitter.

    Returns what was set before, None where nothing was; the check is made of that in the same step.

    Raises:
        BadInput: it cannot be so many.
        TaskConflict: it is being changed elsewhere again and again.
        UnknownFormat: as `pool_size` does.
    """
    body = as_json("the size of the pool", whole("pool size", lanes, 1, MOST), int)
    for _ in range(_TRIES):
        found = await documents.get(_KIND, _NAME)
        before = _size(found)
        if check is not None:
            check(before)
        if await documents.put(_KIND, _NAME, body, found.version if found else None) is not None:
            return before
    raise TaskConflict("the pool is being changed elsewhere; look at it, then try again")


def _size(found: Document | None) -> int | None:
    try:
        return None if found is None else msgspec.json.decode(found.body, type=int)
    except msgspec.DecodeError as error:
        raise UnknownFormat(0, "the size of the pool") from error


_SEQS_A_PAGE = 8192  # 1 KiB of bits


async def finished_seqs(store: ProgressStore, task_id: str, seqs: Sequence[int]) -> list[bool]:
    """Return for each of these seqs whether it was recorded; see `ProgressStore.finished`."""
    pages = list({seq // _SEQS_A_PAGE for seq in seqs})
    spans = [
        Span(task_id, page * _SEQS_A_PAGE, page * _SEQS_A_PAGE + _SEQS_A_PAGE - 1, moves=False)
        for page in pages
    ]
    ended = dict(zip(pages, await store.gone(spans), strict=True))
    return [bool(ended[seq // _SEQS_A_PAGE] >> seq % _SEQS_A_PAGE & 1) for seq in seqs]


async def receipt_hasher(log: ReceiptWriter, settings: Settings) -> Hasher:
    """Return what makes the hashes of recipients in receipts."""
    key = settings.receipts_key
    return Hasher(key.reveal().encode() if key else await log.secret())


async def receipts_since(log: ReceiptReader, at_ms: int) -> AsyncIterator[ReceiptBatch | None]:
    """Yield all batches in the log since then (Unix ms; 0: all); None for a body unread.

    Nothing is committed. Bodies that the log has dropped meanwhile are left out.
    """
    start = await log.since(at_ms) if at_ms else await log.first()
    async for batch in receipts_behind(log, start):
        yield batch


async def receipts_behind(
    log: ReceiptReader, start: Sequence[str]
) -> AsyncIterator[ReceiptBatch | None]:
    """Yield all batches in the log behind these positions, as `receipts_since` does."""
    start = await log.kept(start)
    end = await log.advance(start)
    for partition, last in enumerate(end):
        with contextlib.suppress(ReceiptsGone):
            first = (await log.kept(start))[partition]
            async for page in log.read(partition, first, last):
                for body in page:
                    yield _read(body)


def _read(body: bytes) -> ReceiptBatch | None:
    try:
        return read_receipts(body)
    except (MalformedReceipts, UnknownFormat):
        return None
