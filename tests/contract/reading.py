"""A reader that a test can wait on, and what tests say about messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pushlane.backends.ports import Broker
from pushlane.core.ports import LaneReader, Taken

T = TypeVar("T")

LANE = "task-a"


class Reading:
    """One reader of a lane; counts how often it was called ready, and how often that was due.

    It is once after the start, and once after takes that found nothing, however many.
    """

    def __init__(self) -> None:
        self.times_ready = 0
        self.times_due = 1
        self._is_due = True
        self._ready = asyncio.Event()

    @classmethod
    async def of(cls, broker: Broker, lane: str = LANE, depth: int = 0) -> Reading:
        reading = cls()
        reading.reader = await broker.read(lane, reading._on_ready, depth)
        return reading

    async def ready(self) -> None:
        """Wait until it is called ready again."""
        await self._ready.wait()
        self._ready.clear()

    def take_one(self) -> Taken | None:
        """What is at hand."""
        one = self.reader.take()
        if one is None and not self._is_due:
            self._is_due = True
            self.times_due += 1
        return one

    async def take(self, count: int) -> list[Taken]:
        """The next `count` messages, however long they take."""
        taken: list[Taken] = []
        while len(taken) < count:
            if one := self.take_one():
                taken.append(one)
            else:
                await self.ready()
        return taken

    async def close(self) -> None:
        await self.reader.close()

    def _on_ready(self, reader: LaneReader) -> None:
        self.times_ready += 1
        self._is_due = False
        self._ready.set()


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def bodies(taken: list[Taken]) -> list[bytes]:
    return [one.body for one in taken]


async def until(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again until the answer is true or something, and return it; the test's deadline ends it.

    It is for what sends no signal: a broker's counts, a lease that another process holds.
    """
    while not (answer := await ask()):
        await asyncio.sleep(0)
    return answer
