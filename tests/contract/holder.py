"""A process that takes messages, says so, and holds them until it is killed.

python -m tests.contract.holder LANE COUNT      (settings from the environment)
"""

from __future__ import annotations

import asyncio
import sys

from pushlane.backends.backend import connect
from pushlane.settings import load
from tests.contract.reading import Reading


async def hold(lane: str, count: int) -> None:
    async with connect(load()) as backend:
        reading = await Reading.of(backend.broker, lane)
        await reading.take(count)
        print("holding", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], int(sys.argv[2])))
