"""Runs an iterator in a thread, one item ahead of whoever uses it.

Between two items it can be stopped; it never leaves a thread behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
_END: Any = object()


@asynccontextmanager
async def prefetched(items: Generator[Item, None, None]) -> AsyncIterator[AsyncIterator[Item]]:
    """Give the items. Leaving waits for the one that is being made, then closes the iterator."""
    coming = _Prefetched(items)
    try:
        yield coming
    finally:
        await coming.close()


class _Prefetched(AsyncIterator[Item]):
    def __init__(self, items: Generator[Item, None, None]) -> None:
        self._items = items
        self._coming = self._make_next()

    async def __anext__(self) -> Item:
        item = await asyncio.shield(self._coming)
        if item is _END:
            raise StopAsyncIteration
        self._coming = self._make_next()
        return item

    async def close(self) -> None:
        await asyncio.wait({self._coming})
        self._coming.exception()  # was raised by __anext__, or nobody wants it any more
        self._items.close()

    def _make_next(self) -> asyncio.Task[Item]:
        return asyncio.create_task(asyncio.to_thread(next, self._items, _END))
