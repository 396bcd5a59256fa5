"""Ours: the sink, a user's own function, and what feeds it, through the public `pushlane` alone.

The settings come from `PUSHLANE_*`. `python -m bench.peers.apps.ours` feeds it.
"""

from __future__ import annotations

import asyncio
import sys

from bench.peers.apps.handler import work_async
from bench.peers.apps.orders import BODY
from pushlane import Client, Level, Push, SubmitRequest

_KEPT_S = 60.0  # a low task that is kept has a lane of its own, as the others have


async def deliver(push: Push) -> None:
    assert push.data is not None
    await work_async(push.data["task"], push.seq, push.data["level"])


async def send(client: Client, task: str, level: str, pushes: int) -> None:
    rows = ({"recipient": f"r{seq}", "task": task, "level": level} for seq in range(1, pushes + 1))
    await client.submit(
        SubmitRequest(
            source=rows,
            level=Level(level),
            name=task,
            body=BODY,
            data=("task", "level"),
            retention_s=_KEPT_S,
        )
    )


async def feed() -> None:
    async with Client() as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            kind, *words = line.split()
            if kind == "task":
                await send(client, words[0], words[1], int(words[2]))
            else:
                await client.set_levels(words[0])
            sys.stdout.write("ok\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(feed())
