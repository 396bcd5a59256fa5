"""A process that begins to fill a registry, says so in the middle, and goes no further."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

from pushlane.backends.ports import JournalPage
from pushlane.backends.redis import connect_redis
from pushlane.model.task_bytes import encode
from tests.backends.redis.memory_journal import MemoryJournal
from tests.backends.redis.world import WINDOW_S, new_task


class Endless(MemoryJournal):
    async def pages(self) -> AsyncGenerator[JournalPage, None]:
        task = new_task()
        yield JournalPage([(task.id, encode(task))], is_first=True)
        print("half", flush=True)
        await asyncio.Event().wait()


async def main(url: str, prefix: str) -> None:
    async with connect_redis(url, prefix, Endless(), WINDOW_S):
        raise AssertionError("it never ends")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
