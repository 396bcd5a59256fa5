"""Runs an iterator in a thread, one item ahead of whoever uses it.

Between two items it can be stopped; it never leaves a thread behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

Item = TypeVar("Item")
_END: Any = object()


@asynccontextmanager
async def prefetched(items: Generator[Item, None, None]) -> AsyncIterator[AsyncIterator[Item]]:
    """Give the items. Leaving waits for the one that is being made, then closes the iterator."""

    def make_next() -> asyncio.Task[Item]:
        return asyncio.create_task(asyncio.to_thread(next, items, _END))

    coming = make_next()

    async def made() -> AsyncGenerator[Item, None]:
        nonlocal coming
        while (item := await asyncio.shield(coming)) is not _END:
            coming = make_next()
            yield item

    try:
        async with aclosing(made()) as stream:
            yield stream
    finally:
        await asyncio.wait({coming})
        coming.exception()  # was raised where the item was asked for, or nobody wants it any more
        items.close()
