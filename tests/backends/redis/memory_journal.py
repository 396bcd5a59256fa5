"""A journal in memory, for tests of what stands on one; its appends can be held or made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from pushlane.backends.ports import JournalPage


class MemoryJournal:
    """See `backends.ports.Journal`. `after_append` may raise, as a process that dies then;
    `on_append` is what happens elsewhere at that moment. `records` is what a compaction leaves of
    the `log` of all that was appended, of which the first `trimmed` have gone.
    """

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.log: list[tuple[str, bytes]] = []
        self.trimmed = 0
        self.appended: list[str] = []
        self.readings = 0
        self.appending = asyncio.Event()
        self.let_append = asyncio.Event()
        self.let_append.set()
        self.after_append: Callable[[], None] = lambda: None
        self.on_append: Callable[[], Awaitable[object]] | None = None

    async def append(self, key: str, body: bytes) -> None:
        self.appending.set()
        await self.let_append.wait()
        self.records.pop(key, None)
        self.records[key] = body
        self.log.append((key, body))
        self.appended.append(key)
        self.after_append()
        if self.on_append is not None:
            await self.on_append()

    async def pages(self) -> AsyncGenerator[JournalPage, None]:
        self.readings += 1
        records = [*self.records.items()]
        yield JournalPage(records, is_first=True, position=b"%d" % len(self.log))

    async def follow(self, after: bytes) -> AsyncGenerator[JournalPage, None]:
        at = int(after or b"0")
        while True:
            records, at = self.log[max(at, self.trimmed) :], len(self.log)
            yield JournalPage(records, position=b"%d" % at)

    async def close(self) -> None:
        """Nothing is held open."""
